"""Building the C tests and the scripted engine they share with the Python tests."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

NATIVE = Path(__file__).parent / "native"


def build(folder: Path, *flags: str) -> Path:
    """Build everything in tests/native into a folder; skips the test where there is no C compiler."""
    if shutil.which("cc") is None:
        pytest.skip("the C tests need a C compiler named cc")
    done = subprocess.run([NATIVE / "build.sh", folder, *flags], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


def build_fake_engine(folder: Path) -> Path:
    """Build the scripted engine as anybody would build an engine of their own."""
    if shutil.which("cc") is None:
        pytest.skip("the scripted engine needs a C compiler named cc")
    library = folder / "libfake.so"
    include = NATIVE.parents[1] / "cffi_build" / "include"
    command = ["cc", "-shared", "-fPIC", f"-I{include}", NATIVE / "fake_engine.c", "-o", library]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return library


def case_names() -> list[str]:
    """Names of the C test cases, out of their tables."""
    tables = "".join(path.read_text() for path in sorted(NATIVE.glob("*_test.c")))
    return re.findall(r'^    \{"(\w+/\w+)",', tables, flags=re.MULTILINE)
