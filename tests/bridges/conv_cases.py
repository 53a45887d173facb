"""Convolutions that every bridge must do, and an engine that does them in float64."""

from __future__ import annotations

from contextlib import contextmanager

from keras_tunedconv.core import engines
from keras_tunedconv.core.descriptor import forward_descriptor
from keras_tunedconv.core.library import lib
from tests.reference import expect, random_operands
from tests.waiting import let_work_end

CASES = {
    "plain": {"x": (2, 9, 8, 5), "w": (3, 3, 5, 7)},
    "pointwise": {"x": (3, 6, 5, 8), "w": (1, 1, 8, 4)},
    "same_odd_padding": {"x": (2, 9, 8, 3), "w": (4, 3, 3, 5), "strides": (2, 3), "padding": "same"},
    "unused_border": {"x": (1, 11, 10, 2), "w": (3, 2, 2, 4), "strides": (3, 3)},
    "dilation": {"x": (2, 12, 11, 3), "w": (3, 3, 3, 4), "dilation_rate": (2, 3), "padding": "same"},
    "groups": {"x": (2, 8, 8, 6), "w": (3, 3, 2, 9), "padding": "same"},
    "depthwise": {"x": (2, 8, 7, 6), "w": (3, 3, 1, 12), "padding": "same"},
    "channels_first": {
        "x": (2, 3, 9, 8),
        "w": (3, 3, 3, 5),
        "strides": (2, 1),
        "padding": "same",
        "data_format": "channels_first",
    },
    "channels_first_groups": {"x": (2, 4, 7, 7), "w": (3, 3, 2, 6), "data_format": "channels_first"},
    "one_axis": {"x": (2, 15, 3), "w": (4, 3, 5), "strides": (2,), "padding": "same"},
    "three_axes": {"x": (2, 5, 6, 4, 3), "w": (2, 3, 2, 3, 4), "padding": "same"},
    "stride_beyond_kernel": {"x": (2, 9, 9, 4), "w": (1, 1, 4, 6), "strides": (2, 2), "padding": "same"},
    "bfloat16": {"x": (2, 9, 8, 8), "w": (3, 3, 8, 16), "padding": "same", "dtype": "bfloat16"},
}
# Enough of them to show a rule wrong: groups, strides that leave the input's size open, both layouts.
TELLING = ("same_odd_padding", "groups", "channels_first", "channels_first_groups")


class Case:
    """Arguments and NumPy operands of a convolution."""

    def __init__(self, name, dtype=None):
        fields = dict(CASES[name])
        x, w = fields.pop("x"), fields.pop("w")
        dtype = dtype or fields.pop("dtype", "float32")
        rank = len(x) - 2
        self.arguments = {
            "strides": (1,) * rank,
            "padding": "valid",
            "data_format": "channels_last",
            "dilation_rate": (1,) * rank,
        } | fields
        self.descriptor = forward_descriptor(x, w, dtype, **self.arguments)
        self.groups = self.descriptor.groups
        self.x, self.w, self.y = random_operands(self.descriptor)

    def check(self, direction, actual, **operands):
        """Compare a result with float64; operands other than the case's own by name."""
        arrays = {"x": self.x, "w": self.w, "y": self.y} | operands
        expect(self.descriptor.with_direction(direction), **arrays).check(actual)


@contextmanager
def only_reference_engine(monkeypatch, *forget):
    """Let the core's plain loops serve the CPU, alone: they also know float64.

    Args:
        monkeypatch: pytest's fixture.
        forget: Functions that make a bridge forget which engine serves what.
    """
    with monkeypatch.context() as patch:
        patch.setattr(engines, "ensure_open", lambda device: None)
        if lib.tc_engine_is_open(b"onednn"):
            lib.tc_engine_close(b"onednn")
        engines.open_engine("reference")
        for function in forget:
            function()
        yield
        let_work_end()
        lib.tc_engine_close(b"reference")
    engines.ensure_open("cpu")
    for function in forget:
        function()
