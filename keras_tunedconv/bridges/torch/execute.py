"""Running a plan on tensors' memory."""

from __future__ import annotations

from typing import Any

import torch

from keras_tunedconv.bridges.shapes import ROLES
from keras_tunedconv.bridges.torch.plans import Plan, plan_for
from keras_tunedconv.bridges.torch.stock import stock
from keras_tunedconv.core.descriptor import DIRECTIONS
from keras_tunedconv.core.errors import check
from keras_tunedconv.core.library import ffi, lib

# cuDNN's vector loads; torch's allocator gives 512.
_ALIGNMENT = 16
_ROLES = [ROLES[direction] for direction in DIRECTIONS]


def execute(lhs: Any, rhs: Any, shape: Any, direction: int, geometry: str) -> Any:
    """Compute an operator's result; arguments as in `plan_for`.

    Returns:
        A new contiguous tensor.

    Raises:
        TunedConvError: the engine failed.
        ValueError: dtypes or devices differ, or the shapes contradict each other.
    """
    if lhs.dtype != rhs.dtype or lhs.device != rhs.device:
        raise ValueError(
            "Expected operands of one dtype on one device. "
            f"Received: {lhs.dtype} on {lhs.device} and {rhs.dtype} on {rhs.device}"
        )
    plan = plan_for(lhs, rhs, shape, direction, geometry)
    if plan.fault:
        return stock(plan.descriptor, lhs, rhs)
    lhs, rhs = _placed(lhs), _placed(rhs)
    result = torch.empty(plan.result_shape, dtype=lhs.dtype, device=lhs.device)
    operands = ffi.new("tc_operands *")
    for role, tensor in zip(_ROLES[direction], (lhs, rhs, result), strict=True):
        setattr(operands, role, ffi.cast("void *", tensor.data_ptr()))
    if lhs.is_cuda:
        _run_on_cuda(plan, lhs.device, operands)
    else:
        status = lib.tc_convolve(plan.conv, _CPU_CONTEXT, operands)
        if status:
            check(status)
    return result


def _placed(tensor: Any) -> Any:
    """The tensor as the engines take it: dense, and on a GPU aligned, which a view need not be."""
    tensor = tensor.contiguous()
    return tensor.clone() if tensor.is_cuda and tensor.data_ptr() % _ALIGNMENT else tensor


def _run_on_cuda(plan: Plan, device: Any, operands: Any) -> None:
    context = ffi.new("tc_context *")
    context.device_kind = lib.TC_CUDA
    context.device_ordinal = device.index
    context.stream = ffi.cast("void *", torch.cuda.current_stream(device).cuda_stream)
    context.allocate, context.deallocate = _allocate, _deallocate
    context.user = context
    with torch.cuda.device(device):
        check(lib.tc_convolve(plan.conv, context, operands))


@ffi.callback("void *(void *, size_t)")
def _allocate(user: Any, size: int) -> Any:
    """Workspace of torch's own allocator, ordered with the stream's work; null when memory is short."""
    context = ffi.cast("tc_context *", user)
    stream = int(ffi.cast("uintptr_t", context.stream))
    try:
        address = torch.cuda.caching_allocator_alloc(size, context.device_ordinal, stream)
    except torch.cuda.OutOfMemoryError:
        return ffi.NULL
    return ffi.cast("void *", address)


@ffi.callback("void(void *, void *)")
def _deallocate(_user: Any, pointer: Any) -> None:
    torch.cuda.caching_allocator_delete(int(ffi.cast("uintptr_t", pointer)))


_CPU_CONTEXT = ffi.new("tc_context *", {"device_kind": lib.TC_CPU})
