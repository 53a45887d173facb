"""Programs that are run as several processes at once, which tests of training in parallel need."""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
import sys
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

TIMEOUT = 240


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens at, and that the system gives nobody who asks for any."""
    first_given = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    candidates = list(range(max(first_given - 10_000, 1024), first_given))
    random.Random(os.getpid()).shuffle(candidates)
    found: list[int] = []
    with ExitStack() as probes:
        for port in candidates:
            with suppress(OSError):
                probes.enter_context(socket.socket()).bind(("127.0.0.1", port))
                found.append(port)
            if len(found) == count:
                return found
    raise RuntimeError(f"expected {count} free ports, found {found}")


def start(program: str, *arguments: Any, **environment: str) -> subprocess.Popen[str]:
    """Start a program; ranks share the machine's few cores, and wait long for what another one measures."""
    defaults = {
        "KERAS_TUNEDCONV_KEY_BUDGET": "20",
        "KERAS_TUNEDCONV_PROCESS_BUDGET": "200",
        "OMP_NUM_THREADS": "1",
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }
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
