"""Gradients of the three ops: each is linear in both tensors, so its gradients are the other two."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from keras_tunedconv.bridges.tensorflow.library import op_library

_ATTRIBUTES = ("strides", "padding", "explicit_paddings", "dilations", "data_format", "groups")


class _Directions:
    """The three directions with one op's attributes."""

    def __init__(self, op: Any) -> None:
        self._ops = op_library().ops
        self._attributes = {name: op.get_attr(name) for name in _ATTRIBUTES}
        # Inputs that no gradient is asked for; known where a tape recorded the op.
        self._skipped = getattr(op, "skip_input_indices", None) or ()

    def wanted(self, index: int) -> bool:
        return index not in self._skipped

    def forward(self, x: tf.Tensor, w: tf.Tensor) -> tf.Tensor:
        return self._ops.tuned_conv_forward(x, w, **self._attributes)

    def backward_data(self, x_shape: tf.Tensor, w: tf.Tensor, dy: tf.Tensor) -> tf.Tensor:
        return self._ops.tuned_conv_backward_data(x_shape, w, dy, **self._attributes)

    def backward_filter(self, x: tf.Tensor, w_shape: tf.Tensor, dy: tf.Tensor) -> tf.Tensor:
        return self._ops.tuned_conv_backward_filter(x, w_shape, dy, **self._attributes)


def _forward_gradient(op: Any, dy: tf.Tensor) -> list[tf.Tensor | None]:
    x, w = op.inputs
    conv = _Directions(op)
    return [
        conv.backward_data(tf.shape(x), w, dy) if conv.wanted(0) else None,
        conv.backward_filter(x, tf.shape(w), dy) if conv.wanted(1) else None,
    ]


def _backward_data_gradient(op: Any, dx: tf.Tensor) -> list[tf.Tensor | None]:
    _, w, dy = op.inputs
    conv = _Directions(op)
    return [
        None,
        conv.backward_filter(dx, tf.shape(w), dy) if conv.wanted(1) else None,
        conv.forward(dx, w) if conv.wanted(2) else None,
    ]


def _backward_filter_gradient(op: Any, dw: tf.Tensor) -> list[tf.Tensor | None]:
    x, _, dy = op.inputs
    conv = _Directions(op)
    return [
        conv.backward_data(tf.shape(x), dw, dy) if conv.wanted(0) else None,
        None,
        conv.forward(x, dw) if conv.wanted(2) else None,
    ]


# Called, not written as decorators: those of a package without types hide the functions' own.
tf.RegisterGradient("TunedConvForward")(_forward_gradient)
tf.RegisterGradient("TunedConvBackwardData")(_backward_data_gradient)
tf.RegisterGradient("TunedConvBackwardFilter")(_backward_filter_gradient)
