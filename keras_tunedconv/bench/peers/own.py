"""This package's core as a contender, and what a call of it costs the host."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from keras_tunedconv.bench.peers.contender import Contender, LeftOutError
from keras_tunedconv.bench.peers.memory import Memory
from keras_tunedconv.bench.peers.operands import OUTPUTS, Operands, draw
from keras_tunedconv.bench.problem import parse
from keras_tunedconv.core import engines, registry
from keras_tunedconv.core.config import config
from keras_tunedconv.core.descriptor import Direction
from keras_tunedconv.core.errors import check
from keras_tunedconv.core.library import ffi, lib
from keras_tunedconv.core.override import override
from keras_tunedconv.core.record import Record

# Small enough that a GPU is done with a run before the host has queued the next.
_SMALL = "8,64,14,64,3,1,1,dtype=float16"
_CALLS, _TRIES = 100, 7


class OwnCall:
    """A call of the core on one direction of a problem's operands.

    Args:
        operands: The operands; what the direction computes is written elsewhere.
        direction: The direction.
    """

    def __init__(self, operands: Operands, direction: Direction) -> None:
        self._operands, self._direction = operands, direction
        self._memory = operands.memory
        self._output = operands.output(direction)
        arrays = {**operands.arrays, OUTPUTS[direction]: self._output}
        places = {name: ffi.cast("void *", self._memory.address(array)) for name, array in arrays.items()}
        self.descriptor = operands.descriptor(direction)
        self._arguments = (
            self.descriptor.to_c(),
            self._memory.context(),
            ffi.new("tc_operands *", places),
        )

    def run(self) -> None:
        """Queue one run."""
        check(lib.tc_convolve(*self._arguments))

    def tune(self) -> Record:
        """Search anew, with the whole budget of a key, and give what was found.

        Raises:
            TunedConvError: no engine can run it.
            LeftOutError: there is no engine that is measured.
        """
        self._memory.wait()
        registry.clear()
        with config.override(mode="search", process_budget=1e6, batch_policy="exact"), self._memory.active():
            self.run()
        self._memory.wait()
        records, _ = registry.collect()
        if not records:
            raise LeftOutError(f"The core measured nothing for {self.descriptor.key}")
        return records[-1]

    def tuned(self) -> Contender:
        """The contender with what `tune` has found; its output is the same array each time."""

        def run() -> Any:
            self.run()
            self._memory.wait()
            return self._output

        def read(output: Any) -> np.ndarray[Any, Any]:
            return self._operands.in_logical_order(self._direction, output)

        return Contender(run, self._memory.sampler(self.run), read).within(self._memory.active)

    def forced(self, algorithm: str) -> Contender:
        """The contender with one algorithm."""
        return self.tuned().within(lambda: override(algorithm, self._direction))

    def default(self) -> str:
        """Name of the library's first choice."""
        return engines.candidates(self.descriptor, self._memory.device)[0]


def host_seconds(memory: Memory) -> float:
    """Time of the host for one call of the core on a GPU, the launch included, a loop's own left out.

    Raises:
        TunedConvError: no engine can run it.
    """
    call = OwnCall(draw(parse(_SMALL), "ohwi", memory), "forward")
    call.tune()
    best = {"call": float("inf"), "nothing": float("inf")}
    with memory.active():
        for _ in range(_TRIES):
            for name, function in (("call", call.run), ("nothing", _nothing)):
                start = time.perf_counter()
                for _ in range(_CALLS):
                    function()
                best[name] = min(best[name], (time.perf_counter() - start) / _CALLS)
                memory.wait()
    return best["call"] - best["nothing"]


def _nothing() -> None:
    """As much Python as a call of the core, and of the core a function that does nothing."""
    check(0 * lib.tc_engine_is_open(b""))
