"""How long a device was busy with each of XLA's modules, from a trace of JAX's profiler."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

# Ends of spans are given to the nanosecond; nearer ones than this, in microseconds, meet.
_RESOLUTION = 1e-3


def read(folder: Path) -> dict[str, Any]:
    """The trace that `jax.profiler` has left in a folder.

    Raises:
        RuntimeError: there is none.
    """
    files = sorted(folder.rglob("*.trace.json.gz"))
    if not files:
        raise RuntimeError(f"JAX's profiler left no *.trace.json.gz in {folder}")
    trace: dict[str, Any] = json.loads(gzip.decompress(files[-1].read_bytes()))
    return trace


def run_seconds(trace: dict[str, Any], modules: Iterable[str], runs: int) -> dict[str, list[float]]:
    """Seconds in which the device was busy with each run of some modules.

    Args:
        trace: A trace in Chrome's format, as `read` gives it.
        modules: Names of modules; those that the trace does not tell of are not in the answer.
        runs: How often each was run, one run after another.

    Returns:
        Module to one number a run; where kernels cannot be told apart by runs, to their mean alone.
    """
    threads = _thread_names(trace)
    events = [
        event for event in trace["traceEvents"] if event.get("ph") == "X" and "hlo_module" in _args(event)
    ]
    if any(_is_stream(event, threads) for event in events):
        # Other lines of a GPU sum up what its streams show.
        events = [event for event in events if _is_stream(event, threads)]
    found = {}
    for module in modules:
        spans = _disjoint(
            (e["ts"], e["ts"] + e["dur"]) for e in events if "dur" in e and _module_of(e) == module
        )
        seconds = [(end - start) * 1e-6 for start, end in spans]
        if seconds:
            found[module] = _by_run(seconds, runs)
    return found


def _args(event: dict[str, Any]) -> dict[str, Any]:
    args: dict[str, Any] = event.get("args") or {}
    return args


def _module_of(event: dict[str, Any]) -> str:
    """The name without the number that some versions add in brackets."""
    return str(_args(event)["hlo_module"]).partition("(")[0]


def _thread_names(trace: dict[str, Any]) -> dict[tuple[Any, Any], str]:
    return {
        (event.get("pid"), event.get("tid")): str(_args(event).get("name", ""))
        for event in trace["traceEvents"]
        if event.get("ph") == "M" and event.get("name") == "thread_name"
    }


def _is_stream(event: dict[str, Any], threads: dict[tuple[Any, Any], str]) -> bool:
    return threads.get((event.get("pid"), event.get("tid")), "").startswith("Stream")


def _disjoint(spans: Iterable[tuple[float, float]]) -> Iterator[tuple[float, float]]:
    """Spans of time joined where they overlap, in order."""
    last: tuple[float, float] | None = None
    for start, end in sorted(spans):
        if last is not None and start < last[1] - _RESOLUTION:
            last = (last[0], max(last[1], end))
            continue
        if last is not None:
            yield last
        last = (start, end)
    if last is not None:
        yield last


def _by_run(seconds: list[float], runs: int) -> list[float]:
    if len(seconds) % runs:
        return [sum(seconds) / runs]
    length = len(seconds) // runs
    return [sum(seconds[i : i + length]) for i in range(0, len(seconds), length)]
