"""The TensorFlow op library: compiled at first use, kept for every later process.

The library depends on TensorFlow's version, not on Python's. It is looked for in the folder that
`KERAS_TUNEDCONV_PREBUILT` names, beside the package's compiled core, and in the cache (the user's cache
folder, or `KERAS_TUNEDCONV_CACHE`); a prebuilt folder is a copy of a cache.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import platformdirs
import tensorflow as tf
from filelock import FileLock, Timeout

from keras_tunedconv.bridges.tensorflow.compiler import BuildError, Compiler, compile_library, find_compiler
from keras_tunedconv.core.library import native_folder

# A second process waits this long for the first one to finish compiling.
LOCK_SECONDS = 1200.0

# Without the native kernels there is no library; XLA's are left out where tf2xla does not compile.
_SOURCES = ("tensorflow_ops.cc", "tensorflow_kernels.cc")
_XLA_SOURCES = ("tensorflow_xla.cc",)
# Folders below TensorFlow's include folder that its own headers need but its flags leave out, by a header.
_EXTERNAL = {
    "external/highwayhash": "highwayhash/sip_hash.h",
    "external/farmhash_archive/src": "farmhash.h",
}
_WITHOUT_XLA = "-without-xla.so"


@dataclass(frozen=True)
class Recipe:
    """What the library is made from, apart from the compiler."""

    sources: tuple[Path, ...]
    xla_sources: tuple[Path, ...]
    compile_flags: tuple[str, ...]
    link_flags: tuple[str, ...]
    name: str  # of the folder that holds libraries made from it


def build(force: bool = False) -> Path:
    """The op library for the installed TensorFlow, compiled now if there is none yet.

    Compiling takes 40 to 60 seconds on two cores; a message on stderr says so first. Processes that ask at
    the same time wait for the one that compiles. A build that fails or is killed leaves nothing behind that
    a later one would take for a library.

    Args:
        force: Compile even where a library is there; the result replaces the one in the cache.

    Returns:
        The library's file. One whose name ends in `-without-xla.so` has no XLA kernels, since TensorFlow's
        XLA headers did not compile.

    Raises:
        BuildError: there is no compiler, or it failed, or another process held the lock for too long, or
            the cache folder cannot be written; the message says how to go on.
    """
    recipe = make_recipe()
    compiler = find_compiler()
    if not force and (found := find(recipe, compiler)) is not None:
        return found
    if compiler is None:
        raise BuildError(
            f"the op for TensorFlow {tf.__version__} has to be compiled and no C++ compiler was found",
            "Install one (`apt install g++`, `conda install gxx`) or name it in CXX; or name a folder with a "
            "library built elsewhere for the same TensorFlow in KERAS_TUNEDCONV_PREBUILT.",
        )
    cache = cache_folder()
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with _locked(cache / f"{recipe.name}.lock"):
            # Whoever held the lock before may have compiled it.
            if not force and (found := _newest(cache / recipe.name, compiler)) is not None:
                return found
            return _compile(recipe, compiler, cache)
    except OSError as error:
        raise BuildError(
            f"the cache folder {cache} cannot be used ({error})",
            "Name another one in KERAS_TUNEDCONV_CACHE.",
        ) from error


def cache_folder() -> Path:
    """Where compiled libraries are kept."""
    explicit = os.environ.get("KERAS_TUNEDCONV_CACHE")
    return Path(explicit).absolute() if explicit else Path(platformdirs.user_cache_dir("keras_tunedconv"))


def prebuilt_folders() -> list[Path]:
    """Where libraries that came ready-made are looked for, in order."""
    explicit = os.environ.get("KERAS_TUNEDCONV_PREBUILT")
    return [*([Path(explicit).absolute()] if explicit else []), native_folder() / "prebuilt"]


def find(recipe: Recipe, compiler: Compiler | None) -> Path | None:
    """A library that is there already: a ready-made one of any compiler, else one of this compiler.

    Without a compiler any library in the cache will do, since nothing better can be made.
    """
    for folder in prebuilt_folders():
        if (found := _newest(folder / recipe.name, None)) is not None:
            return found
    return _newest(cache_folder() / recipe.name, compiler)


@lru_cache(maxsize=1)
def make_recipe() -> Recipe:
    """Sources and flags for the TensorFlow in this process, and a name that changes with any of them."""
    native = native_folder()
    folder = native / "bridges"
    sources = tuple(folder / name for name in _SOURCES)
    xla_sources = tuple(folder / name for name in _XLA_SOURCES)
    include = Path(tf.sysconfig.get_include())
    flags = [
        "-O2",
        "-fPIC",
        "-DNDEBUG",
        *(f for f in tf.sysconfig.get_compile_flags() if not f.startswith("-I")),
    ]
    link = list(tf.sysconfig.get_link_flags())
    # XLA's builder is in a second library, which carries the same version suffix.
    link += [f.replace("tensorflow_framework", "tensorflow_cc") for f in link if "tensorflow_framework" in f]

    digest = hashlib.sha256()
    for text in (tf.version.GIT_VERSION, str(tf.sysconfig.CXX11_ABI_FLAG), platform.machine(), *flags):
        digest.update(text.encode() + b"\0")
    for file in sorted([*folder.glob("tensorflow_*"), native / "include" / "tunedconv.h"]):
        digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    # Folders differ from machine to machine while the library does not, so they stay out of the name.
    folders = [include, *_external_folders(include), native / "include", folder]
    return Recipe(
        sources=sources,
        xla_sources=xla_sources,
        compile_flags=(*flags, *(f"-I{folder}" for folder in folders)),
        link_flags=tuple(link),
        name=f"tensorflow-{tf.version.VERSION}-{digest.hexdigest()[:16]}",
    )


def _external_folders(include: Path) -> Iterator[Path]:
    for usual, header in _EXTERNAL.items():
        if (include / usual / header).is_file():
            yield include / usual
        elif (found := next((include / "external").rglob(header), None)) is not None:
            yield found.parents[len(Path(header).parts) - 1]


def _newest(folder: Path, compiler: Compiler | None) -> Path | None:
    libraries = sorted(folder.glob(f"{_stem(compiler)}*.so"), key=lambda file: file.stat().st_mtime)
    return libraries[-1] if libraries else None


def _stem(compiler: Compiler | None) -> str:
    return "" if compiler is None else hashlib.sha256(compiler.identity.encode()).hexdigest()[:16]


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        _say(f"waiting for another process that compiles the TensorFlow op (lock {path})")
        try:
            lock.acquire(timeout=LOCK_SECONDS)
        except Timeout:
            raise BuildError(
                f"another process has held {path} for {LOCK_SECONDS:.0f} s",
                "End it, or set KERAS_TUNEDCONV_CACHE to another folder.",
            ) from None
    try:
        yield
    finally:
        lock.release()


def _compile(recipe: Recipe, compiler: Compiler, cache: Path) -> Path:
    """Compile beside the final place, so that the rename at the end is within one file system."""
    # Only this recipe's lock holder makes such folders: what is there was left by one that was killed.
    for stale in cache.glob(f"{recipe.name}.build-*"):
        shutil.rmtree(stale, ignore_errors=True)
    start = time.monotonic()
    with (
        tempfile.TemporaryDirectory(
            prefix=f"{recipe.name}.build-", dir=cache, ignore_cleanup_errors=True
        ) as folder,
        _progress(
            f"compiling its op for TensorFlow {tf.version.VERSION}. This happens once for each TensorFlow "
            f"version and takes about 40 to 60 s on two cores and 2 GB of memory; it is kept in {cache}"
        ),
    ):
        library, left_out = compile_library(
            compiler,
            recipe.sources,
            recipe.xla_sources,
            recipe.compile_flags,
            recipe.link_flags,
            Path(folder),
        )
        target = cache / recipe.name / f"{_stem(compiler)}{_WITHOUT_XLA if left_out else '.so'}"
        target.parent.mkdir(exist_ok=True)
        library.replace(target)
    if left_out:
        _say(
            "TensorFlow's XLA headers did not compile, so the op runs without jit_compile and Keras's own "
            f"convolution runs with it:\n{left_out}"
        )
    _say(f"compiled {target} in {time.monotonic() - start:.0f} s")
    return target


def has_xla(library: Path) -> bool:
    """Whether a library that `build` returned has XLA kernels."""
    return not library.name.endswith(_WITHOUT_XLA)


def _say(text: str) -> None:
    print(f"keras_tunedconv: {text}", file=sys.stderr, flush=True)


@contextmanager
def _progress(text: str) -> Iterator[None]:
    """Says what is being waited for; with something that moves where there is a terminal."""
    if not sys.stderr.isatty():
        _say(text + " …")
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(f"keras_tunedconv: {text}"):
        yield
