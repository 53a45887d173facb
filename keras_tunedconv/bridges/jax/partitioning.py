"""Convolutions that XLA's partitioner may split over devices."""

from __future__ import annotations

import re
from functools import lru_cache, partial
from typing import Any

import jax
import numpy as np
from jax.experimental.custom_partitioning import custom_partitioning
from jax.experimental.xla_metadata import set_xla_metadata
from jax.sharding import Mesh, NamedSharding

from keras_tunedconv.bridges.jax.halo import with_margins, without_margins
from keras_tunedconv.bridges.jax.local import run_local
from keras_tunedconv.bridges.jax.split import Split, choose_split, divides_evenly, margins, shards
from keras_tunedconv.bridges.shapes import ROLES, channel_axis
from keras_tunedconv.core import derivations
from keras_tunedconv.core.descriptor import ConvDescriptor


@lru_cache(maxsize=1)
def devices_marker() -> Any:
    """A parameter for the primitive that makes JAX tell its lowering which devices there are.

    JAX does so for programs in which it finds `custom_partitioning`, also in the parameters of other
    primitives; ours only appears when the primitive is lowered, so it shows this specimen.

    Returns:
        A jaxpr that is never run, or `None` where the process has one device.
    """
    if jax.device_count() == 1:
        return None
    specimen = custom_partitioning(lambda array: array)
    specimen.def_partition(partition=None, sharding_rule="... -> ...")
    with jax.ensure_compile_time_eval():
        return jax.make_jaxpr(specimen)(np.float32(0))


def _whole(lhs: Any, rhs: Any, descriptor: ConvDescriptor) -> Any:
    return run_local(descriptor, lhs, rhs)


_partitioned = custom_partitioning(_whole, static_argnums=(2,))


def partitioned(descriptor: ConvDescriptor, lhs: Any, rhs: Any) -> Any:
    """Compute a descriptor's result; a program for several devices may split it."""
    if devices_marker() is None:
        return run_local(descriptor, lhs, rhs)
    # The program names the partitioner's rules by an address. Where JAX leaves that out of the keys of its
    # persistent cache, as it can be told to (jax_remove_custom_partitioning_ptr_from_cache_key), convolutions
    # of equal shapes must differ otherwise, or one would be found for the other.
    with set_xla_metadata(tuned_convolution=descriptor.key):
        return _partitioned(lhs, rhs, descriptor)


def _mesh_of(mesh: Mesh, operands: Any) -> Mesh:
    # Without a mesh JAX gives shardings that name no axes; everything is then replicated.
    if not mesh.empty:
        return mesh
    return Mesh(np.array(sorted(operands[0].sharding.device_set, key=lambda d: d.id)), ("devices",))


def _infer_result(descriptor: ConvDescriptor, mesh: Mesh, operands: Any, _result: Any) -> Any:
    *roles, result = ROLES[descriptor.direction]
    mesh = _mesh_of(mesh, operands)
    shardings = {role: array.sharding for role, array in zip(roles, operands, strict=True)}
    return NamedSharding(mesh, choose_split(descriptor, mesh, shardings).spec(descriptor, result))


def _partition(descriptor: ConvDescriptor, mesh: Mesh, operands: Any, result: Any) -> Any:
    roles = ROLES[descriptor.direction]
    mesh = _mesh_of(mesh, operands)
    shardings = {role: array.sharding for role, array in zip(roles, (*operands, result), strict=True)}
    split = choose_split(descriptor, mesh, shardings)
    first, second, third = (NamedSharding(mesh, split.spec(descriptor, role)) for role in roles)
    return mesh, partial(_on_one_device, descriptor, split, mesh), third, (first, second)


def _on_one_device(descriptor: ConvDescriptor, split: Split, mesh: Mesh, lhs: Any, rhs: Any) -> Any:
    first_place = 2 if channel_axis(descriptor) == 1 else 1
    moves = [
        (first_place + axis, axes, shards(mesh, axes), *margins(descriptor, axis))
        for axis, axes in enumerate(split.places)
        if axes
    ]
    if descriptor.direction != "backward_data":
        for move in moves:
            lhs = with_margins(lhs, *move)
    local = split.local(descriptor, mesh)
    derivations.note(descriptor, local)
    result = run_local(local, lhs, rhs)
    if descriptor.direction == "backward_data":
        for move in reversed(moves):
            result = without_margins(result, *move)
    summed = split.summed_axes(descriptor)
    return jax.lax.psum(result, summed) if summed else result


def sharding_rule(descriptor: ConvDescriptor) -> tuple[str, dict[str, Any]]:
    """What `choose_split` allows, as a rule for Shardy.

    Args:
        descriptor: The whole convolution.

    Returns:
        The rule, operands and result as lists of factors (`n` images, `i` and `o` channels of a group, `g`
        groups, `p` places that may be split, the rest spatial), and the arguments that say which factors
        are summed over, need neighbours, may not be split, or have which size.
    """
    d, (filters, per_group) = descriptor, descriptor.w_dims[:2]
    spatial: dict[str, list[str]] = {"x": [], "y": [], "w": [f"w{axis}" for axis in range(d.spatial_rank)]}
    sizes: dict[str, int] = {}
    for axis, stride in enumerate(d.stride):
        even = divides_evenly(d, axis)
        spatial["y"].append(f"p{axis}" if even else f"y{axis}")
        spatial["x"].append(f"x{axis}" if not even else f"p{axis}" if stride == 1 else f"(p{axis} s{axis})")
        if even and stride > 1:
            sizes[f"s{axis}"] = stride

    def channels(factor: str, length: int) -> str:
        if d.groups == 1:
            return factor
        return "g" if length == 1 else f"(g {factor})"

    inputs, outputs = channels("i", per_group), channels("o", filters // d.groups)
    arrays = {"w": [*spatial["w"], "i", outputs]}
    for role, factor in (("x", inputs), ("y", outputs)):
        arrays[role] = ["n", *spatial[role]]
        arrays[role].insert(channel_axis(d), factor)
    first, second, result = (" ".join(arrays[role]) for role in ROLES[d.direction])
    rule = f"{first}, {second} -> {result}"
    # Only factors that are never an axis of their own are given a size.
    if outputs == "(g o)":
        sizes["o"] = filters // d.groups
    if (inputs, outputs) == ("(g i)", "(g o)"):
        sizes["g"] = d.groups
    return rule, {**_kinds(d, rule), **sizes}


def _kinds(descriptor: ConvDescriptor, rule: str) -> dict[str, tuple[str, ...]]:
    # Shardy wants factors listed in the order in which the rule first names them.
    factors = list(dict.fromkeys(re.findall(r"\w+", rule)))
    places = [factor for factor in factors if factor[0] == "p"]
    splittable = {*places, *("nio" if descriptor.groups == 1 else "ng")}
    summed = {"i"} if descriptor.direction == "forward" else {"o"}
    if descriptor.direction == "backward_filter":
        summed = {"n", *places}
    kinds = {
        "need_replication_factors": set(factors) - splittable,
        "reduction_factors": summed & splittable,
        "permutation_factors": set(places) - summed,
    }
    return {kind: tuple(f for f in factors if f in chosen) for kind, chosen in kinds.items()}


_partitioned.def_partition(
    infer_sharding_from_operands=_infer_result,
    partition=_partition,
    sharding_rule=lambda descriptor, *_: sharding_rule(descriptor),
)
