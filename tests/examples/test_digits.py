"""The example runs as it is, from another folder, and finds what it promises."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("sklearn")

EXAMPLE = Path(__file__).parents[2] / "examples" / "digits.py"


@pytest.mark.timeout(900)
def test_digits(tmp_path):
    command = [sys.executable, str(EXAMPLE)]
    process = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stdout + process.stderr
    assert "second process measured nothing" in process.stdout
    assert (tmp_path / "digits.keras").exists()
