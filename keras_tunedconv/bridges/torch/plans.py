"""What a call needs that only depends on shapes, dtype and settings: prepared once, found by one look-up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from keras_tunedconv.bridges.torch.geometry import Call, descriptor_of, result_shape
from keras_tunedconv.core import engines
from keras_tunedconv.core.descriptor import ConvDescriptor
from keras_tunedconv.core.errors import UnavailableError

DTYPES = {
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
    torch.float32: "float32",
    torch.float64: "float64",
}
DEVICES = ("cpu", "cuda")


@dataclass(frozen=True)
class Plan:
    """One convolution on one device.

    Args:
        descriptor: What to compute.
        conv: The same as `tc_conv *`.
        result_shape: Shape of the result.
        fault: Why the device's engine cannot do it; `""` when it can.
    """

    descriptor: ConvDescriptor
    conv: Any
    result_shape: tuple[int, ...]
    fault: str


@dataclass(frozen=True)
class Unserved:
    """Why a convolution is left to Keras.

    Args:
        reason: As `note_fallback` takes it; `""` when the arguments are at fault.
        key: The canonical key, if there is one.
    """

    reason: str
    key: str | None


_plans: dict[tuple[Any, ...], Plan] = {}
_unserved: dict[tuple[Any, ...], Unserved | None] = {}
_MOST = 4096  # then all are forgotten: a program with ever new shapes must not grow for ever


def plan_for(lhs: Any, rhs: Any, shape: Any, direction: int, geometry: str) -> Plan:
    """The plan of an operator's call.

    Args:
        lhs: First operand, on the CPU or a CUDA device.
        rhs: Second operand.
        shape: The result's shape in the backward directions, else empty.
        direction: Index into `DIRECTIONS`.
        geometry: Text of the geometry.

    Returns:
        The same `Plan` for all calls with equal shapes, dtypes and settings of torch.

    Raises:
        ValueError: the shapes contradict each other.
    """
    call = Call(lhs.shape, rhs.shape, tuple(shape), direction, geometry)
    return _plan(call, lhs.dtype, lhs.device, _settings(lhs))


def unserved(inputs: Any, kernel: Any, geometry: str) -> Unserved | None:
    """Why a forward convolution, or a gradient that it may need later, cannot run on an engine.

    Returns:
        `None` where all three directions can.
    """
    key = inputs.shape, kernel.shape, inputs.dtype, geometry, inputs.device, _settings(inputs)
    if key not in _unserved:
        if len(_unserved) >= _MOST:
            _unserved.clear()
        _unserved[key] = _find_fault(inputs, kernel, geometry)
    return _unserved[key]


def forget() -> None:
    """Make all plans anew; for when another engine has been opened."""
    _plans.clear()
    _unserved.clear()


def _find_fault(inputs: Any, kernel: Any, geometry: str) -> Unserved | None:
    x, w = inputs.shape, kernel.shape
    try:
        y = torch.Size(result_shape(x, w, (), 0, geometry))
        for call in (
            Call(x, w, (), 0, geometry),
            Call(w, y, tuple(x), 1, geometry),
            Call(x, y, tuple(w), 2, geometry),
        ):
            plan = _plan(call, inputs.dtype, inputs.device, _settings(inputs))
            if plan.fault:
                return Unserved(plan.fault, plan.descriptor.key)
    except ValueError:
        return Unserved("", None)
    return None


def _plan(call: Call, dtype: Any, device: Any, settings: tuple[bool, bool]) -> Plan:
    key = call, dtype, device, settings
    plan = _plans.get(key)
    if plan is None:
        if len(_plans) >= _MOST:
            _plans.clear()
        # Two threads may both make it; they make equal ones.
        plan = _plans[key] = _make(call, dtype, device, settings)
    return plan


def _make(call: Call, dtype: Any, device: Any, settings: tuple[bool, bool]) -> Plan:
    allow_tf32, deterministic = settings
    descriptor = descriptor_of(call, DTYPES[dtype], allow_tf32=allow_tf32, deterministic=deterministic)
    result = tuple(int(size) for size in result_shape(*call))
    return Plan(descriptor, descriptor.to_c(), result, _fault(descriptor, device))


def _fault(descriptor: ConvDescriptor, device: Any) -> str:
    try:
        if engines.supported(descriptor, device.type, device.index or 0):
            return ""
    except UnavailableError as error:
        return str(error)
    return f"the engine for {device.type} has no algorithm for {descriptor.direction} in {descriptor.x_dtype}"


def _settings(tensor: Any) -> tuple[bool, bool]:
    """Whether torch allows TF32, and asks for determinism, in convolutions where the tensor is."""
    if tensor.device.type != "cuda":
        return False, False
    deterministic = torch.are_deterministic_algorithms_enabled() or torch.backends.cudnn.deterministic
    return tensor.dtype == torch.float32 and _allows_tf32(), deterministic


def _allows_tf32() -> bool:
    # Since 2.9 there is a setting for convolutions alone, and reading the older one may then be an error.
    convolutions = getattr(torch.backends.cudnn, "conv", None)
    if convolutions is not None:
        return bool(convolutions.fp32_precision == "tf32")
    return bool(torch.backends.cudnn.allow_tf32)
