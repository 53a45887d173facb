"""What the cost model sees of a convolution and of an engine's list of algorithms, as numbers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from keras_tunedconv.core.descriptor import ConvDescriptor
from keras_tunedconv.prediction.names import parts

_Floats = npt.NDArray[np.float64]

# What names a layer whichever batch, dtype, layout and direction it is measured with.
Problem = tuple[object, ...]

# Channels that vector and matrix units take at once; what is left over costs as much as a full one.
_TILES = (8, 16, 64)
_MOST_HALVINGS = 6
_DTYPES = ("float16", "bfloat16", "float32", "float64")


def problem(descriptor: ConvDescriptor) -> Problem:
    """What a convolution has in common with the same layer at another batch size, dtype or direction."""
    d = descriptor
    return d.x_dims[1:], d.w_dims, d.stride, d.dilation, d.pad_before, d.pad_after


def family(descriptor: ConvDescriptor) -> str:
    """What convolutions must have in common for one to tell about another without reserve: all but sizes."""
    fields = (
        descriptor.direction,
        *(getattr(descriptor, f"{name}_dtype") for name in ("x", "w", "y", "compute")),
        *(getattr(descriptor, f"{name}_layout") for name in ("x", "w", "y")),
        str(descriptor.spatial_rank),
        f"tf32={int(descriptor.allow_tf32)}",
        f"deterministic={int(descriptor.deterministic)}",
    )
    return "|".join(fields)


def place(descriptor: ConvDescriptor) -> _Floats:
    """Where a convolution stands among others; near ones are alike.

    Returns:
        The same number of coordinates for each; spatial axes are taken together. A doubling of what matters
        most, such as channels, is half a unit, as is a power of two more that divides them.
    """
    d = descriptor
    inputs, outputs = d.w_dims[1], d.w_dims[0] // d.groups
    taps, places = math.prod(d.w_dims[2:]), math.prod(d.y_dims[2:])
    steps = math.prod(d.stride)
    sizes = (
        (0.5, (d.x_dims[0], inputs, outputs, d.groups)),
        (0.35, (places, math.prod(d.x_dims[2:]))),
        (0.7, (taps,)),
        (1.0, (steps, math.prod(d.dilation))),
        (0.25, (d.x_dims[0] * d.w_dims[0] * inputs * taps * places,)),
    )
    kinds = (
        2.0 * (d.groups > 1 and inputs == 1),
        2.0 * (d.groups > 1),
        2.0 * (taps == 1),
        1.0 * (d.pad_before != d.pad_after),
        2.0 * (places == 1),
        1.0 * (steps > 1),
    )
    halvings = (_halvings(n) for n in (inputs, outputs, inputs * d.groups, d.w_dims[0]))
    coordinates = [weight * math.log2(size) for weight, group in sizes for size in group]
    return np.array([*coordinates, *kinds, *(0.25 * n for n in halvings)])


def features(descriptor: ConvDescriptor) -> _Floats:
    """What decides how fast algorithms are: sizes, the matrix product they make, what tiles leave over.

    Returns:
        The same number of features for each; spatial axes are taken together.
    """
    d = descriptor
    batch, inputs, outputs = d.x_dims[0], d.w_dims[1], d.w_dims[0] // d.groups
    taps, places, places_in = math.prod(d.w_dims[2:]), math.prod(d.y_dims[2:]), math.prod(d.x_dims[2:])
    products = batch * d.w_dims[0] * inputs * taps * places
    elements = [math.prod(dims) for dims in (d.x_dims, d.w_dims, d.y_dims)]
    matrix = {
        "forward": (batch * places, outputs, inputs * taps),
        "backward_data": (batch * places_in, inputs, outputs * taps),
        "backward_filter": (outputs, inputs * taps, batch * places),
    }[d.direction]
    channels = (inputs, outputs, inputs * d.groups, d.w_dims[0])
    sizes = (
        batch,
        *channels,
        d.groups,
        places,
        places_in,
        taps,
        *(math.prod(each) for each in (d.stride, d.dilation)),
    )
    return np.array(
        [
            *map(math.log2, (*sizes, products, *elements, *matrix, products / sum(elements))),
            *(math.log2(-(-n // tile) * tile / n) for n in channels for tile in _TILES),
            *map(_halvings, channels),
            *(float(n % _TILES[0] != 0) for n in channels),
            float(d.groups > 1 and inputs == 1),
            float(taps == 1),
            float(d.pad_before != d.pad_after),
            float(_DTYPES.index(d.x_dtype)),
            float(d.x_layout == "channels_last"),
            float(d.allow_tf32),
            float(d.deterministic),
        ]
    )


def listing(algorithms: Sequence[str]) -> _Floats:
    """What an engine's list tells of each algorithm: its place, and how like the library's default it is.

    Args:
        algorithms: Names in the engine's order, the default first.

    Returns:
        `(algorithms, features)`.
    """
    of_variant: Counter[tuple[str, ...]] = Counter()
    of_engine: Counter[tuple[str, tuple[str, ...]]] = Counter()
    default = parts(algorithms[0])
    rows = []
    for i, name in enumerate(algorithms):
        found = parts(name)
        variant, engine = found.variants, (found.engine, found.variants)
        shared = len(found.settings & default.settings) / (1 + len(found.settings | default.settings))
        alike = (float(found.engine == default.engine), float(variant == default.variants), shared)
        among = (
            i,
            math.log2(i + 1),
            of_variant[variant],
            math.log2(of_variant[variant] + 1),
            of_engine[engine],
        )
        rows.append((*among, len(algorithms), *alike))
        of_variant[variant] += 1
        of_engine[engine] += 1
    return np.array(rows, dtype=np.float64)


def _halvings(number: int) -> float:
    """How often a number halves evenly, at most as often as any tile does."""
    return float(min((number & -number).bit_length() - 1, _MOST_HALVINGS))
