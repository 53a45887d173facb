"""Convolutions for the engine's own CUDA kernels: what they must get right, at their edges."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from engines.conv_cases import Case
from reference import OPERANDS, OUTPUTS, expect, random_operands

from keras_tunedconv.core.descriptor import DIRECTIONS, ConvDescriptor

HALVES = ("float16", "bfloat16")


def _grouped(
    batch: int, channels: int, size: int, spatial: tuple[int, int], kernel: int, stride: int, pads: tuple
) -> Case:
    """`size` channels a group."""
    groups = channels // size
    return Case(batch, channels, spatial, channels, (kernel,) * 2, pads, (stride,) * 2, groups=groups)


def _same(kernel: int) -> tuple[tuple[int, int], tuple[int, int]]:
    before = (kernel - 1) // 2
    return ((before, kernel - 1 - before),) * 2


UNEVEN = ((0, 1), (0, 1))
GROUPED = {
    # Every size of group, kernel and stride that there is a kernel for, in images of odd sizes.
    **{
        f"{size}_a_group_stride_{stride}": _grouped(3, 32, size, (13, 11), 3, stride, _same(3))
        for size in (1, 2, 4, 8, 16, 32)
        for stride in (1, 2)
    },
    **{
        f"depthwise_{kernel}_stride_{stride}": _grouped(2, 24, 1, (17, 19), kernel, stride, _same(kernel))
        for kernel in (5, 7)
        for stride in (1, 2)
    },
    "one_image": _grouped(1, 8, 1, (8, 8), 3, 1, _same(3)),
    "one_pixel": _grouped(5, 16, 4, (1, 1), 3, 1, _same(3)),
    "one_pixel_stride_2": _grouped(2, 16, 8, (1, 1), 3, 2, _same(3)),
    "wider_than_strips": _grouped(1, 8, 2, (3, 43), 3, 1, _same(3)),
    "higher_than_wide": _grouped(2, 8, 8, (41, 2), 3, 1, _same(3)),
    "many_channels": _grouped(1, 136, 8, (9, 7), 3, 1, _same(3)),
    "depthwise_of_96": _grouped(2, 96, 1, (14, 15), 7, 1, _same(7)),
    "wide_groups_of_96": _grouped(2, 96, 32, (9, 10), 3, 1, _same(3)),
    "wide_groups_of_80": _grouped(2, 80, 16, (9, 10), 3, 2, _same(3)),
    "uneven": _grouped(2, 16, 4, (8, 10), 3, 2, UNEVEN),
    "uneven_depthwise": _grouped(2, 16, 1, (12, 10), 5, 2, ((1, 2), (1, 2))),
    "uneven_depthwise_7": _grouped(2, 16, 1, (12, 10), 7, 2, ((2, 3), (2, 3))),
    "valid": _grouped(2, 16, 2, (10, 9), 3, 1, ((0, 0), (0, 0))),
    "rest_that_no_output_reads": _grouped(2, 16, 4, (10, 12), 3, 2, ((0, 0), (0, 0))),
    "padding_beyond_the_kernel": _grouped(2, 16, 4, (6, 5), 3, 1, ((4, 3), (5, 4))),
    "padding_beyond_the_kernel_stride_2": _grouped(1, 16, 1, (6, 5), 3, 2, ((5, 4), (3, 6))),
    "kernel_7_beyond_one_edge": _grouped(2, 16, 2, (9, 12), 7, 1, ((0, 0), (8, 7))),
    "kernel_7_in_one_pixel": _grouped(1, 24, 1, (1, 1), 7, 1, _same(7)),
    "odd_number_of_strips": _grouped(3, 40, 4, (12, 17), 5, 1, ((0, 1), (3, 0))),
    "several_rows_of_tiles": _grouped(1, 8, 1, (64, 9), 3, 1, _same(3)),
}
FEW_CHANNELS = {
    "stem": Case(2, 3, (29, 31), 64, (7, 7), ((2, 3), (3, 2)), (2, 2)),
    "valid_stem": Case(1, 3, (30, 37), 40, (7, 7), ((0, 0), (0, 0)), (2, 2)),
    "small_stem": Case(3, 3, (18, 20), 32, (3, 3), UNEVEN, (2, 2)),
    "patches": Case(2, 3, (16, 24), 96, (4, 4), ((0, 0), (0, 0)), (4, 4)),
    "grey": Case(2, 1, (12, 14), 16, (7, 7), ((3, 3), (3, 3)), (2, 2)),
    "two": Case(2, 2, (9, 17), 8, (3, 3), ((1, 1), (1, 1))),
    "four": Case(2, 4, (9, 35), 24, (3, 3), ((1, 1), (1, 1))),
    "four_of_seven": Case(1, 4, (12, 13), 8, (7, 7), ((3, 3), (3, 3)), (1, 1)),
    "five_of_two": Case(2, 2, (6, 35), 24, (5, 5), ((2, 1), (1, 2))),
    "many_outputs": Case(1, 4, (9, 18), 136, (7, 7), ((3, 3), (3, 3))),
    "higher_than_wide_filter": Case(1, 2, (30, 8), 72, (7, 4), ((0, 0), (0, 0)), (3, 3)),
    "one_pixel": Case(3, 3, (1, 1), 8, (3, 3), ((1, 1), (1, 1)), (2, 2)),
    "padding_beyond_the_kernel": Case(1, 3, (5, 6), 8, (3, 3), ((4, 5), (5, 3)), (2, 2)),
    "odd_padding": Case(2, 3, (11, 13), 16, (7, 7), ((3, 3), (3, 3)), (2, 2)),
    "strides_of_their_own": Case(1, 3, (11, 13), 16, (3, 3), ((1, 1), (1, 1)), (1, 2)),
    "wide": Case(1, 3, (7, 300), 16, (7, 7), ((3, 3), (3, 3)), (2, 2)),
}


def descriptors(case: Case, dtype: str, filter_layout: str = "hwio") -> Iterator[ConvDescriptor]:
    """All directions of a case."""
    for direction in DIRECTIONS:
        yield case.descriptor(direction, dtype, filter_layout=filter_layout)


def expect_an_infinity_to_stay(
    descriptor: ConvDescriptor, run: Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
) -> None:
    """An infinity in either input reaches the outputs that depend on it, and no others.

    Kernels that multiply whole blocks of channels by zeros where groups differ would spread it as NaN.
    """
    arrays = dict(zip(OPERANDS, random_operands(descriptor), strict=True))
    output = OUTPUTS[descriptor.direction]
    for name in OPERANDS:
        if name == output:
            continue
        place = tuple(size // 2 for size in arrays[name].shape)
        reach = {other: np.ones_like(array) for other, array in arrays.items()}
        reach[name] = np.zeros_like(arrays[name])
        reach[name][place] = 1
        depends = expect(descriptor, *(reach[n] for n in OPERANDS)).value != 0
        with_zero, with_infinity = ({**arrays, name: arrays[name].copy()} for _ in range(2))
        with_zero[name][place], with_infinity[name][place] = 0, np.inf
        expected = expect(descriptor, *(with_zero[n] for n in OPERANDS))
        actual = run(*(with_infinity[n] for n in OPERANDS)).astype(np.float64)
        assert not np.isfinite(actual[depends]).any()
        expected.check(np.where(depends, expected.value, actual))
