"""The stock and the tuned convolution under each Keras backend, as callables that can be timed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np

from keras_tunedconv import bridges
from keras_tunedconv.bench.problem import Problem
from keras_tunedconv.bench.timing import SAMPLE_SECONDS, sampler
from keras_tunedconv.core.descriptor import Direction

Convolution = Callable[[Any, Any], Any]

# How each backend can run a convolution; the first is what the benchmark takes unasked.
MODES: dict[str, tuple[str, ...]] = {
    "tensorflow": ("graph", "xla", "eager"),
    "jax": ("xla",),
    "torch": ("eager",),
}

# Runs that one call of a graph makes at most.
LONGEST_GRAPH = 32


@dataclass(frozen=True)
class Call:
    """A prepared convolution: `run` starts it `length` times, `wait` blocks until all of it is done."""

    run: Callable[[], Any]
    wait: Callable[[], None]
    length: int = 1

    def result(self) -> np.ndarray[Any, Any]:
        """What the last run computes, in float64 (a new array)."""
        return np.array(keras.ops.convert_to_numpy(self.run()), dtype="float64")


def on_cpu() -> bool:
    """Whether the active backend computes on the CPU unless told otherwise."""
    backend = keras.backend.backend()
    if backend == "tensorflow":
        import tensorflow as tf

        return not tf.config.list_physical_devices("GPU")
    if backend == "jax":
        import jax

        return bool(jax.default_backend() == "cpu")
    import torch

    return not torch.cuda.is_available()


def stock(problem: Problem) -> Convolution:
    """Keras's own convolution of the active backend."""
    return lambda x, w: keras.ops.conv(
        x,
        w,
        strides=problem.stride,
        padding=problem.padding,
        data_format=problem.layout,
        dilation_rate=problem.dilation,
    )


def tuned(problem: Problem) -> Convolution:
    """The tuned op of the active backend; never Keras's own convolution in its stead."""

    def convolution(x: Any, w: Any) -> Any:
        y = bridges.convolution(
            x,
            w,
            strides=problem.stride,
            padding=problem.padding,
            data_format=problem.layout,
            dilation_rate=problem.dilation,
            groups=problem.groups,
        )
        if y is None:
            raise RuntimeError(
                f"The tuned op cannot run {problem.text} under {keras.backend.backend()}, so nothing is "
                "timed. `keras-tunedconv doctor` says what is missing."
            )
        return y

    return convolution


def framework(problem: Problem) -> Convolution | None:
    """The framework's own op where Keras calls it in a slower way, else `None`.

    Keras compiles grouped convolutions with XLA under TensorFlow on any device; TensorFlow's own graph
    convolution is many times faster on CPUs.
    """
    if keras.backend.backend() != "tensorflow" or problem.groups == 1 or problem.layout != "channels_last":
        return None
    import tensorflow as tf

    return lambda x, w: tf.nn.convolution(
        x, w, strides=problem.stride, padding=problem.padding.upper(), dilations=problem.dilation
    )


def prepare(
    convolution: Convolution, direction: Direction, mode: str, arrays: tuple[Any, Any, Any], length: int = 1
) -> Call:
    """A call of one direction of a convolution under the active backend.

    Args:
        convolution: Function of input and kernel.
        direction: `"forward"`, `"backward_data"` or `"backward_filter"`; the gradients are the ones the
            framework's differentiation gives.
        mode: One of `MODES` of the backend.
        arrays: Input, kernel and output gradient as NumPy arrays.
        length: How many runs, one after another, a call of the graph makes; only mode graph has more than
            one. A training step holds many convolutions, so what a graph's call costs is not the op's.

    Raises:
        ValueError: the backend has no such mode, or the mode cannot time that direction alone, or is not
            one in which several runs can be one call.
    """
    backend = keras.backend.backend()
    if mode not in MODES[backend]:
        raise ValueError(f"Under {backend} the modes are {', '.join(MODES[backend])}. Received: {mode!r}")
    if length != 1 and mode != "graph":
        raise ValueError(
            f"Only mode graph makes several runs a call. Received: length={length}, mode={mode!r}"
        )
    x, w, dy = (keras.ops.convert_to_tensor(a) for a in arrays)
    if backend == "tensorflow":
        return _tensorflow(convolution, direction, mode, x, w, dy, length)
    return (_jax if backend == "jax" else _torch)(convolution, direction, x, w, dy)


def lengthen(
    call: Call, convolution: Convolution, direction: Direction, arrays: tuple[Any, Any, Any]
) -> Call:
    """The same in mode graph with as many runs a call as take one sample's time."""
    seconds = min(sampler(call.run, call.wait)(1) for _ in range(2))
    length = min(max(1, round(SAMPLE_SECONDS / seconds)), LONGEST_GRAPH)
    return prepare(convolution, direction, "graph", arrays, length) if length > 1 else call


def _tensorflow(
    convolution: Convolution, direction: Direction, mode: str, x: Any, w: Any, dy: Any, length: int
) -> Call:
    import tensorflow as tf

    if mode == "eager" and direction != "forward":
        raise ValueError("TensorFlow's eager gradients come in pairs: mode eager times forward only.")

    def step(x: Any, w: Any, dy: Any) -> Any:
        if direction == "forward":
            return convolution(x, w)
        with tf.GradientTape() as tape:
            source = x if direction == "backward_data" else w
            tape.watch(source)
            y = convolution(x, w)
        # The forward convolution is not part of the result, and TensorFlow prunes it.
        return tape.gradient(y, source, output_gradients=dy)

    def steps(x: Any, w: Any, dy: Any) -> Any:
        # A loop: equal ops side by side would be merged into one.
        result = step(x, w, dy)
        return tf.while_loop(
            lambda i, _: i < length, lambda i, _: (i + 1, step(x, w, dy)), (1, result), parallel_iterations=1
        )[1]

    function = (
        step
        if mode == "eager"
        else tf.function(steps if length > 1 else step, jit_compile=mode == "xla", autograph=False)
    )
    wait = _already_done if on_cpu() else tf.test.experimental.sync_devices
    return Call(lambda: function(x, w, dy), wait, length)


def _already_done() -> None:
    """A CPU call returns when its work is done."""


def _jax(convolution: Convolution, direction: Direction, x: Any, w: Any, dy: Any) -> Call:
    import jax

    @jax.jit
    def step(x: Any, w: Any, dy: Any) -> Any:
        if direction == "forward":
            return convolution(x, w)
        if direction == "backward_data":
            return jax.vjp(lambda x: convolution(x, w), x)[1](dy)[0]
        return jax.vjp(lambda w: convolution(x, w), w)[1](dy)[0]

    last: list[Any] = [None]

    def run() -> Any:
        last[0] = step(x, w, dy)
        return last[0]

    return Call(run, lambda: jax.block_until_ready(last[0]))


def _torch(convolution: Convolution, direction: Direction, x: Any, w: Any, dy: Any) -> Call:
    import torch

    wait = torch.cuda.synchronize if x.is_cuda else _already_done
    if direction == "forward":

        def forward() -> Any:
            with torch.no_grad():
                return convolution(x, w)

        return Call(forward, wait)
    source = x if direction == "backward_data" else w
    source.requires_grad_(True)
    y = convolution(x, w)
    return Call(lambda: torch.autograd.grad(y, source, dy, retain_graph=True)[0], wait)
