"""Meshes with explicit axes: an array's sharding is part of its type, so the split is known beforehand."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import jax
from jax.sharding import AxisType, PartitionSpec


def is_explicit(array: Any) -> bool:
    """Whether all axes of the array's mesh are explicit."""
    return set(jax.typeof(array).sharding.mesh.axis_types) == {AxisType.Explicit}


def splits_only_images(inputs: Any, kernel: Any) -> bool:
    """Whether types split the batch at most, as JAX's own convolution wants it too."""
    sharding, whole = jax.typeof(inputs).sharding, jax.typeof(kernel).sharding
    others = (*sharding.spec[1:], *whole.spec)
    return sharding.mesh == whole.mesh and all(entry is None for entry in others)


def part_shape(inputs: Any) -> tuple[int, ...]:
    """Shape of each device's part of inputs whose batch is split by type."""
    sharding = jax.typeof(inputs).sharding
    axes = sharding.spec[0] or ()
    parts = prod(sharding.mesh.shape[axis] for axis in ((axes,) if isinstance(axes, str) else axes))
    return (inputs.shape[0] // parts, *inputs.shape[1:])


def on_each_part(convolve: Callable[[Any, Any], Any], inputs: Any, kernel: Any) -> Any:
    """Apply a function to each device's part of the inputs; its outputs are split as the inputs are."""
    sharding = jax.typeof(inputs).sharding
    split = PartitionSpec(sharding.spec[0])
    mapped = jax.shard_map(convolve, mesh=sharding.mesh, in_specs=(split, PartitionSpec()), out_specs=split)
    return mapped(inputs, kernel)
