"""One convolution and its gradients, run at once under the active Keras backend."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import keras
import numpy as np

from keras_tunedconv.bridges import convolution
from keras_tunedconv.core.config import config
from keras_tunedconv.core.descriptor import Direction

# Gives the output, and a function from the output's gradient to that of the operand at a position.
Started = tuple[Any, Callable[[Any], Any]]


class EagerConvolution:
    """A convolution on random tensors, whose directions can be run one by one.

    It goes the way of the layers, through the backend's bridge, on the backend's default device.

    Args:
        x_shape: Shape of the input in its data format, without unknown dims.
        kernel_shape: Shape of the kernel, `(*spatial, C / groups, filters)`.
        dtype: Dtype of both.
        **arguments: `strides`, `padding`, `data_format` and `dilation_rate` of the convolution.
    """

    def __init__(
        self, x_shape: Sequence[int], kernel_shape: Sequence[int], dtype: str, **arguments: Any
    ) -> None:
        channels = x_shape[1 if arguments["data_format"] == "channels_first" else -1]
        self._function: Callable[..., Any] = partial(
            convolution, **arguments, groups=channels // kernel_shape[-2]
        )
        self._dtype = dtype
        self._operands = self._random(x_shape), self._random(kernel_shape)

    def run(self, direction: Direction) -> bool:
        """Run one direction; a gradient's forward pass measures nothing.

        Returns:
            `False` where no tuned engine can, so that a layer would run Keras's own convolution.
        """
        if direction == "forward":
            y = self._function(*self._operands)
            return y is not None and _wait(y)
        with config.override(mode="heuristic"):
            start = _STARTS[keras.backend.backend()]
            y, pull = start(
                self._function, self._operands, ("backward_data", "backward_filter").index(direction)
            )
            if y is None:
                return False
            _wait(y)
        return _wait(pull(self._random(y.shape)))

    def _random(self, shape: Sequence[int]) -> Any:
        values = np.random.default_rng(0).standard_normal(tuple(shape), "float32")
        return keras.ops.cast(keras.ops.convert_to_tensor(values), self._dtype)


def _wait(tensor: Any) -> bool:
    """Let work that a backend does by the way come to its end, and its errors to light."""
    if hasattr(tensor, "block_until_ready"):
        tensor.block_until_ready()
    return True


def _start_tensorflow(function: Callable[..., Any], operands: tuple[Any, Any], position: int) -> Started:
    import tensorflow as tf

    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(operands[position])
        y = function(*operands)
    return y, lambda dy: tape.gradient(y, operands[position], output_gradients=dy)


def _start_jax(function: Callable[..., Any], operands: tuple[Any, Any], position: int) -> Started:
    import jax

    if function(*operands) is None:
        return None, lambda dy: None

    def of_one(operand: Any) -> Any:
        both = (operand, operands[1]) if position == 0 else (operands[0], operand)
        return function(*both)

    y, pull = jax.vjp(of_one, operands[position])
    return y, lambda dy: pull(dy)[0]


def _start_torch(function: Callable[..., Any], operands: tuple[Any, Any], position: int) -> Started:
    import torch

    leaves = [operand.detach().requires_grad_(i == position) for i, operand in enumerate(operands)]
    with torch.enable_grad():
        y = function(*leaves)
    return y, lambda dy: torch.autograd.grad(y, leaves[position], dy)[0]


_STARTS = {"tensorflow": _start_tensorflow, "jax": _start_jax, "torch": _start_torch}
