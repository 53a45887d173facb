"""The C tests of the core, each in a process of its own; and all of them under the sanitizers."""

from __future__ import annotations

import subprocess
from pathlib import Path

import native_build
import pytest


@pytest.fixture(scope="session")
def native(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return native_build.build(tmp_path_factory.mktemp("native")) / "tests"


@pytest.mark.parametrize("name", native_build.case_names())
def test_core(native: Path, name: str):
    done = subprocess.run([native, name], capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{name} ok\n"


def test_every_case_is_run(native: Path):
    listed = subprocess.run([native], capture_output=True, text=True, check=True).stdout.split()
    assert sorted(listed) == sorted(native_build.case_names())


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_sanitizers_find_nothing(tmp_path: Path):
    script = native_build.NATIVE.parent / "sanitizers.sh"
    done = subprocess.run([script, tmp_path], capture_output=True, text=True, timeout=800)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-8000:]
