"""XLA under JAX as a contender, timed by its profiler, as no event can be put on its streams."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from keras_tunedconv.bench.peers import profile
from keras_tunedconv.bench.peers.contender import LeftOutError
from keras_tunedconv.bench.peers.operands import OUTPUTS, Operands, to_logical
from keras_tunedconv.core.descriptor import ConvDescriptor, Direction

_WARM_RUNS, _RUNS = 3, 20
_PLATFORMS = {"cpu": "cpu", "cuda": "gpu"}


class XlaPeer:
    """Compiled convolutions, the directions of one problem at a time.

    Args:
        device: `"cpu"` or `"cuda"`.

    Raises:
        ImportError: JAX is not installed.
        LeftOutError: JAX sees no such device.
    """

    def __init__(self, device: str) -> None:
        import jax

        self._jax = jax
        try:
            self._device = jax.devices(_PLATFORMS[device])[0]
        except RuntimeError as error:
            raise LeftOutError(
                f"JAX sees no device of kind {device!r}: {str(error).splitlines()[0]}"
            ) from error
        self._calls: dict[Direction, tuple[str, Callable[[], Any]]] = {}
        self._arrays: dict[str, Any] = {}

    def forget(self) -> None:
        """Drop the last problem's convolutions and operands."""
        self._calls, self._arrays = {}, {}

    def prepare(self, operands: Operands, direction: Direction) -> Any:
        """Compile and run one direction of a problem, and give its output.

        Raises:
            LeftOutError: JAX is not allowed the dtype.
        """
        descriptor = operands.descriptor(direction)
        function = self._function(descriptor)
        # Traces tell modules by their names.
        function.__name__ = re.sub(r"\W", "_", f"problem_{operands.problem.text}_{direction}")
        compiled = self._jax.jit(function)
        arguments = [self._array(operands, name) for name in ("x", "w", "y")]
        value = self._jax.block_until_ready(compiled(*arguments))
        self._calls[direction] = (f"jit_{function.__name__}", lambda: compiled(*arguments))
        return value

    def read(self, operands: Operands, direction: Direction, output: Any) -> np.ndarray[Any, Any]:
        """An output as float32 of NumPy, dims in logical order."""
        order = to_logical(operands.descriptor(direction), OUTPUTS[direction])
        return np.asarray(output).astype("float32").transpose(order)

    def measure(self) -> dict[Direction, list[float]]:
        """Seconds of the device for each of several runs of each direction that was prepared.

        All of them are run under one session of the profiler. A direction of which its trace says nothing is
        not in the answer.
        """
        for _, call in self._calls.values():
            self._run(call, _WARM_RUNS)
        with tempfile.TemporaryDirectory() as folder:
            with self._jax.profiler.trace(folder):
                for _, call in self._calls.values():
                    self._run(call, _RUNS)
            trace = profile.read(Path(folder))
        seconds = profile.run_seconds(trace, [module for module, _ in self._calls.values()], _RUNS)
        return {
            direction: seconds[module] for direction, (module, _) in self._calls.items() if module in seconds
        }

    def _array(self, operands: Operands, name: str) -> Any:
        """A copy of an operand for JAX, made once for all directions."""
        if name not in self._arrays:
            copy = self._jax.device_put(operands.memory.to_numpy(operands.arrays[name]), self._device)
            if copy.dtype.name != operands.problem.dtype:
                raise LeftOutError(
                    f"JAX makes {copy.dtype.name} of {operands.problem.dtype} (jax_enable_x64)"
                )
            self._arrays[name] = copy
        return self._arrays[name]

    def _run(self, call: Callable[[], Any], times: int) -> None:
        value = None
        for _ in range(times):
            value = call()
        self._jax.block_until_ready(value)

    def _function(self, descriptor: ConvDescriptor) -> Callable[[Any, Any, Any], Any]:
        jax = self._jax
        image = "NHWC" if descriptor.x_layout == "channels_last" else "NCHW"

        def convolution(x: Any, w: Any) -> Any:
            return jax.lax.conv_general_dilated(
                x,
                w,
                window_strides=descriptor.stride,
                padding=list(zip(descriptor.pad_before, descriptor.pad_after, strict=True)),
                rhs_dilation=descriptor.dilation,
                dimension_numbers=(image, descriptor.w_layout.upper(), image),
                feature_group_count=descriptor.groups,
                # float32 without TF32, as the other contenders have it.
                precision=jax.lax.Precision.HIGHEST if descriptor.x_dtype == "float32" else None,
            )

        def forward(x: Any, w: Any, _: Any) -> Any:
            return convolution(x, w)

        def backward_data(x: Any, w: Any, dy: Any) -> Any:
            return jax.vjp(lambda x: convolution(x, w), x)[1](dy)[0]

        def backward_filter(x: Any, w: Any, dy: Any) -> Any:
            return jax.vjp(lambda w: convolution(x, w), w)[1](dy)[0]

        functions: dict[Direction, Callable[[Any, Any, Any], Any]] = {
            "forward": forward,
            "backward_data": backward_data,
            "backward_filter": backward_filter,
        }
        return functions[descriptor.direction]
