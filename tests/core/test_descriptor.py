"""Descriptors and keys: one convolution, one text, and no two convolutions with the same text."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keras_tunedconv.core.descriptor import (
    DIRECTIONS,
    ConvDescriptor,
    ConvPattern,
    forward_descriptor,
    same_padding,
)
from keras_tunedconv.core.errors import InvalidArgumentError

BASE = forward_descriptor((8, 56, 58, 64), (3, 5, 32, 96), strides=(1, 2), padding="same")


def test_key_reads_as_documented():
    assert forward_descriptor((8, 56, 56, 64), (3, 3, 64, 64), padding="same").key == (
        "forward|x=float32:nhwc:8x64x56x56|w=float32:hwio:64x64x3x3|y=float32:nhwc:8x64x56x56"
        "|pad=1,1:1,1|stride=1,1|dilation=1,1|groups=1|mode=cross_correlation|compute=float32|tf32=0"
        "|deterministic=0|epilogue=none"
    )


# Each variation keeps the descriptor consistent, and changes one thing a key must tell apart.
VARIATIONS = {
    "direction": replace(BASE, direction="backward_data"),
    "backward_filter": replace(BASE, direction="backward_filter"),
    "batch": forward_descriptor((9, 56, 58, 64), (3, 5, 32, 96), strides=(1, 2), padding="same"),
    "height": forward_descriptor((8, 57, 58, 64), (3, 5, 32, 96), strides=(1, 2), padding="same"),
    "channels and groups": forward_descriptor(
        (8, 56, 58, 32), (3, 5, 32, 96), strides=(1, 2), padding="same"
    ),
    "filters": forward_descriptor((8, 56, 58, 64), (3, 5, 32, 98), strides=(1, 2), padding="same"),
    "kernel": forward_descriptor((8, 56, 58, 64), (5, 5, 32, 96), strides=(1, 2), padding="same"),
    "stride": forward_descriptor((8, 56, 58, 64), (3, 5, 32, 96), strides=(2, 1), padding="same"),
    # These two have the output of BASE, by other padding and by other dilation.
    "padding shifted": replace(BASE, pad_before=(0, 2), pad_after=(2, 1)),
    "dilation for padding": replace(BASE, dilation=(2, 1), pad_before=(2, 1), pad_after=(2, 2)),
    "x_layout": replace(BASE, x_layout="channels_first"),
    "y_layout": replace(BASE, y_layout="channels_first"),
    "w_layout": replace(BASE, w_layout="oihw"),
    "w_layout ohwi": replace(BASE, w_layout="ohwi"),
    "x_dtype": replace(BASE, x_dtype="float16"),
    "w_dtype": replace(BASE, w_dtype="bfloat16"),
    "y_dtype": replace(BASE, y_dtype="float16"),
    "compute_dtype": replace(BASE, compute_dtype="float64"),
    "allow_tf32": replace(BASE, allow_tf32=True),
    "deterministic": replace(BASE, deterministic=True),
}


def test_every_field_is_in_the_key():
    keys = {name: descriptor.key for name, descriptor in VARIATIONS.items()}
    keys["base"] = BASE.key
    assert len(set(keys.values())) == len(keys)
    varied = {
        f.name
        for f in fields(ConvDescriptor)
        for d in VARIATIONS.values()
        if getattr(d, f.name) != getattr(BASE, f.name)
    }
    assert varied == {f.name for f in fields(ConvDescriptor)}


def test_same_output_size_does_not_share_a_key():
    assert VARIATIONS["padding shifted"].y_dims == BASE.y_dims
    assert VARIATIONS["dilation for padding"].y_dims == BASE.y_dims


@st.composite
def descriptors(draw: st.DrawFn) -> ConvDescriptor:
    rank = draw(st.integers(1, 3))
    groups = draw(st.sampled_from([1, 2, 3]))
    kernel = draw(st.tuples(*[st.integers(1, 5)] * rank))
    strides = draw(st.tuples(*[st.integers(1, 3)] * rank))
    dilation = draw(st.tuples(*[st.integers(1, 3)] * rank))
    # Over 2^31 in one axis, yet no tensor over the core's bound of 2^60 bytes.
    sizes = [st.integers(1, 2**31 + 2**16)] + [st.integers(1, 40)] * (rank - 1)
    spatial = [(k - 1) * d + draw(size) for k, d, size in zip(kernel, dilation, sizes, strict=True)]
    channels, filters = groups * draw(st.integers(1, 90)), groups * draw(st.integers(1, 90))
    data_format = draw(st.sampled_from(["channels_last", "channels_first"]))
    batch = draw(st.sampled_from([1, 3, 64]))
    shape = (batch, *spatial, channels) if data_format == "channels_last" else (batch, channels, *spatial)
    padding = draw(
        st.one_of(
            st.sampled_from(["same", "valid"]),
            st.tuples(*[st.tuples(st.integers(0, 4), st.integers(0, 4))] * rank),
        )
    )
    return replace(
        forward_descriptor(
            shape,
            (*kernel, channels // groups, filters),
            draw(st.sampled_from(["float16", "bfloat16", "float32", "float64"])),
            strides=strides,
            padding=padding,
            data_format=data_format,
            dilation_rate=dilation,
            deterministic=draw(st.booleans()),
            allow_tf32=draw(st.booleans()),
        ),
        direction=draw(st.sampled_from(DIRECTIONS)),
        w_layout=draw(st.sampled_from(["hwio", "oihw", "ohwi"])),
    )


@given(descriptors())
def test_key_and_descriptor_are_inverses(descriptor: ConvDescriptor):
    assert len(descriptor.key) < 640
    assert ConvDescriptor.from_key(descriptor.key) == descriptor
    assert ConvDescriptor.from_c(descriptor.to_c()) == descriptor


@given(descriptors(), st.data())
def test_a_changed_key_is_refused_or_means_something_else(descriptor: ConvDescriptor, data: st.DataObject):
    key = descriptor.key
    at = data.draw(st.integers(0, len(key) - 1))
    changed = key[:at] + data.draw(st.characters(min_codepoint=1, max_codepoint=126)) + key[at + 1 :]
    try:
        other = ConvDescriptor.from_key(changed)
    except InvalidArgumentError:
        return
    assert (other == descriptor) == (changed == key)
    assert other.key == changed


@pytest.mark.parametrize("change", ["", " ", "|x", "|epilogue=none|epilogue=none", "\n"])
def test_what_is_not_canonical_is_refused(change: str):
    with pytest.raises(InvalidArgumentError):
        ConvDescriptor.from_key(BASE.key + change if change else "")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("y_dims", (8, 96, 55, 29)),
        ("groups", 3),
        ("stride", (0, 2)),
        ("dilation", (0, 1)),
        ("pad_before", (-1, 1)),
        ("x_dims", (8, 63, 56, 58)),
        ("x_dims", (-8, 64, 56, 58)),
    ],
)
def test_contradictions_are_refused_by_name(field: str, value: tuple[int, ...]):
    with pytest.raises(InvalidArgumentError) as error:
        _ = replace(BASE, **{field: value}).key
    assert str(error.value)


@pytest.mark.parametrize("size", [1, 2, 7, 8, 224])
@pytest.mark.parametrize("kernel", [1, 2, 3, 7])
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("dilation", [1, 2])
def test_same_padding_gives_the_documented_output_size(size: int, kernel: int, stride: int, dilation: int):
    before, after = same_padding(size, kernel, stride, dilation)
    assert 0 <= after - before <= 1
    assert (size + before + after - (kernel - 1) * dilation - 1) // stride + 1 == -(-size // stride)


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="divisible"):
        forward_descriptor((1, 8, 8, 5), (3, 3, 2, 4))
    with pytest.raises(ValueError, match="equal rank"):
        forward_descriptor((1, 8, 8), (3, 3, 2, 4))
    with pytest.raises(ValueError, match="empty output"):
        forward_descriptor((1, 2, 2, 2), (3, 3, 2, 4))


def pattern(x_shape, padding="same", **changes):
    arguments = {
        "strides": (1, 2),
        "padding": padding,
        "data_format": "channels_last",
        "dilation_rate": (1, 1),
    }
    return ConvPattern.from_shapes(x_shape, (3, 5, 32, 96), "float32", **{**arguments, **changes})


@pytest.mark.parametrize(
    "x_shape", [(8, 56, 58, 64), (None, 56, 58, 64), (None, None, None, 64), (2, 56, None, 64)]
)
def test_a_pattern_finds_its_own(x_shape):
    for direction in DIRECTIONS:
        assert pattern(x_shape).matches(BASE.with_direction(direction))


@pytest.mark.parametrize(
    "name", [n for n in VARIATIONS if n not in ("direction", "backward_filter", "batch", "height")]
)
def test_a_pattern_with_unknown_dims_refuses_others(name: str):
    relaxed = {
        "x_layout",
        "w_layout",
        "w_layout ohwi",
        "y_layout",
        "w_dtype",
        "y_dtype",
        "compute_dtype",
        "allow_tf32",
        "deterministic",
    }
    matches = pattern((None, None, None, 64)).matches(VARIATIONS[name])
    assert matches == (name in relaxed)


def test_a_pattern_tells_known_sizes_and_padding_apart():
    assert not pattern((None, 55, 58, 64)).matches(BASE)
    assert not pattern((None, 56, 58, 64), padding="valid").matches(BASE)
