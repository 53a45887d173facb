"""Differentiation in both modes and `vmap`; importing this module registers them with the operator."""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd import forward_ad

from keras_tunedconv.bridges.shapes import DIRECTION_OF_RESULT, ROLES
from keras_tunedconv.bridges.torch.batching import batch
from keras_tunedconv.bridges.torch.dispatch import are_bare
from keras_tunedconv.bridges.torch.execute import execute
from keras_tunedconv.bridges.torch.operator import kernel, library, operator
from keras_tunedconv.core.descriptor import DIRECTIONS

# torch.func's transforms only take functions with a setup_context, whose calls cost much more, and which
# torch.compile does not trace when they have a jvp.
_transforms_active = getattr(torch._C, "_are_functorch_transforms_active", lambda: True)


@torch.compiler.assume_constant_result
def transforms_active() -> bool:
    """Whether a transform of `torch.func` is at work; torch.compile guards on it by itself."""
    return bool(_transforms_active())


def apply(lhs: Any, rhs: Any, shape: Any, direction: int, geometry: str) -> Any:
    """Call the operator so that whatever is at work around it can transform the call."""
    if torch.compiler.is_compiling():
        return operator(lhs, rhs, shape, direction, geometry)
    if transforms_active():
        return _Transformable.apply(lhs, rhs, shape, direction, geometry)
    if not are_bare(lhs, rhs):
        return operator(lhs, rhs, shape, direction, geometry)
    call = execute if _only_computes(lhs, rhs) else _Convolution.apply
    return call(lhs, rhs, shape, direction, geometry)


def is_functionalized() -> bool:
    """Whether the innermost transform is `functionalize`, which has no rule for autograd functions."""
    if not transforms_active():
        return False
    innermost = getattr(torch._C._functorch, "peek_interpreter_stack", lambda: None)()
    return innermost is not None and innermost.key().name == "Functionalize"


def _compute(lhs: Any, rhs: Any, shape: Any, direction: int, geometry: str) -> Any:
    """The result alone; as `kernel` does it, and past the dispatcher where nobody is there to see it."""
    call = execute if are_bare(lhs, rhs) else kernel
    return call(lhs, rhs, shape, direction, geometry)


def _gradient(ctx: Any, position: int, cotangent: Any, lhs: Any, rhs: Any) -> Any:
    """The cotangent of one operand, from the other and the result's."""
    if not ctx.needs_input_grad[position]:
        return None
    roles = ROLES[DIRECTIONS[ctx.direction]]
    values = {roles[1 - position]: (lhs, rhs)[1 - position], roles[2]: cotangent}
    direction = DIRECTION_OF_RESULT[roles[position]]
    first, second, _result = ROLES[direction]
    index = DIRECTIONS.index(direction)
    shape = list((lhs, rhs)[position].shape) if index else []
    call = _compute if _only_computes(*values.values()) else apply
    return call(values[first], values[second], shape, index, ctx.geometry)


class _Convolution(torch.autograd.Function):
    """For calls from the dispatcher."""

    @staticmethod
    def forward(ctx: Any, lhs: Any, rhs: Any, shape: Any, direction: int, geometry: str) -> Any:
        ctx.save_for_backward(lhs, rhs)
        ctx.save_for_forward(lhs, rhs)
        ctx.shape, ctx.direction, ctx.geometry = shape, direction, geometry
        return _compute(lhs, rhs, shape, direction, geometry)

    @staticmethod
    def backward(ctx: Any, cotangent: Any) -> Any:
        lhs, rhs = ctx.saved_tensors
        return *(_gradient(ctx, position, cotangent, lhs, rhs) for position in (0, 1)), None, None, None

    @staticmethod
    def jvp(ctx: Any, lhs_tangent: Any, rhs_tangent: Any, *_: Any) -> Any:
        lhs, rhs = ctx.saved_tensors
        rest = ctx.shape, ctx.direction, ctx.geometry
        terms = []
        if lhs_tangent is not None:
            terms.append(apply(lhs_tangent, rhs, *rest))
        if rhs_tangent is not None:
            terms.append(apply(lhs, rhs_tangent, *rest))
        return sum(terms[1:], terms[0])


class _Transformable(_Convolution):
    """For calls under a transform of `torch.func`."""

    @staticmethod
    def forward(lhs: Any, rhs: Any, shape: Any, direction: int, geometry: str) -> Any:  # type: ignore[override]
        return operator(lhs, rhs, shape, direction, geometry)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        lhs, rhs, ctx.shape, ctx.direction, ctx.geometry = inputs
        ctx.save_for_backward(lhs, rhs)
        ctx.save_for_forward(lhs, rhs)

    @staticmethod
    def vmap(
        info: Any, in_dims: Any, lhs: Any, rhs: Any, shape: Any, direction: int, geometry: str
    ) -> tuple[Any, int]:
        return batch(apply, info.batch_size, (lhs, rhs), in_dims[:2], shape, direction, geometry)


def _dispatched(lhs: Any, rhs: Any, shape: Any, direction: int, geometry: str) -> Any:
    call = kernel if _only_computes(lhs, rhs) else _Convolution.apply
    return call(lhs, rhs, shape, direction, geometry)


def _only_computes(lhs: Any, rhs: Any) -> bool:
    """Whether nothing differentiates a call with these operands, so that the kernel is enough."""
    if transforms_active() or (torch.is_grad_enabled() and (lhs.requires_grad or rhs.requires_grad)):
        return False
    return all(forward_ad.unpack_dual(tensor).tangent is None for tensor in (lhs, rhs))


library.impl("convolution", _dispatched, "Autograd")
torch.library.register_vmap("keras_tunedconv::convolution", _Transformable.vmap, lib=library)
