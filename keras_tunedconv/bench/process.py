"""Fresh processes, which several benchmarks run."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

_LAST_LINES = 30


def run(
    command: Sequence[str],
    name: str,
    *,
    variables: Mapping[str, str] | None = None,
    answer: Path | None = None,
) -> str:
    """Run a command to its end.

    Args:
        command: Program and arguments.
        name: What the message of an error calls it.
        variables: Its whole environment; this process's unless given.
        answer: A file that it has to leave.

    Returns:
        What it wrote on standard output.

    Raises:
        RuntimeError: it failed, or left no answer; the message ends with what it wrote.
    """
    process = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    if process.returncode != 0 or not (answer is None or answer.exists()):
        tail = "\n".join((process.stdout + process.stderr).splitlines()[-_LAST_LINES:])
        raise RuntimeError(f"{name} ended with status {process.returncode}:\n{tail}")
    return process.stdout
