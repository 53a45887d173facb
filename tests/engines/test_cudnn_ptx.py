"""The checked-in PTX against the CUDA source it was made from."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "cffi_build" / "engines" / "cudnn"


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate_ptx", FOLDER / "generate_ptx.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_headers_are_made_from_the_sources_as_they_are(generator: ModuleType) -> None:
    assert [name for name in generator.SOURCES if not generator.is_current(name)] == []


def test_a_changed_source_is_noticed(
    generator: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(FOLDER, tmp_path, dirs_exist_ok=True)
    monkeypatch.setattr(generator, "HERE", tmp_path)
    assert generator.is_current("conversions")
    included = tmp_path / "conversions.h"
    included.write_text(included.read_text() + "\n")
    assert not generator.is_current("conversions")


@pytest.mark.slow
def test_the_same_compiler_makes_the_same_header(generator: ModuleType) -> None:
    if not (shutil.which("nvcc") and shutil.which("ptxas")):
        pytest.skip("needs nvcc and ptxas")
    version = subprocess.run(["nvcc", "--version"], capture_output=True, text=True, check=True).stdout
    if "release 13.0" not in version:
        pytest.skip("the headers were made by nvcc 13.0; another one writes other instructions")
    for name in generator.SOURCES:
        assert (FOLDER / f"{name}_ptx.h").read_text() == generator.header(name)
