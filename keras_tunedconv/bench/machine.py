"""A few lines that say what a benchmark ran on."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path

_DISTRIBUTIONS = (
    "keras-tunedconv",
    "keras",
    "tensorflow",
    "jax",
    "torch",
    "numpy",
    "onednn-cpu-gomp",
    "nvidia-cudnn-cu12",
    "nvidia-cudnn-cu13",
)


def cpu_count() -> int:
    """Number of CPUs this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cpu_name() -> str:
    """The CPU's model name as the system gives it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown"
    )


def instruction_set() -> str:
    """The widest vector instructions that matter to convolutions, from the CPU's flags."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return "unknown"
    line = next((line for line in text.splitlines() if line.startswith("flags")), "")
    flags = set(line.partition(":")[2].split())
    found = [name for name in ("amx_tile", "avx512_bf16", "avx512_vnni", "avx512f", "avx2") if name in flags]
    return ", ".join(found) or "none of AVX2, AVX-512, AMX"


def versions() -> dict[str, str]:
    """Versions of the installed distributions that decide the figures."""
    found = {}
    for name in _DISTRIBUTIONS:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def describe() -> dict[str, object]:
    """The machine and the software, for the head of a report."""
    return {
        "cpu": cpu_name(),
        "instruction_set": instruction_set(),
        "cpus": cpu_count(),
        "omp_num_threads": os.environ.get("OMP_NUM_THREADS", ""),
        "load_average": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "versions": versions(),
    }


def describe_line() -> str:
    """The same as one line."""
    facts = describe()
    software = ", ".join(f"{name} {version}" for name, version in versions().items())
    hardware = f"{facts['cpu']} ({facts['instruction_set']}), {facts['cpus']} CPUs"
    return f"{hardware}, Python {facts['python']}, {software}"
