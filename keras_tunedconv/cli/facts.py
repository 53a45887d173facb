"""What `doctor` reports: each function gathers one part as plain data and never raises."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path
from typing import Any

import keras_tunedconv
from keras_tunedconv.bench import machine
from keras_tunedconv.cli import probe

BACKENDS = ("tensorflow", "jax", "torch")
_ENGINE_LIBRARY = {
    "onednn": ("cpu", "onednn-cpu-gomp", ("onednn-cpu-gomp",)),
    "cudnn": ("cuda", "nvidia-cudnn-cu12", ("nvidia-cudnn-cu12", "nvidia-cudnn-cu13")),
}

_NEEDS_CORE = "needs the compiled core"


def gather(*, check: bool = False) -> dict[str, Any]:
    """Everything.

    Args:
        check: Whether to run a convolution under each installed backend, which takes some seconds each.

    Returns:
        Plain data: `package`, `machine`, `core`, `engines`, `compilers`, `backends`, `folders`,
        `search_path`, `settings` and `missing`, a list of what is missing with the command that brings it.
    """
    core = probe.run("core")
    usable = "problem" not in core
    with ThreadPoolExecutor(max_workers=2) as pool:
        engines = pool.map(lambda name: engine(name, usable), _ENGINE_LIBRARY)
        backends = pool.map(lambda name: backend(name, usable, check=check), BACKENDS)
        facts: dict[str, Any] = {
            "package": package(),
            "machine": machine.describe() | {"gpus": gpus()},
            "core": core,
            "engines": list(engines),
            "compilers": compilers(),
            "backends": list(backends),
            "active_backend": active_backend(),
            "folders": folders(),
            "search_path": databases(),
            "settings": settings(),
        }
    facts["missing"] = missing(facts)
    return facts


def version(distribution: str) -> str | None:
    """Version of an installed distribution; `None` where it is not installed or its metadata is broken."""
    try:
        return metadata.version(distribution)
    except Exception:  # metadata may be damaged in any way
        return None


def package() -> dict[str, Any]:
    """This package and the Python that runs it."""
    return {
        "version": keras_tunedconv.__version__,
        "folder": str(Path(keras_tunedconv.__file__).parent),
        "keras": version("keras"),
        "python": f"{platform.python_version()} ({sys.executable})",
    }


def gpus() -> list[str]:
    """Names of the GPUs whose driver is loaded (Linux, NVIDIA)."""
    found = []
    for file in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information")):
        try:
            lines = file.read_text().splitlines()
        except OSError:
            continue
        found += [line.partition(":")[2].strip() for line in lines if line.startswith("Model:")]
    return found


def engine(name: str, core_usable: bool = True) -> dict[str, Any]:
    """An engine: whether it opens, with which library, and why with that one."""
    device, _, distributions = _ENGINE_LIBRARY[name]
    answer = probe.run("engine", name) if core_usable else {"problem": _NEEDS_CORE}
    found: dict[str, Any] = {"name": name, "device": device, **answer}
    if "library" in found:
        found["why"] = _why(name, Path(found["library"].rpartition(", ")[2]), distributions)
    return found


def _why(name: str, file: Path, distributions: tuple[str, ...]) -> str:
    variable = f"KERAS_TUNEDCONV_{name.upper()}"
    explicit = os.environ.get(variable)
    if explicit and _same(Path(explicit), file):
        return f"{variable} names it"
    for distribution in distributions:
        try:
            files = metadata.files(distribution) or []
        except metadata.PackageNotFoundError:
            continue
        if any(_same(Path(str(f.locate())), file) for f in files if f.name.startswith("lib")):
            return f"it is in the wheel {distribution} {version(distribution)}"
    if str(file).startswith(sys.prefix):
        return "it lies in this environment's lib folder"
    return "it is the one the system's loader finds"


def _same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False


def compilers() -> list[dict[str, Any]]:
    """C++ compilers that could build the TensorFlow op, in the order the build tries them."""
    found = []
    for name in filter(None, (os.environ.get("CXX"), "g++", "clang++", "c++")):
        path = shutil.which(name)
        if path is not None:
            found.append({"name": name, "path": path, "version": _first_line([path, "--version"])})
    return found


def _first_line(command: list[str]) -> str:
    try:
        output = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False).stdout
    except (OSError, subprocess.SubprocessError) as error:
        return f"does not run: {error}"
    return (output.splitlines() or ["prints no version"])[0]


def backend(name: str, core_usable: bool = True, *, check: bool) -> dict[str, Any]:
    """A Keras backend: its version and, where asked for, a convolution through its bridge."""
    found: dict[str, Any] = {"name": name, "version": version(name)}
    if name == "tensorflow" and found["version"] is None:
        found["version"] = version("tensorflow-cpu")
    if found["version"] is None:
        return found
    if not core_usable:
        return found | {"problem": _NEEDS_CORE}
    if name == "tensorflow":
        found["op"] = probe.run("tensorflow_op")
    # Running it would build the op, which is not for a diagnosis to do.
    if check and found.get("op", {"built": True}).get("built"):
        found["check"] = probe.run("backend", environment={"KERAS_BACKEND": name})
    return found


def active_backend() -> str:
    """The backend Keras would take in a new process, as it decides without being imported."""
    name = os.environ.get("KERAS_BACKEND")
    if name:
        return f"{name} (KERAS_BACKEND)"
    file = Path(os.environ.get("KERAS_HOME") or Path.home() / ".keras") / "keras.json"
    try:
        return f"{json.loads(file.read_text())['backend']} ({file})"
    except (OSError, ValueError, KeyError, TypeError):
        return "tensorflow (Keras's default)"


def settings() -> dict[str, str]:
    """Variables that change what the package does."""
    names = ("OMP_NUM_THREADS", "KERAS_BACKEND", "CUDA_VISIBLE_DEVICES", "XLA_FLAGS")
    return {k: v for k, v in sorted(os.environ.items()) if k.startswith("KERAS_TUNEDCONV_") or k in names}


def missing(facts: dict[str, Any]) -> list[dict[str, str]]:
    """What is missing for a tuned convolution, and the command that brings it."""
    found = []

    def add(what: str, command: str) -> None:
        found.append({"what": what, "command": command})

    if "problem" in facts["core"]:
        add(
            f"the compiled core: {facts['core']['problem']}",
            "pip install --force-reinstall --no-deps keras-tunedconv",
        )
    elif not facts["core"].get("xla_handler"):
        add(
            "the XLA handler (JAX, jit_compile)",
            "pip install --force-reinstall --no-binary :all: keras-tunedconv",
        )
    for one in facts["engines"]:
        wanted = one["device"] == "cpu" or facts["machine"]["gpus"]
        if "problem" in one and wanted and "problem" not in facts["core"]:
            add(
                f"the engine {one['name']}: {one['problem']}",
                f"pip install {_ENGINE_LIBRARY[one['name']][1]}",
            )
    if not any(one["version"] for one in facts["backends"]):
        add("a Keras backend", "pip install 'keras-tunedconv[tensorflow]'  # or [jax], [torch]")
    for one in facts["backends"]:
        found += _missing_of_backend(one, facts["compilers"])
    return found


def _missing_of_backend(one: dict[str, Any], compilers_found: list[Any]) -> list[dict[str, str]]:
    op = one.get("op", {})
    if op and not op.get("built"):
        if not compilers_found:
            return [{"what": "a C++ compiler for the TensorFlow op", "command": "apt-get install g++"}]
        return [{"what": f"the TensorFlow op: {op['problem']}", "command": "keras-tunedconv build"}]
    problem = one.get("check", {}).get("problem")
    if problem:
        command = f"KERAS_BACKEND={one['name']} python -m keras_tunedconv.cli.probe backend"
        return [{"what": f"a tuned convolution under {one['name']}: {problem}", "command": command}]
    return []


def folders() -> dict[str, dict[str, Any]]:
    """Folders the package writes to."""
    import platformdirs

    explicit = os.environ.get("KERAS_TUNEDCONV_CACHE")
    cache = Path(explicit).absolute() if explicit else platformdirs.user_cache_path("keras_tunedconv")
    found = {}
    for what, path in (("cache", cache),):
        parent = next(p for p in (path, *path.parents) if p.exists())
        found[what] = {
            "path": str(path),
            "exists": path.exists(),
            "writable": os.access(parent, os.W_OK),
            "bytes": sum(f.stat().st_size for f in path.rglob("*") if f.is_file()) if path.exists() else 0,
        }
    return found


def databases() -> dict[str, Any]:
    """Databases that models share: whether they are used, the user's folder, and what there is."""
    from keras_tunedconv.tuning import database, search_path

    found = []
    for source in search_path.sources():
        one: dict[str, Any] = {"path": str(source.path), "origin": source.origin}
        try:
            records = database.read(source.path).records
            one |= {"entries": len(records), "environments": len({r.environment for r in records})}
        except database.DatabaseError as error:
            one["problem"] = str(error)
        found.append(one)
    return {
        "on": search_path.is_on(),
        "user_folder": str(search_path.user_folder()),
        "databases": found,
    }
