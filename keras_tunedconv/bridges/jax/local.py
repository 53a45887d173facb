"""One device's convolution: the custom call where an engine serves the platform, `jax.lax` elsewhere."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import numpy as np
from jax.extend.core import Primitive
from jax.ffi import ffi_lowering
from jax.interpreters import mlir

from keras_tunedconv.bridges.jax.stock import stock
from keras_tunedconv.bridges.jax.targets import PLATFORMS, TARGET, on_platform, usable
from keras_tunedconv.bridges.shapes import ROLES, shape_of
from keras_tunedconv.core.descriptor import ConvDescriptor

_DIRECTION_CODES = {"forward": 0, "backward_data": 1, "backward_filter": 2}
_LAYOUT_CODES = {"channels_last": 0, "channels_first": 1}
_FILTER_LAYOUT_CODES = {"hwio": 0, "oihw": 1, "ohwi": 2}

_local_p = Primitive("tuned_convolution_local")
# The custom call itself, of the platform's descriptor: its filter may lie in another order.
_call_p = Primitive("tuned_convolution_call")


def run_local(descriptor: ConvDescriptor, lhs: Any, rhs: Any) -> Any:
    """Compute a descriptor's result from operands that lie on one device whole.

    Only meant for tracing into a lowering: it has no rules for differentiation, those belong to the
    primitive that is lowered.
    """
    return _local_p.bind(lhs, rhs, descriptor=descriptor)


def _abstract_eval(lhs: Any, _rhs: Any, *, descriptor: ConvDescriptor) -> Any:
    return lhs.update(shape=shape_of(descriptor, ROLES[descriptor.direction][2]), weak_type=False)


def attributes(descriptor: ConvDescriptor) -> dict[str, Any]:
    """The custom call's attributes; dims and dtypes are those of its buffers."""
    return {
        "direction": np.int64(_DIRECTION_CODES[descriptor.direction]),
        "layout": np.int64(_LAYOUT_CODES[descriptor.x_layout]),
        "filter_layout": np.int64(_FILTER_LAYOUT_CODES[descriptor.w_layout]),
        "strides": np.array(descriptor.stride, np.int64),
        "pad_before": np.array(descriptor.pad_before, np.int64),
        "pad_after": np.array(descriptor.pad_after, np.int64),
        "dilations": np.array(descriptor.dilation, np.int64),
        "groups": np.int64(descriptor.groups),
        "deterministic": np.int64(descriptor.deterministic),
        "allow_tf32": np.int64(descriptor.allow_tf32),
    }


def _lower_stock(ctx: Any, lhs: Any, rhs: Any, *, descriptor: ConvDescriptor) -> Any:
    return mlir.lower_fun(partial(stock, descriptor), multiple_results=False)(ctx, lhs, rhs)


def call(descriptor: ConvDescriptor, lhs: Any, rhs: Any) -> Any:
    """The custom call with operands and result in Keras's order, whatever the filter's in the descriptor."""
    roles = ROLES[descriptor.direction]
    operands = [
        _as_given(descriptor, array) if role == "w" else array
        for role, array in zip(roles, (lhs, rhs), strict=False)
    ]
    result = _call_p.bind(*operands, descriptor=descriptor)
    return _as_keras_has_it(descriptor, result) if roles[2] == "w" else result


def _as_given(descriptor: ConvDescriptor, kernel: Any) -> Any:
    last = kernel.ndim - 1
    return jax.lax.transpose(kernel, (last, *range(last))) if descriptor.w_layout == "ohwi" else kernel


def _as_keras_has_it(descriptor: ConvDescriptor, kernel: Any) -> Any:
    last = kernel.ndim - 1
    return jax.lax.transpose(kernel, (*range(1, last + 1), 0)) if descriptor.w_layout == "ohwi" else kernel


def _lower_call(ctx: Any, lhs: Any, rhs: Any, *, descriptor: ConvDescriptor) -> Any:
    return ffi_lowering(TARGET)(ctx, lhs, rhs, **attributes(descriptor))


def _lower_for(platform: str) -> Any:
    def lower(ctx: Any, lhs: Any, rhs: Any, *, descriptor: ConvDescriptor) -> Any:
        if not usable(descriptor, platform):
            return _lower_stock(ctx, lhs, rhs, descriptor=descriptor)
        function = partial(call, on_platform(descriptor, platform))
        return mlir.lower_fun(function, multiple_results=False)(ctx, lhs, rhs)

    return lower


for _primitive in (_local_p, _call_p):
    _primitive.def_abstract_eval(_abstract_eval)
mlir.register_lowering(_call_p, _lower_call)
mlir.register_lowering(_local_p, _lower_stock)
for _platform in PLATFORMS:
    try:
        mlir.register_lowering(_local_p, _lower_for(_platform), platform=_platform)
    except NotImplementedError:  # a platform that this JAX does not know
        continue
