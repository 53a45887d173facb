"""Programs of which it is known, when they are traced, how the batch is split over devices.

That is so for meshes with explicit axes, where the sharding is part of an array's type, and under Keras's
`DataParallel`. Each device's part is then a program of its own (`jax.shard_map`), and the partitioner need
not ask how to split it; a program in which it has to is not found in JAX's persistent compilation cache.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

import jax
import keras
from jax.sharding import AxisType, PartitionSpec


class BatchSplit(NamedTuple):
    """The mesh, and those of its axes that split the batch."""

    mesh: Any
    axes: tuple[str, ...]

    def part_shape(self, inputs: Any) -> tuple[int, ...]:
        """Shape of each device's part of the inputs."""
        return (inputs.shape[0] // prod(self.mesh.shape[axis] for axis in self.axes), *inputs.shape[1:])

    def on_each_part(self, convolve: Callable[[Any, Any], Any], inputs: Any, kernel: Any) -> Any:
        """Apply a function to each device's part of the inputs; its outputs are split as the inputs are."""
        split = PartitionSpec(self.axes or None)
        mapped = jax.shard_map(convolve, mesh=self.mesh, in_specs=(split, PartitionSpec()), out_specs=split)
        return mapped(inputs, kernel)


def known_batch_split(inputs: Any, kernel: Any) -> BatchSplit | None:
    """How a batch is split, where that is known and nothing else is split.

    Args:
        inputs: Array or tracer; the first axis is the batch.
        kernel: Array or tracer.

    Returns:
        The split; `None` where the partitioner decides, or something else is split by type.
    """
    types = set(jax.typeof(inputs).sharding.mesh.axis_types)
    if types == {AxisType.Explicit}:
        return _from_types(inputs, kernel)
    if types <= {AxisType.Auto} and isinstance(inputs, jax.core.Tracer):
        return _from_keras(inputs)
    return None


def _from_types(inputs: Any, kernel: Any) -> BatchSplit | None:
    sharding, whole = jax.typeof(inputs).sharding, jax.typeof(kernel).sharding
    images, *others = sharding.spec
    # JAX's own convolution wants no more either, unless it is told how to split the output.
    if sharding.mesh != whole.mesh or any(entry is not None for entry in (*others, *whole.spec)):
        return None
    return BatchSplit(sharding.mesh, (images,) if isinstance(images, str) else tuple(images or ()))


def _from_keras(inputs: Any) -> BatchSplit | None:
    distribution = keras.distribution.distribution()
    if not isinstance(distribution, keras.distribution.DataParallel):
        return None
    split = BatchSplit(distribution.device_mesh.backend_mesh, (distribution.batch_dim_name,))
    size = inputs.shape[0]
    divides = isinstance(size, int) and size % split.mesh.shape[distribution.batch_dim_name] == 0
    return split if divides else None
