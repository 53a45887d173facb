"""What the tools around training take: warming a model up within a budget, and listing a large file."""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypedDict

from keras_tunedconv.bench import process
from keras_tunedconv.core.descriptor import DIRECTIONS, forward_descriptor
from keras_tunedconv.core.record import Record
from keras_tunedconv.tuning import database

_WARM_UP = """
import dataclasses, json, sys, time
import keras_tunedconv
from keras_tunedconv.bench import models
name, size, batches, budget = sys.argv[1:]
model = keras_tunedconv.to_tuned(models.build(name, int(size)))
start = time.perf_counter()
done = keras_tunedconv.warm_up(model, list(map(int, batches.split(","))), budget=float(budget), show=False)
print(json.dumps({**dataclasses.asdict(done), "seconds": time.perf_counter() - start}))
"""


class WarmUpReport(TypedDict):
    """A warm-up of a model in a fresh process."""

    backend: str
    model: str
    batches: list[int]
    budget_seconds: float
    seconds: float
    measured: int
    left: int


class InspectReport(TypedDict):
    """`keras-tunedconv inspect` of a database, median of fresh processes."""

    entries: int
    bytes: int
    seconds: float


def warm_up(model: str, batches: Sequence[int], *, budget: float, size: int = 224) -> WarmUpReport:
    """Warm a model up at some batch sizes within a budget, under KERAS_BACKEND.

    Args:
        model: One of `models.MODELS`.
        batches: Batch sizes.
        budget: Seconds for everything.
        size: Height and width of the images.

    Raises:
        RuntimeError: the process failed; the message ends with what it wrote.
    """
    arguments = [model, str(size), ",".join(map(str, batches)), str(budget)]
    done = json.loads(_run([sys.executable, "-c", _WARM_UP, *arguments]).splitlines()[-1])
    return WarmUpReport(
        backend=os.environ.get("KERAS_BACKEND", ""),
        model=model,
        batches=list(batches),
        budget_seconds=budget,
        seconds=done["seconds"],
        measured=done["measured"],
        left=done["left"],
    )


def inspect(entries: int = 10_000, *, rounds: int = 5) -> InspectReport:
    """List a database of many entries.

    Args:
        entries: How many it has.
        rounds: How many processes.

    Raises:
        RuntimeError: a process failed; the message ends with what it wrote.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "tuning.h5"
        database.merge_into(file, many_records(entries))
        seconds = []
        for _ in range(rounds):
            start = time.perf_counter()
            _run([sys.executable, "-m", "keras_tunedconv.cli.main", "inspect", str(file)])
            seconds.append(time.perf_counter() - start)
        return InspectReport(entries=entries, bytes=file.stat().st_size, seconds=statistics.median(seconds))


def many_records(count: int) -> list[Record]:
    """Records as tuning makes them, of different convolutions in two environments."""
    template = Record(
        key="",
        environment="",
        algorithm="onednn:jit:avx512_core#0/plain",
        runner_up="onednn:brgconv:avx512_core#0/strict",
        created=1_700_000_000,
        time_seconds=1.25e-3,
        default_seconds=2.5e-3,
        spread=0.02,
        tuning_seconds=0.4,
        candidates_tried=7,
        candidates_total=9,
    )
    records: list[Record] = []
    while len(records) < count:
        number = len(records) // len(DIRECTIONS)
        channels, batch = 8 + number % 512, 1 + number // 512
        forward = forward_descriptor((batch, 56, 56, channels), (3, 3, channels, 64), padding="same")
        environment = f"engine=onednn;version=3.2;runtime=openmp;cpu=a CPU;isa=avx2;threads={2 + number % 2}"
        records += [
            replace(template, key=forward.with_direction(direction).key, environment=environment)
            for direction in DIRECTIONS
        ]
    return records[:count]


def _run(command: Sequence[str]) -> str:
    return process.run(command, f"`{command[0]} {command[1]}`")
