"""Which oneDNN library is opened, and how it lives in a process: each test in a process of its own."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import textwrap
from pathlib import Path

import pytest
from engines.onednn_process import run_python

from keras_tunedconv.core import engines
from keras_tunedconv.core.errors import UnavailableError

try:
    engines.ensure_open("cpu")
except UnavailableError as error:
    pytest.skip(str(error), allow_module_level=True)


def library_path() -> Path:
    found = [path for path in engines.library_paths("onednn") if path.exists()]
    if not found:
        pytest.skip("oneDNN comes from the system here")
    return found[0]


@pytest.fixture
def compile_library(tmp_path):
    """Compiles C source to a shared library and gives its path."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")

    def compile_source(source: str) -> Path:
        code, library = tmp_path / "fake.c", tmp_path / "libfake.so"
        code.write_text(textwrap.dedent(source))
        subprocess.run([compiler, "-shared", "-fPIC", "-o", library, code], check=True)
        return library

    return compile_source


OPEN = """
    from keras_tunedconv.core.errors import UnavailableError
    try:
        engines.open_engine("onednn", [Path(PATH)])
    except UnavailableError as error:
        print(error)
    else:
        print("opened", engines.describe("onednn"))
"""


def open_only(path: Path | str) -> str:
    """What opening the engine from one file says."""
    return run_python(f"PATH = {str(path)!r}\n" + textwrap.dedent(OPEN))


def test_environment_and_description():
    pattern = (
        r"engine=onednn;version=3\.\d+;runtime=(openmp|tbb|sequential);cpu=[^|;\n]+ \d+\.\d+\.\d+"
        r";isa=\w+;threads=(\d+);~patch=\d+"
    )
    match = re.fullmatch(pattern, engines.environment("cpu"))
    assert match
    assert "  " not in match.group(0)
    assert re.fullmatch(r"oneDNN 3\.\d+\.\d+ \(\w+ threads\), .*libdnnl\.so\.3.*", engines.describe("onednn"))


@pytest.mark.parametrize("threads", ["1", "2"])
def test_thread_limit_of_the_user(threads):
    output = run_python("check(); print(engines.environment('cpu'))", OMP_NUM_THREADS=threads)
    assert output.strip().endswith(f";threads={threads};~patch=0")


def test_float32_stays_float32_whatever_the_library_defaults_to():
    run_python("check()", ONEDNN_DEFAULT_FPMATH_MODE="ANY")


def test_missing_library_says_how_to_get_it():
    output = open_only("/nowhere/libdnnl.so.3")
    if output.startswith("opened"):
        pytest.skip("the system has a oneDNN library of its own")
    assert "/nowhere/libdnnl.so.3" in output
    assert "pip install onednn-cpu-gomp" in output
    assert "KERAS_TUNEDCONV_ONEDNN" in output


def test_library_that_lacks_a_function_names_it(compile_library):
    output = open_only(compile_library("int dnnl_get_effective_cpu_isa(void) { return 0; }"))
    assert "dnnl_version" in output
    assert "libfake.so" in output


def test_library_of_another_version_is_refused(compile_library):
    header = (Path(__file__).parents[2] / "cffi_build/engines/onednn/onednn.h").read_text()
    names = set(re.findall(r"^ +X\((\w+)\)", header, re.MULTILINE))
    assert "primitive_execute" in names
    stubs = "\n".join(f"int dnnl_{name}(void) {{ return 0; }}" for name in names - {"version"})
    version = """
        struct { int version[3]; const char *hash; unsigned runtimes[2]; } version = {{2, 6, 3}, "", {2, 0}};
        void *dnnl_version(void) { return &version; }
    """
    output = open_only(compile_library(stubs + textwrap.dedent(version)))
    assert "is oneDNN 2.6.3, expected 3.2 or a newer 3.x" in output


def test_first_good_file_is_taken():
    script = f"""
    engines.open_engine("onednn", [Path("/nowhere/libdnnl.so.3"), Path({str(library_path())!r})])
    check()
    """
    run_python(script)


def test_copy_in_the_process_is_used():
    path = library_path()
    script = f"""
    import ctypes
    ctypes.CDLL({str(path)!r})
    engines.open_engine("onednn", [Path("/nowhere/libdnnl.so.3")])
    check()
    assert len(libraries("libdnnl")) == 1, libraries("libdnnl")
    print(engines.describe("onednn"))
    """
    assert str(path) in run_python(script)


def test_engine_can_be_closed_and_opened_again():
    script = """
    import time
    check()
    for _ in range(3):
        before = len(os.listdir("/proc/self/task"))
        assert lib.tc_engine_close(b"onednn") == lib.TC_OK
        assert not lib.tc_engine_is_open(b"onednn")
        check()
        end = time.monotonic() + 200
        while len(os.listdir("/proc/self/task")) > before:  # one that has ended may be listed a little longer
            assert time.monotonic() < end, "threads are left"
            time.sleep(0.01)
    """
    run_python(script)


@pytest.mark.slow
@pytest.mark.parametrize("framework", ["tensorflow", "torch"])
def test_library_binds_to_its_own_symbols(framework, tmp_path):
    """TensorFlow has another oneDNN and other instances of libstdc++'s templates in the global scope."""
    if importlib.util.find_spec(framework) is None:
        pytest.skip(f"{framework} is not installed")
    path = library_path()
    run_python(
        f"import {framework}\ncheck()\n", LD_DEBUG="bindings", LD_DEBUG_OUTPUT=str(tmp_path / "bindings")
    )
    targets = set()
    for log in tmp_path.glob("bindings.*"):
        with log.open(errors="replace") as lines:
            for line in lines:
                match = re.search(r"binding file (\S+) \[\d+\] to (\S+) \[\d+\]", line)
                if match and Path(match.group(1)).name == path.name:
                    targets.add(Path(match.group(2)).name)
    assert path.name in targets
    foreign = {name for name in targets if "tensorflow" in name or "torch" in name}
    assert not foreign
