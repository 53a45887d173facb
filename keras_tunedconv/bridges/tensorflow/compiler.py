"""The C++ compiler, and one library made by it."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from keras_tunedconv.core.errors import TunedConvError

_NAMES = ("g++", "clang++", "c++")
_COMPILE_SECONDS = 1800.0
_MESSAGE_LINES = 12


class BuildError(TunedConvError):
    """The op library could not be made. `reason` says why, `hint` how to go on."""

    def __init__(self, reason: str, hint: str) -> None:
        super().__init__(f"{reason}. {hint}")
        self.reason = reason
        self.hint = hint


@dataclass(frozen=True)
class Compiler:
    """A C++ compiler: the words of its command, and the line by which it names itself."""

    command: tuple[str, ...]
    identity: str


def find_compiler() -> Compiler | None:
    """The compiler named by `CXX`, else the first of g++, clang++ and c++ that runs."""
    chosen = os.environ.get("CXX")
    for words in [tuple(shlex.split(chosen))] if chosen else [(name,) for name in _NAMES]:
        if not words or shutil.which(words[0]) is None:
            continue
        try:
            answer = subprocess.run(
                [*words, "--version"], check=False, capture_output=True, text=True, timeout=60
            )
        except (OSError, subprocess.SubprocessError):
            continue
        if answer.returncode == 0 and answer.stdout.strip():
            return Compiler(words, answer.stdout.splitlines()[0].strip())
    return None


def compile_library(
    compiler: Compiler,
    sources: Sequence[Path],
    optional: Sequence[Path],
    compile_flags: Sequence[str],
    link_flags: Sequence[str],
    folder: Path,
) -> tuple[Path, str]:
    """Compile sources at once, a process each, and link them into a shared library.

    Args:
        compiler: Who compiles.
        sources: Files without which there is no library.
        optional: Files that are left out where they do not compile.
        compile_flags: Flags of each compilation.
        link_flags: Flags of the link.
        folder: Where everything is written.

    Returns:
        The library, and what the compiler said of the optional files that were left out (`""`: all are in).

    Raises:
        BuildError: a compilation or the link failed; the message holds the compiler's first lines.
    """
    running = {
        source: _start(
            [*compiler.command, *compile_flags, "-c", str(source), "-o", f"{source.stem}.o"],
            folder,
            source.stem,
        )
        for source in (*sources, *optional)
    }
    left_out = ""
    try:
        for source in (*sources, *optional):
            failure = _finish(running[source], folder, source.stem)
            if failure and source in optional:
                left_out += f"{source.name}: {failure}\n"
            elif failure:
                raise BuildError(f"compiling {source.name} failed:\n{failure}\n", _hint(compiler))
    finally:
        for process in running.values():
            if process.poll() is None:
                process.kill()
                process.wait()
    objects = [f"{source.stem}.o" for source in running if (folder / f"{source.stem}.o").exists()]
    library = folder / "library.so"
    link = [*compiler.command, "-shared", *objects, "-o", library.name, *link_flags]
    if failure := _finish(_start(link, folder, "link"), folder, "link"):
        raise BuildError(f"linking the op library failed:\n{failure}\n", _hint(compiler))
    return library, left_out


def _start(command: Sequence[str], folder: Path, name: str) -> subprocess.Popen[bytes]:
    with (folder / f"{name}.log").open("wb") as log:
        try:
            return subprocess.Popen(
                command,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "LC_ALL": "C"},
            )
        except OSError as error:
            raise BuildError(
                f"{command[0]} could not be started ({error})", "Name a C++ compiler in CXX."
            ) from error


def _finish(process: subprocess.Popen[bytes], folder: Path, name: str) -> str:
    """Wait; `""`, or the first lines that matter of what the compiler said."""
    start = time.monotonic()
    try:
        code = process.wait(timeout=_COMPILE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return f"stopped after {time.monotonic() - start:.0f} s"
    if code == 0:
        return ""
    lines = (folder / f"{name}.log").read_text(errors="replace").splitlines()
    telling = [line for line in lines if "error" in line.lower() or "undefined" in line] or lines
    return "\n".join([f"exit status {code}", *telling[:_MESSAGE_LINES]])


def _hint(compiler: Compiler) -> str:
    return (
        f"The compiler is {compiler.identity} (CXX names another); `keras-tunedconv build` tries again, and "
        "KERAS_TUNEDCONV_PREBUILT can name a folder with a library built elsewhere for the same TensorFlow."
    )
