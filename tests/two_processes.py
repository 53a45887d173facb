"""Programs that are run as several processes at once, which tests of training in parallel need."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from typing import Any

TIMEOUT = 240


def free_port() -> int:
    """A port that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start(program: str, *arguments: Any, **environment: str) -> subprocess.Popen[str]:
    """Start a program; measuring is short, and ranks share the machine's few cores."""
    defaults = {"KERAS_TUNEDCONV_KEY_BUDGET": "0.05", "OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    return subprocess.Popen(
        [sys.executable, "-c", program, *map(str, arguments)],
        env=os.environ | defaults | environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def results(processes: list[subprocess.Popen[str]]) -> list[Any]:
    """What each process printed last, as JSON; none is waited for longer than `TIMEOUT`."""
    try:
        outputs = [process.communicate(timeout=TIMEOUT) for process in processes]
    finally:
        for process in processes:
            process.kill()
    for process, (_, errors) in zip(processes, outputs, strict=True):
        assert process.returncode == 0, errors[-4000:]
    return [json.loads(output.splitlines()[-1]) for output, _ in outputs]
