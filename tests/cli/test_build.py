"""`keras-tunedconv build` prints the library's path, or says what is missing."""

import importlib.util
import sys
import types
from pathlib import Path

import pytest
from click.testing import CliRunner

from keras_tunedconv.cli.build import build


@pytest.fixture
def op(monkeypatch):
    """The bridge's build module, replaced by one that compiles nothing."""
    import keras_tunedconv.bridges as bridges

    package = types.ModuleType("keras_tunedconv.bridges.tensorflow")
    package.build = types.ModuleType("keras_tunedconv.bridges.tensorflow.build")
    monkeypatch.setattr(bridges, "tensorflow", package, raising=False)
    monkeypatch.setitem(sys.modules, package.__name__, package)
    monkeypatch.setitem(sys.modules, package.build.__name__, package.build)
    return package.build


@pytest.mark.parametrize(("arguments", "forced"), [([], False), (["--force"], True)])
def test_it_prints_the_path(op, arguments, forced):
    seen = []
    op.build = lambda force: seen.append(force) or Path("/cache/op.so")
    result = CliRunner().invoke(build, arguments)
    assert (result.exit_code, result.stdout) == (0, "/cache/op.so\n")
    assert seen == [forced]


def test_a_failed_build_is_one_line_without_a_traceback(op):
    def fail(force):
        raise RuntimeError("no C++ compiler was found. Install one: apt install g++")

    op.build = fail
    result = CliRunner().invoke(build)
    assert result.exit_code == 1
    assert result.output == "Error: no C++ compiler was found. Install one: apt install g++\n"


@pytest.mark.skipif(
    importlib.util.find_spec("tensorflow") is None, reason="needs TensorFlow's absence to be faked"
)
def test_without_tensorflow_it_says_how_to_get_it(monkeypatch):
    for name in [
        n for n in sys.modules if n.startswith(("keras_tunedconv.bridges.tensorflow", "tensorflow"))
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    result = CliRunner().invoke(build)
    assert result.exit_code == 1
    assert "keras-tunedconv[tensorflow]" in result.output
