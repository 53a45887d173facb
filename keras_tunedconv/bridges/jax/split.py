"""How a convolution may be split over devices, and what each device then computes.

Images, input channels, output channels and spatial axes may be split. Where the result does not count what
is split (input channels of the forward operation, images and places of the filter's gradient), each device
has a part of a sum. With groups, channels are only split between groups. A split spatial axis needs the
neighbours' margins (see `halo`), which is simple where the stride divides it evenly; others are not split.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any

from jax.sharding import Mesh, NamedSharding, PartitionSpec

from keras_tunedconv.bridges.shapes import channel_axis
from keras_tunedconv.core.descriptor import ConvDescriptor

Axes = tuple[str, ...]


@dataclass(frozen=True)
class Split:
    """Mesh axes over which a convolution is split.

    Args:
        images: Those that split the batch.
        inputs: Those that split the input channels.
        outputs: Those that split the output channels.
        places: For each spatial axis, those that split it.
    """

    images: Axes
    inputs: Axes
    outputs: Axes
    places: tuple[Axes, ...]

    def spec(self, descriptor: ConvDescriptor, role: str) -> PartitionSpec:
        """How an array of the convolution is then split."""
        if role == "w":
            inputs = self.inputs if descriptor.groups == 1 else ()
            entries = [*[()] * descriptor.spatial_rank, inputs, self.outputs]
        else:
            entries = [self.images, *self.places]
            entries.insert(channel_axis(descriptor), self.inputs if role == "x" else self.outputs)
        return PartitionSpec(*(axes or None for axes in entries))

    def summed_axes(self, descriptor: ConvDescriptor) -> Axes:
        """Axes over which each device's result is a part of the sum."""
        if descriptor.direction == "backward_filter":
            return (*self.images, *(axis for axes in self.places for axis in axes))
        if descriptor.groups > 1:
            return ()
        return self.inputs if descriptor.direction == "forward" else self.outputs

    def local(self, descriptor: ConvDescriptor, mesh: Mesh) -> ConvDescriptor:
        """What one device computes, from an input with its margins where a spatial axis is split."""
        d = descriptor
        images, inputs, outputs = (shards(mesh, a) for a in (self.images, self.inputs, self.outputs))
        (n, c, *xs), (o, i, *ws), (_, _, *ys) = d.x_dims, d.w_dims, d.y_dims
        pad_before, pad_after = list(d.pad_before), list(d.pad_after)
        for axis, axes in enumerate(self.places):
            if axes:
                xs[axis] = xs[axis] // shards(mesh, axes) + sum(margins(d, axis))
                ys[axis] //= shards(mesh, axes)
                pad_before[axis] = pad_after[axis] = 0
        n, c, o = n // images, c // inputs, o // outputs
        grouped = d.groups > 1
        return replace(
            d,
            x_dims=(n, c, *xs),
            w_dims=(o, i if grouped else i // inputs, *ws),
            y_dims=(n, o, *ys),
            pad_before=tuple(pad_before),
            pad_after=tuple(pad_after),
            groups=d.groups // outputs if grouped else 1,
        )


def choose_split(descriptor: ConvDescriptor, mesh: Mesh, shardings: dict[str, Any]) -> Split:
    """The split that follows what arrays already have.

    Args:
        descriptor: The whole convolution.
        mesh: Devices.
        shardings: Shardings of arrays by role; those that are no `NamedSharding` say nothing.

    Returns:
        A `Split` in which each axis of the mesh is used once and divides what it splits; the partitioner
        brings arrays that are split otherwise into this form.
    """
    d, channels = descriptor, channel_axis(descriptor)
    taken: set[str] = set()

    def first(count: int, *positions: tuple[str, int], least: int = 1) -> Axes:
        for role, position in positions:
            axes = _axes_of(shardings.get(role), position)
            parts = shards(mesh, axes)
            if parts > 1 and count % parts == 0 and count // parts >= least and not taken & set(axes):
                taken.update(axes)
                return axes
        return ()

    images = first(d.x_dims[0], ("x", 0), ("y", 0))
    if d.groups > 1:
        outputs = inputs = first(d.groups, ("w", -1), ("x", channels), ("y", channels))
    else:
        outputs = first(d.w_dims[0], ("w", -1), ("y", channels))
        inputs = first(d.x_dims[1], ("x", channels), ("w", -2))
    places = []
    for axis in range(d.spatial_rank):
        position = axis + (2 if channels == 1 else 1)
        # A margin must lie within one neighbour, so the smallest part has to be as long.
        least = -(-max(margins(d, axis)) // d.stride[axis])
        count = d.y_dims[2 + axis] if divides_evenly(d, axis) else 1
        places.append(first(count, ("x", position), ("y", position), least=max(least, 1)))
    return Split(images, inputs, outputs, tuple(places))


def divides_evenly(descriptor: ConvDescriptor, axis: int) -> bool:
    """Whether equal parts of the output need equal parts of the input along a spatial axis."""
    return descriptor.x_dims[2 + axis] == descriptor.y_dims[2 + axis] * descriptor.stride[axis]


def margins(descriptor: ConvDescriptor, axis: int) -> tuple[int, int]:
    """Elements beyond a part of the input that its outputs read, before and after; after may be negative.

    They are those of an axis that `divides_evenly`.
    """
    before = descriptor.pad_before[axis]
    extent = (descriptor.w_dims[2 + axis] - 1) * descriptor.dilation[axis] + 1
    return before, extent - descriptor.stride[axis] - before


def shards(mesh: Mesh, axes: Axes) -> int:
    """Number of parts that mesh axes make."""
    return prod(mesh.shape[axis] for axis in axes)


def _axes_of(sharding: Any, position: int) -> Axes:
    if not isinstance(sharding, NamedSharding):
        return ()
    entries = tuple(sharding.spec)
    if position < 0:
        position += len(entries)
    entry = entries[position] if position < len(entries) else None
    return () if entry is None else (entry,) if isinstance(entry, str) else tuple(entry)
