"""Building the op library at first use: what is kept, what is shared, and what a failure leaves behind.

A shell script stands in for the compiler, so that a build takes no time; what it makes is never loaded.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from filelock import FileLock

if os.environ["KERAS_BACKEND"] != "tensorflow":
    pytest.skip("needs KERAS_BACKEND=tensorflow", allow_module_level=True)

import tensorflow as tf

from keras_tunedconv.bridges.tensorflow import build as op
from keras_tunedconv.bridges.tensorflow.compiler import BuildError, find_compiler
from keras_tunedconv.core.library import native_folder

# Writes down each call. FAIL names a source that does not compile, SLOW the seconds each compilation takes.
_COMPILER = """#!/bin/sh
if [ "$1" = --version ]; then echo "testcc $(cat {folder}/version)"; exit 0; fi
echo "$*" >> {folder}/calls
case "$*" in
  *" -c "*) sleep "$(cat {folder}/slow)"
    case "$*" in *"$(cat {folder}/fail)"*)
      echo "x.cc:1:2: warning: nothing" >&2; echo "x.cc:3:4: error: no such luck" >&2; exit 1 ;;
    esac ;;
esac
while [ $# -gt 0 ]; do if [ "$1" = -o ]; then echo made > "$2"; fi; shift; done
"""


class FakeCompiler:
    """The script, its settings, and what it was asked to do."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        self.set(version="1.0", fail="nothing", slow="0")
        self.path = folder / "testcc"
        self.path.write_text(_COMPILER.format(folder=folder))
        self.path.chmod(0o755)

    def set(self, **settings: str) -> None:
        for name, value in settings.items():
            (self._folder / name).write_text(value)

    @property
    def calls(self) -> list[str]:
        file = self._folder / "calls"
        return file.read_text().splitlines() if file.exists() else []

    @property
    def links(self) -> int:
        return sum(" -shared " in f" {call} " for call in self.calls)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    monkeypatch.setenv("KERAS_TUNEDCONV_CACHE", str(folder))
    monkeypatch.delenv("KERAS_TUNEDCONV_PREBUILT", raising=False)
    op.make_recipe.cache_clear()
    yield folder
    op.make_recipe.cache_clear()


@pytest.fixture
def compiler(tmp_path, monkeypatch):
    fake = FakeCompiler(tmp_path / "compiler")
    monkeypatch.setenv("CXX", str(fake.path))
    return fake


@pytest.fixture
def no_compiler(tmp_path, monkeypatch):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))


def _left(cache: Path) -> list[str]:
    """What a build leaves besides its lock."""
    if not cache.exists():
        return []
    return sorted(
        str(file.relative_to(cache)) for file in cache.rglob("*") if not file.name.endswith(".lock")
    )


def test_second_build_takes_the_first_ones_library(cache, compiler, capfd):
    library = op.build()
    assert library.read_text() == "made\n"
    assert library.is_relative_to(cache)
    assert op.has_xla(library)
    said = capfd.readouterr().err
    assert f"TensorFlow {tf.version.VERSION}" in said
    assert "40 to 60 s" in said
    calls = compiler.calls
    assert op.build() == library
    assert compiler.calls == calls
    assert capfd.readouterr().err == ""
    assert _left(cache) == [library.parent.name, f"{library.parent.name}/{library.name}"]


def test_force_compiles_again(cache, compiler):
    library = op.build()
    library.write_text("old")
    assert op.build(force=True) == library
    assert library.read_text() == "made\n"
    assert compiler.links == 2


def test_calls_carry_tensorflows_flags(cache, compiler):
    op.build()
    compilations = [call for call in compiler.calls if " -c " in f" {call} "]
    assert len(compilations) == 3
    for call in compilations:
        assert f"-D_GLIBCXX_USE_CXX11_ABI={tf.sysconfig.CXX11_ABI_FLAG}" in call
        assert "-DNDEBUG" in call
        for flag in call.split():
            if flag.startswith("-I"):
                assert Path(flag[2:]).is_dir()
    (link,) = (call for call in compiler.calls if "-shared" in call)
    assert "tensorflow_framework" in link
    assert "tensorflow_cc" in link


def test_no_compiler(cache, no_compiler):
    with pytest.raises(
        BuildError, match=r"no C\+\+ compiler was found.*CXX.*KERAS_TUNEDCONV_PREBUILT"
    ) as failure:
        op.build()
    assert failure.value.reason in str(failure.value)
    assert _left(cache) == []


def test_compiler_that_does_not_run_is_none(tmp_path, monkeypatch):
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    for command in (str(broken), str(tmp_path / "missing"), ""):
        monkeypatch.setenv("CXX", command)
        monkeypatch.setenv("PATH", str(tmp_path))
        assert find_compiler() is None


def test_compiler_command_of_several_words(compiler, monkeypatch):
    monkeypatch.setenv("CXX", f"env A=1 {compiler.path}")
    found = find_compiler()
    assert found.command == ("env", "A=1", str(compiler.path))
    assert found.identity == "testcc 1.0"


@pytest.mark.parametrize("source", ["tensorflow_ops.cc", "tensorflow_kernels.cc", "-shared"])
def test_failing_compiler(cache, compiler, source):
    compiler.set(fail=source)
    if source == "-shared":
        compiler.path.write_text(compiler.path.read_text().replace('*" -c "*)', '*" -o "*)'))
    with pytest.raises(BuildError, match="error: no such luck") as failure:
        op.build()
    assert "warning: nothing" not in str(failure.value)
    assert "testcc 1.0" in failure.value.hint
    assert _left(cache) == []
    compiler.set(fail="nothing")
    assert op.build().read_text() == "made\n"


def test_only_xla_fails(cache, compiler, capfd):
    compiler.set(fail="tensorflow_xla.cc")
    library = op.build()
    assert not op.has_xla(library)
    assert "jit_compile" in capfd.readouterr().err
    assert op.build() == library
    (link,) = (call for call in compiler.calls if "-shared" in call)
    assert "tensorflow_xla" not in link
    # Once it does compile, that library is preferred.
    compiler.set(fail="nothing")
    os.utime(library, (0, 0))
    complete = op.build(force=True)
    assert op.has_xla(complete)
    assert op.build() == complete


def test_other_sources_flags_tensorflow_or_compiler_are_compiled_anew(cache, compiler, tmp_path, monkeypatch):
    libraries = [op.build()]
    compiler.set(version="2.0")
    libraries.append(op.build())
    monkeypatch.setattr(tf.version, "GIT_VERSION", "another commit")
    op.make_recipe.cache_clear()
    libraries.append(op.build())
    flags = tf.sysconfig.get_compile_flags()
    monkeypatch.setattr(tf.sysconfig, "get_compile_flags", lambda: [*flags, "-DSOMETHING"])
    op.make_recipe.cache_clear()
    libraries.append(op.build())
    sources = tmp_path / "native"
    shutil.copytree(native_folder(), sources)
    with (sources / "bridges" / "tensorflow_geometry.h").open("a") as header:
        header.write("// changed\n")
    monkeypatch.setattr(op, "native_folder", lambda: sources)
    op.make_recipe.cache_clear()
    libraries.append(op.build())
    assert len(set(libraries)) == len(libraries) == compiler.links
    compiler.set(version="1.0")
    assert op.build() not in libraries


def test_place_of_tensorflow_does_not_matter(cache, compiler, monkeypatch):
    library = op.build()
    flags = [f.replace("-I", "-I/elsewhere") for f in tf.sysconfig.get_compile_flags()]
    monkeypatch.setattr(tf.sysconfig, "get_compile_flags", lambda: flags)
    monkeypatch.setattr(tf.sysconfig, "get_include", lambda: "/elsewhere")
    op.make_recipe.cache_clear()
    assert op.build() == library


def test_prebuilt_folder_comes_first_and_needs_no_compiler(cache, compiler, tmp_path, monkeypatch):
    library = op.build()
    prebuilt = tmp_path / "prebuilt"
    cache.rename(prebuilt)
    monkeypatch.setenv("KERAS_TUNEDCONV_PREBUILT", str(prebuilt))
    compiler.set(version="2.0")
    assert op.build() == prebuilt / library.relative_to(cache)
    monkeypatch.setenv("CXX", str(tmp_path / "missing"))
    assert op.build() == prebuilt / library.relative_to(cache)
    assert compiler.links == 1
    assert not cache.exists()


def test_cache_needs_no_compiler(cache, compiler, tmp_path, monkeypatch):
    library = op.build()
    monkeypatch.setenv("CXX", str(tmp_path / "missing"))
    assert op.build() == library
    with pytest.raises(BuildError, match="no C"):
        op.build(force=True)


def test_cache_that_cannot_be_written(cache, compiler):
    cache.write_text("a file where the folder should be")
    with pytest.raises(BuildError, match=r"cannot be used.*KERAS_TUNEDCONV_CACHE"):
        op.build()


def test_waiting_for_the_lock_ends(cache, compiler, monkeypatch, capfd):
    cache.mkdir()
    monkeypatch.setattr(op, "LOCK_SECONDS", 0.1)
    with (
        FileLock(cache / f"{op.make_recipe().name}.lock"),
        pytest.raises(BuildError, match="has held"),
    ):
        op.build()
    assert "waiting for another process" in capfd.readouterr().err
    assert compiler.calls == []


# ---- several processes ----------------------------------------------------------------------------------

_BUILD = "from keras_tunedconv.bridges.tensorflow.build import build; print(build())"


def _start_build() -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", _BUILD],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        cwd=Path(__file__).parents[2],
    )


def test_two_processes_at_once(cache, compiler):
    compiler.set(slow="1")
    processes = [_start_build() for _ in range(2)]
    answers = [process.communicate(timeout=250)[0].strip() for process in processes]
    assert answers[0] == answers[1]
    assert Path(answers[0]).read_text() == "made\n"
    assert compiler.links == 1


def test_killed_while_compiling(cache, compiler):
    compiler.set(slow="280")
    process = _start_build()
    deadline = time.monotonic() + 250
    while not compiler.calls and time.monotonic() < deadline:
        time.sleep(0.05)
    assert compiler.calls, process.communicate()
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert not list(cache.rglob("*.so"))
    compiler.set(slow="0")
    library = op.build()
    assert library.read_text() == "made\n"
    assert _left(cache) == [library.parent.name, f"{library.parent.name}/{library.name}"]


# ---- the real thing -------------------------------------------------------------------------------------

_USE = """
import warnings
import numpy as np, tensorflow as tf
from keras_tunedconv.bridges import convolution
from keras_tunedconv.core.errors import TuningWarning

results = {}
def conv(x, name):
    results[name] = convolution(x, tf.ones((3, 3, 2, 4)), strides=(1, 1), padding="valid",
                                data_format="channels_last", dilation_rate=(1, 1), groups=1)
    return x if results[name] is None else results[name]

x = tf.ones((1, 4, 4, 2))
np.testing.assert_array_equal(tf.function(lambda x: conv(x, "graph"))(x), np.full((1, 2, 2, 4), 18.0))
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    tf.function(lambda x: conv(x, "xla"), jit_compile=True)(x)
assert results["graph"] is not None and results["xla"] is None
assert any(w.category is TuningWarning and "without XLA" in str(w.message) for w in told)
"""


@pytest.mark.slow
def test_library_without_xla_kernels(cache, monkeypatch):
    if find_compiler() is None:
        pytest.skip("needs a C++ compiler")
    monkeypatch.setattr(op, "_XLA_SOURCES", ("tensorflow_there_is_no_such_file.cc",))
    library = op.build()
    assert not op.has_xla(library)
    # In a process of its own: an op can be registered only once.
    subprocess.run([sys.executable, "-c", _USE], check=True, cwd=Path(__file__).parents[2])
