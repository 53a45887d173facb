"""The XLA FFI handler by itself: what it says of itself, and what it makes of good and bad custom calls."""

from __future__ import annotations

import ctypes
import os
from dataclasses import replace

import numpy as np
import pytest

from keras_tunedconv.core import engines, registry
from keras_tunedconv.core.config import config
from keras_tunedconv.core.descriptor import DIRECTIONS, forward_descriptor
from keras_tunedconv.core.library import ffi, lib
from tests.reference import OPERANDS, OUTPUTS, expect, random_operands

# ---- the metadata call, with the structures of XLA's c_api.h --------------------------------------------


class _Extension(ctypes.Structure):
    _fields_ = (("struct_size", ctypes.c_size_t), ("type", ctypes.c_int), ("next", ctypes.c_void_p))


class _Version(ctypes.Structure):
    _fields_ = (
        ("struct_size", ctypes.c_size_t),
        ("extension_start", ctypes.c_void_p),
        ("major", ctypes.c_int),
        ("minor", ctypes.c_int),
    )


class _Metadata(ctypes.Structure):
    _fields_ = (("struct_size", ctypes.c_size_t), ("version", _Version), ("traits", ctypes.c_uint32))


class _MetadataExtension(ctypes.Structure):
    _fields_ = (("base", _Extension), ("metadata", ctypes.POINTER(_Metadata)))


class _Operands(ctypes.Structure):
    """XLA_FFI_Args, XLA_FFI_Rets; XLA_FFI_Attrs has one pointer more."""

    _fields_ = (
        ("struct_size", ctypes.c_size_t),
        ("extension_start", ctypes.c_void_p),
        ("size", ctypes.c_int64),
        ("types", ctypes.c_void_p),
        ("values", ctypes.c_void_p),
    )


class _CallFrame(ctypes.Structure):
    _fields_ = (
        ("struct_size", ctypes.c_size_t),
        ("extension_start", ctypes.POINTER(_MetadataExtension)),
        ("api", ctypes.c_void_p),
        ("ctx", ctypes.c_void_p),
        ("stage", ctypes.c_int),
        ("args", _Operands),
        ("rets", _Operands),
        ("attrs", _Operands),
        ("attribute_values", ctypes.c_void_p),
    )


@pytest.mark.parametrize("field", ["xla_handler_host", "xla_handler_cuda"])
def test_metadata(field):
    """Built against the oldest FFI supported, since a runtime refuses a handler that is newer than itself."""
    metadata = _Metadata(struct_size=_Metadata.traits.offset + 4, traits=77)
    extension = _MetadataExtension(
        base=_Extension(struct_size=ctypes.sizeof(_MetadataExtension), type=1),
        metadata=ctypes.pointer(metadata),
    )
    frame = _CallFrame(
        struct_size=ctypes.sizeof(_CallFrame), extension_start=ctypes.pointer(extension), stage=3
    )
    handler = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(
        int(ffi.cast("uintptr_t", getattr(lib.tc_get_api(), field)))
    )
    assert handler(ctypes.addressof(frame)) is None
    assert (metadata.version.major, metadata.version.minor) == (0, 1)
    assert metadata.traits == 0  # above all not command-buffer compatible


# ---- calls, through JAX ---------------------------------------------------------------------------------

needs_jax = pytest.mark.skipif(os.environ["KERAS_BACKEND"] != "jax", reason="needs KERAS_BACKEND=jax")

CASES = {
    "channels last": forward_descriptor(
        (2, 9, 8, 4), (3, 2, 2, 6), strides=(2, 1), padding=[(1, 2), (0, 1)], dilation_rate=(1, 2)
    ),
    "channels first": forward_descriptor(
        (2, 4, 9, 8), (3, 3, 4, 6), padding="same", data_format="channels_first"
    ),
    "one axis": forward_descriptor((2, 9, 4), (3, 4, 6), strides=2, padding="same"),
    "three axes": forward_descriptor((1, 4, 5, 6, 2), (2, 3, 2, 2, 4)),
    "bfloat16": forward_descriptor((2, 6, 6, 8), (3, 3, 8, 8), "bfloat16"),
}


@pytest.fixture
def call():
    jax = pytest.importorskip("jax")
    from keras_tunedconv.bridges.jax.targets import TARGET, ensure_ready

    ensure_ready("cpu")

    def call(operands, result, **attributes):
        made = jax.ffi.ffi_call(TARGET, jax.ShapeDtypeStruct(result.shape, result.dtype))
        return np.asarray(jax.jit(lambda *a: made(*a, **attributes))(*operands))

    with config.override(key_budget=0.02, minimum_runs=1):
        yield call


def _attributes(descriptor):
    def axes(values):
        return np.array(values, np.int64)

    return {
        "direction": np.int64(DIRECTIONS.index(descriptor.direction)),
        "layout": np.int64(descriptor.x_layout == "channels_first"),
        "filter_layout": np.int64(("hwio", "oihw", "ohwi").index(descriptor.w_layout)),
        "strides": axes(descriptor.stride),
        "pad_before": axes(descriptor.pad_before),
        "pad_after": axes(descriptor.pad_after),
        "dilations": axes(descriptor.dilation),
        "groups": np.int64(descriptor.groups),
        "deterministic": np.int64(descriptor.deterministic),
        "allow_tf32": np.int64(descriptor.allow_tf32),
    }


@needs_jax
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("filter_layout", ["hwio", "oihw", "ohwi"])
@pytest.mark.parametrize("name", CASES)
def test_values(call, name, filter_layout, direction):
    descriptor = replace(CASES[name], direction=direction, w_layout=filter_layout)
    if not engines.supported(descriptor):
        pytest.skip("the engine has no algorithm for this filter layout")
    arrays = dict(zip(OPERANDS, random_operands(descriptor), strict=True))
    expect(descriptor, **arrays).check(_run(call, descriptor, arrays))
    assert {record.key for record in registry.collect()[0]} == {descriptor.key}


@needs_jax
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_empty_batch(call, direction):
    descriptor = replace(forward_descriptor((0, 6, 6, 2), (3, 3, 2, 4)), direction=direction)
    arrays = dict(zip(OPERANDS, random_operands(descriptor), strict=True))
    np.testing.assert_array_equal(_run(call, descriptor, arrays), np.zeros_like(arrays[OUTPUTS[direction]]))
    assert registry.collect() == ([], 0)


def _run(call, descriptor, arrays):
    result = OUTPUTS[descriptor.direction]
    operands = [arrays[operand] for operand in OPERANDS if operand != result]
    return call(operands, arrays[result], **_attributes(descriptor))


BAD_CALLS = {
    "direction": ({"direction": np.int64(3)}, "expected direction 0, 1 or 2"),
    "layout": ({"layout": np.int64(2)}, "expected layout 0 or 1"),
    "filter layout": ({"filter_layout": np.int64(-1)}, "filter_layout 0 to 2"),
    "strides of another rank": ({"strides": np.array([1], np.int64)}, "length 2"),
    "stride of zero": ({"strides": np.array([0, 1], np.int64)}, "stride"),
    "groups that do not fit": ({"groups": np.int64(3)}, "groups"),
    "padding that does not fit": ({"pad_after": np.array([5, 5], np.int64)}, "y_dims"),
    "an attribute of another type": ({"groups": np.int32(1)}, "(?i)wrong scalar data type|decode"),
    "an attribute too many": ({"more": np.int64(1)}, "(?i)wrong number of attributes|decode"),
}


@needs_jax
@pytest.mark.parametrize("name", BAD_CALLS)
def test_bad_attributes(call, name):
    change, message = BAD_CALLS[name]
    x, w, y = random_operands(forward_descriptor((2, 6, 6, 2), (3, 3, 2, 4)))
    attributes = _attributes(forward_descriptor((2, 6, 6, 2), (3, 3, 2, 4))) | change
    with pytest.raises(Exception, match=message):
        call([x, w], y, **attributes)
    assert registry.collect() == ([], 0)


@needs_jax
def test_bad_buffers(call):
    descriptor = forward_descriptor((2, 6, 6, 2), (3, 3, 2, 4))
    x, w, y = random_operands(descriptor)
    attributes = _attributes(descriptor)
    with pytest.raises(Exception, match="equal rank"):
        call([x[0], w], y, **attributes)
    with pytest.raises(Exception, match="x_dtype"):
        call([x.astype(np.int32), w], y, **attributes)
    with pytest.raises(Exception, match="Wrong number of arguments"):
        call([x, w, w], y, **attributes)
