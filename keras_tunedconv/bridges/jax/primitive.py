"""The JAX primitive: one bilinear operation whose three directions are each other's transposes."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any

import jax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jax.sharding import AxisType

from keras_tunedconv.bridges.jax.batching import batch
from keras_tunedconv.bridges.jax.partitioning import devices_marker, partitioned
from keras_tunedconv.bridges.jax.stock import stock
from keras_tunedconv.bridges.jax.targets import usable
from keras_tunedconv.bridges.shapes import DIRECTION_OF_RESULT, ROLES, shape_of
from keras_tunedconv.core.descriptor import ConvDescriptor

convolution_p = Primitive("tuned_convolution")


def bind(descriptor: ConvDescriptor, lhs: Any, rhs: Any) -> Any:
    """Apply the primitive.

    Args:
        descriptor: What to compute, whatever the platform it will run on.
        lhs: First operand of the direction, see `ROLES`.
        rhs: Second operand.

    Returns:
        y, dx or dw.
    """
    # Where all axes of a mesh are manual, this is one device's part and there is nothing left to split.
    manual = set(jax.typeof(lhs).sharding.mesh.axis_types) == {AxisType.Manual}
    return convolution_p.bind(lhs, rhs, descriptor=descriptor, devices=None if manual else devices_marker())


def _abstract_eval(lhs: Any, rhs: Any, *, descriptor: ConvDescriptor, **_: Any) -> Any:
    first, second, result = ROLES[descriptor.direction]
    expected = shape_of(descriptor, first), shape_of(descriptor, second)
    if (lhs.shape, rhs.shape) != expected or lhs.dtype != rhs.dtype:
        raise TypeError(
            f"Expected operands of one dtype with shapes {expected} for {descriptor.key}. "
            f"Received: {lhs.str_short()}, {rhs.str_short()}"
        )
    # Taken from an operand, so that what JAX tracks beside shape and dtype (manual axes) goes along.
    return lhs.update(shape=shape_of(descriptor, result), weak_type=False)


def _transpose_of(position: int) -> Any:
    """The rule for the cotangent of one operand, given the other and the result's cotangent."""

    def rule(cotangent: Any, lhs: Any, rhs: Any, *, descriptor: ConvDescriptor, **_: Any) -> Any:
        roles = ROLES[descriptor.direction]
        values = {roles[1 - position]: (lhs, rhs)[1 - position], roles[2]: cotangent}
        direction = DIRECTION_OF_RESULT[roles[position]]
        first, second, _result = ROLES[direction]
        return bind(descriptor.with_direction(direction), values[first], values[second])

    return rule


def _batching_rule(operands: Any, dims: Any, *, descriptor: ConvDescriptor, **_: Any) -> Any:
    return batch(bind, descriptor, operands, dims)


@lru_cache(maxsize=4096)
def _compiled(descriptor: ConvDescriptor) -> Any:
    return jax.jit(lambda lhs, rhs: bind(descriptor, lhs, rhs))


def _evaluate(lhs: Any, rhs: Any, *, descriptor: ConvDescriptor, **_: Any) -> Any:
    # A primitive runs compiled even where the user has switched jit off, as JAX's own do.
    with jax.disable_jit(False):
        return _compiled(descriptor)(lhs, rhs)


def _lower(ctx: Any, lhs: Any, rhs: Any, *, descriptor: ConvDescriptor, **_: Any) -> Any:
    function = partitioned if _may_call_engines(ctx, descriptor) else stock
    return mlir.lower_fun(partial(function, descriptor), multiple_results=False)(ctx, lhs, rhs)


def _may_call_engines(ctx: Any, descriptor: ConvDescriptor) -> bool:
    # An exported program must run where this package is not installed.
    if ctx.module_context.lowering_parameters.for_export:
        return False
    platforms = ctx.platforms or ctx.module_context.platforms
    return any(usable(descriptor, platform) for platform in platforms)


convolution_p.def_impl(_evaluate)
convolution_p.def_abstract_eval(_abstract_eval)
ad.defbilinear(convolution_p, _transpose_of(0), _transpose_of(1))
batching.primitive_batchers[convolution_p] = _batching_rule
mlir.register_lowering(convolution_p, _lower)
