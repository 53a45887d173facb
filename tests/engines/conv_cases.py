"""Small convolutions that between them have every feature of a descriptor."""

from __future__ import annotations

from dataclasses import dataclass

from keras_tunedconv.core.descriptor import ConvDescriptor, Direction


@dataclass(frozen=True)
class Case:
    """A convolution but for direction, dtype and layouts. `pads` is (before, after) of each axis."""

    batch: int
    channels: int
    spatial: tuple[int, ...]
    filters: int
    kernel: tuple[int, ...]
    pads: tuple[tuple[int, int], ...]
    strides: tuple[int, ...] | None = None
    dilation: tuple[int, ...] | None = None
    groups: int = 1

    def descriptor(
        self,
        direction: Direction = "forward",
        dtype: str = "float32",
        layout: str = "channels_last",
        filter_layout: str = "hwio",
        allow_tf32: bool = True,
        deterministic: bool = False,
    ) -> ConvDescriptor:
        ones = (1,) * len(self.spatial)
        strides, dilation = self.strides or ones, self.dilation or ones
        positions = tuple(
            (size + before + after - d * (k - 1) - 1) // s + 1
            for size, (before, after), k, s, d in zip(
                self.spatial, self.pads, self.kernel, strides, dilation, strict=True
            )
        )
        return ConvDescriptor(
            direction=direction,
            x_dims=(self.batch, self.channels, *self.spatial),
            w_dims=(self.filters, self.channels // self.groups, *self.kernel),
            y_dims=(self.batch, self.filters, *positions),
            pad_before=tuple(before for before, _ in self.pads),
            pad_after=tuple(after for _, after in self.pads),
            stride=strides,
            dilation=dilation,
            groups=self.groups,
            x_dtype=dtype,
            w_dtype=dtype,
            y_dtype=dtype,
            compute_dtype="float64" if dtype == "float64" else "float32",
            x_layout=layout,
            w_layout=filter_layout,
            y_layout=layout,
            allow_tf32=allow_tf32,
            deterministic=deterministic,
        )


CASES = {
    "plain": Case(2, 8, (9, 7), 16, (3, 3), ((1, 1), (1, 1))),
    "stem": Case(2, 3, (13, 11), 8, (7, 7), ((2, 3), (3, 2)), strides=(2, 2)),
    "stem_valid": Case(2, 3, (9, 10), 8, (3, 3), ((0, 0), (0, 1)), strides=(2, 2)),
    "rows_no_tap_reaches": Case(2, 3, (12, 11), 4, (2, 3), ((0, 0), (0, 0)), strides=(2, 3)),
    "padding_beyond_the_kernel": Case(1, 2, (5, 6), 4, (2, 2), ((3, 2), (2, 0)), strides=(2, 2)),
    "strided_pointwise": Case(2, 5, (9, 10), 6, (1, 1), ((0, 0), (0, 0)), strides=(2, 2)),
    "pointwise": Case(3, 4, (6, 7), 10, (1, 1), ((0, 0), (0, 0))),
    "grouped_dilated": Case(2, 8, (9, 7), 12, (3, 2), ((1, 0), (1, 1)), dilation=(2, 1), groups=4),
    "depthwise": Case(2, 6, (9, 7), 6, (5, 3), ((2, 2), (1, 1)), groups=6),
    "depthwise_multiplied": Case(2, 6, (9, 7), 12, (5, 3), ((2, 2), (1, 1)), strides=(2, 2), groups=6),
    "one_axis": Case(3, 4, (11,), 10, (3,), ((1, 1),)),
    "one_axis_strided": Case(3, 3, (11,), 10, (5,), ((1, 2),), strides=(3,)),
    "same_strided": Case(2, 16, (8, 10), 8, (3, 3), ((0, 1), (0, 1)), strides=(2, 2)),
    "same_stem": Case(2, 3, (14, 12), 8, (7, 7), ((2, 3), (2, 3)), strides=(2, 2)),
    "same_strided_grouped": Case(2, 8, (8, 10), 12, (3, 3), ((0, 1), (0, 1)), strides=(2, 2), groups=4),
    "same_strided_depthwise": Case(2, 6, (8, 10), 6, (3, 3), ((0, 1), (0, 1)), strides=(2, 2), groups=6),
    "same_even_kernel": Case(2, 5, (9, 7), 8, (4, 2), ((1, 2), (0, 1))),
    "three_axes": Case(1, 3, (5, 6, 7), 4, (3, 3, 3), ((1, 1), (1, 1), (0, 1)), strides=(2, 1, 2)),
}
