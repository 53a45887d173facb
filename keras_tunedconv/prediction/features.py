"""What the cost model sees of a convolution: sizes as logarithms, and kinds that algorithms tell apart."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from keras_tunedconv.core.descriptor import ConvDescriptor

# Channels that vector units take at once; what is left over costs as much as a full one.
_VECTORS = (8, 16)


def features(descriptor: ConvDescriptor) -> npt.NDArray[np.float64]:
    """The features of a convolution, the same number for each.

    Args:
        descriptor: Any convolution; spatial axes are taken together, so their number does not matter.
    """
    inputs, outputs = descriptor.w_dims[1], descriptor.w_dims[0] // descriptor.groups
    taps, places = math.prod(descriptor.w_dims[2:]), math.prod(descriptor.y_dims[2:])
    products = descriptor.x_dims[0] * descriptor.w_dims[0] * inputs * taps * places
    sizes = (
        descriptor.x_dims[0],
        inputs,
        outputs,
        descriptor.groups,
        places,
        math.prod(descriptor.x_dims[2:]),
        taps,
        math.prod(descriptor.stride),
        math.prod(descriptor.dilation),
        products,
        *(math.ceil(channels / 16) * 16 / channels for channels in (inputs, outputs)),
    )
    kinds = (
        descriptor.groups > 1 and inputs == 1,
        taps == 1,
        descriptor.pad_before != descriptor.pad_after,
        *(channels % vector != 0 for channels in (inputs, outputs) for vector in _VECTORS),
    )
    return np.array([*map(math.log2, sizes), *map(float, kinds)])


def family(descriptor: ConvDescriptor) -> str:
    """What convolutions must have in common for one to tell about another: all but sizes."""
    fields = (
        descriptor.direction,
        *(getattr(descriptor, f"{name}_dtype") for name in ("x", "w", "y", "compute")),
        *(getattr(descriptor, f"{name}_layout") for name in ("x", "w", "y")),
        str(descriptor.spatial_rank),
        f"tf32={int(descriptor.allow_tf32)}",
        f"deterministic={int(descriptor.deterministic)}",
    )
    return "|".join(fields)
