"""Timing the directions of a problem against the peers that are here."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, TypeVar

import numpy as np

from keras_tunedconv.bench.conv import relative_difference
from keras_tunedconv.bench.peers.contender import Contender, LeftOutError
from keras_tunedconv.bench.peers.memory import Memory
from keras_tunedconv.bench.peers.operands import draw
from keras_tunedconv.bench.peers.own import OwnCall
from keras_tunedconv.bench.peers.result import DEFAULT, PEERS, TORCH, TORCH_BENCHMARK, TUNED, TURNS, XLA, Row
from keras_tunedconv.bench.peers.torch_peer import TorchPeer, computes_the_same
from keras_tunedconv.bench.peers.xla_peer import XlaPeer
from keras_tunedconv.bench.problem import Problem
from keras_tunedconv.bench.timing import Timing, take_turns
from keras_tunedconv.core.descriptor import Direction

# Samples of each contender, in turn, and runs of a sample: as many as a GPU is held up for.
ROUNDS, REPEATS = 9, 10
_WARM_RUNS = 3
# What a contender may raise that cannot run a problem; the core's errors are RuntimeErrors.
_FAILURES = (RuntimeError, ValueError, TypeError, MemoryError)

Answer = TypeVar("Answer")


class PeerTimer:
    """Times this package, its library's first choice, torch and XLA; a `run.Timer`.

    Args:
        memory: The device.
        filter_layout: The order of the filter that this package and XLA are given: `"ohwi"`, `"hwio"` or
            `"oihw"`. torch has its own.
        peers: Which of `result.PEERS` take part. Those that cannot do not; `absent` says why.
    """

    def __init__(self, memory: Memory, filter_layout: str, peers: Iterable[str] = PEERS) -> None:
        self._memory, self._filter_layout, self._peers = memory, filter_layout, set(peers)
        self.absent: dict[str, str] = {}
        if memory.device != "cuda" and TORCH_BENCHMARK in self._peers:
            self._leave_out({TORCH_BENCHMARK}, "what torch benchmarks is cuDNN's plans")
        self._torch: TorchPeer | None = self._find({TORCH, TORCH_BENCHMARK}, "torch", TorchPeer)
        self._xla: XlaPeer | None = self._find({XLA}, "jax", lambda: XlaPeer(memory.device))

    def _find(self, names: set[str], module: str, make: Callable[[], Any]) -> Any:
        """What runs some of the peers, where one of them is to take part and can."""
        wanted = self._peers & names
        if not wanted:
            return None
        if importlib.util.find_spec(module) is None:
            return self._leave_out(wanted, f"{module} is not installed")
        try:
            return make()
        except LeftOutError as error:
            return self._leave_out(wanted, str(error))

    def _leave_out(self, names: set[str], reason: str) -> None:
        self.absent |= dict.fromkeys(sorted(names), reason)
        self._peers -= names

    # ---- one problem after another ----

    def begin(self, problem: Problem) -> None:
        """Draw a problem's operands, and forget the last one's."""
        self._operands = draw(problem, self._filter_layout, self._memory)
        self._compiled: list[Row] = []
        if self._xla is not None:
            self._xla.forget()

    def time(self, row: Row) -> None:
        """Tune a direction, have XLA compile it, and time all but XLA in turn."""
        contenders: dict[str, Contender] = {}
        own: np.ndarray[Any, Any] | None = None
        for name, make in self._makers(row):
            contender = _attempt(row, name, partial(_prepare, make))
            if contender is None:
                continue
            contenders[name] = contender
            if name == TUNED:
                own = contender.read(contender.run())
            elif own is not None and row.difference is None and self._is_expected(row, name):
                row.difference = relative_difference(own, contender.read(contender.run()))
        self._compile(row, own)
        samplers = {name: contender.sample for name, contender in contenders.items()}
        timings = _attempt(row, TURNS, lambda: take_turns(samplers, rounds=ROUNDS, repeats=REPEATS))
        for name, timing in (timings or {}).items():
            _enter(row, name, timing)

    def end(self) -> None:
        """Time what XLA has compiled of the problem."""
        if self._xla is None or not self._compiled:
            return
        seconds: dict[Direction, list[float]] = {}
        reason = "the profiler's trace tells nothing of it"
        try:
            seconds = self._xla.measure()
        except _FAILURES as error:
            reason = _first_line(error)
        for row in self._compiled:
            if row.direction in seconds:
                _enter(row, XLA, Timing(seconds[row.direction]))
            else:
                row.left_out[XLA] = reason

    # ---- contenders ----

    def _makers(self, row: Row) -> Iterator[tuple[str, Callable[[], Contender]]]:
        operands, direction = self._operands, row.direction
        call = OwnCall(operands, direction)
        yield TUNED, lambda: _tuned(row, call)
        yield DEFAULT, lambda: _default(row, call)
        torch = self._torch
        if torch is not None and TORCH in self._peers:
            yield TORCH, lambda: torch.heuristics(operands, direction)
        if torch is not None and TORCH_BENCHMARK in self._peers:
            yield TORCH_BENCHMARK, lambda: torch.benchmark(operands, direction)

    def _is_expected(self, row: Row, name: str) -> bool:
        """Whether a contender is a peer that computes what tuned has to."""
        return name in PEERS and computes_the_same(self._operands.descriptor(row.direction))

    def _compile(self, row: Row, own: np.ndarray[Any, Any] | None) -> None:
        """Have XLA compile a direction, and compare what it computes if nobody else has."""
        xla, operands = self._xla, self._operands
        if xla is None:
            return
        output = _attempt(row, XLA, lambda: xla.prepare(operands, row.direction))
        if output is None:
            return
        self._compiled.append(row)
        if own is not None and row.difference is None:
            row.difference = relative_difference(own, xla.read(operands, row.direction, output))


def _tuned(row: Row, call: OwnCall) -> Contender:
    record = call.tune()
    row.algorithm, row.workspace_bytes = record.algorithm, record.workspace_bytes
    row.tuning_seconds = record.tuning_seconds
    row.candidates_tried, row.candidates_total = record.candidates_tried, record.candidates_total
    return call.tuned()


def _default(row: Row, call: OwnCall) -> Contender:
    row.default_algorithm = call.default()
    return call.forced(row.default_algorithm)


def _prepare(make: Callable[[], Contender]) -> Contender:
    """A contender that has run before."""
    contender = make()
    contender.run()
    contender.sample(_WARM_RUNS)
    return contender


def _attempt(row: Row, name: str, function: Callable[[], Answer]) -> Answer | None:
    """What a function gives, or `None` where it fails; the row then says why."""
    try:
        return function()
    except _FAILURES as error:
        row.left_out[name] = _first_line(error)
        return None


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), "") or type(error).__name__


def _enter(row: Row, name: str, timing: Timing) -> None:
    row.seconds[name], row.spread[name] = timing.median, timing.spread
