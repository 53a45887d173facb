"""How a convolution is split over devices: the choice, and what it is for Shardy."""

from __future__ import annotations

import os

import pytest

from keras_tunedconv.core.descriptor import DIRECTIONS, forward_descriptor

if os.environ["KERAS_BACKEND"] != "jax":
    pytest.skip("needs KERAS_BACKEND=jax", allow_module_level=True)

from jax.sharding import AbstractMesh, NamedSharding
from jax.sharding import PartitionSpec as P

from keras_tunedconv.bridges.jax.partitioning import sharding_rule
from keras_tunedconv.bridges.jax.split import choose_split, margins

MESH = AbstractMesh((2, 4), ("data", "model"))


def descriptor(x=(8, 16, 12, 16), w=(3, 3, 16, 24), **arguments):
    return forward_descriptor(x, w, **({"padding": "same"} | arguments))


def split(d, **specs):
    return choose_split(d, MESH, {role: NamedSharding(MESH, spec) for role, spec in specs.items()})


def test_images_follow_the_input():
    s = split(descriptor(), x=P("data"))
    assert (s.images, s.inputs, s.outputs, s.places) == (("data",), (), (), ((), ()))
    local = s.local(descriptor(), MESH)
    assert (local.x_dims[0], local.y_dims[0]) == (4, 4)
    assert s.summed_axes(descriptor()) == ()
    assert s.summed_axes(descriptor().with_direction("backward_data")) == ()
    assert s.summed_axes(descriptor().with_direction("backward_filter")) == ("data",)


def test_output_channels_follow_the_filter():
    s = split(descriptor(), x=P("data"), w=P(None, None, None, "model"))
    assert s.spec(descriptor(), "y") == P(("data",), None, None, ("model",))
    assert s.local(descriptor(), MESH).w_dims == (6, 16, 3, 3)
    assert s.summed_axes(descriptor().with_direction("backward_data")) == ("model",)


def test_input_channels_leave_partial_sums():
    s = split(descriptor(), x=P(None, None, None, "model"))
    assert s.spec(descriptor(), "w") == P(None, None, ("model",), None)
    assert s.summed_axes(descriptor()) == ("model",)


def test_an_axis_of_the_mesh_is_used_once():
    s = split(descriptor(), x=P("data", None, None, "model"), w=P(None, None, None, "model"))
    assert (s.images, s.inputs, s.outputs) == (("data",), (), ("model",))


@pytest.mark.parametrize("w_axis", ["data", "model"])
def test_groups_are_split_whole(w_axis):
    d = descriptor(w=(3, 3, 8, 24))  # two groups
    s = split(d, w=P(None, None, None, w_axis))
    if w_axis == "model":
        assert (s.inputs, s.outputs) == ((), ())
        return
    assert s.inputs == s.outputs == ("data",)
    local = s.local(d, MESH)
    assert (local.groups, local.x_dims[1], local.w_dims, local.y_dims[1]) == (1, 8, (12, 8, 3, 3), 12)
    assert s.summed_axes(d) == ()


def test_what_does_not_divide_is_not_split():
    assert split(descriptor(x=(6, 16, 12, 16)), x=P("model")).images == ()


def test_layouts_are_told_apart():
    d = descriptor(x=(8, 16, 12, 16), data_format="channels_first")
    s = split(d, x=P("data", "model"))
    assert (s.images, s.inputs) == (("data",), ("model",))
    assert s.spec(d, "x") == P(("data",), ("model",), None, None)


def test_places_have_margins():
    d = descriptor(strides=2)
    s = split(d, x=P(None, "model"))
    assert s.places == (("model",), ())
    local = s.local(d, MESH)
    assert margins(d, 0) == (0, 1)
    assert (local.x_dims[2], local.y_dims[2], local.pad_before, local.pad_after) == (5, 2, (0, 0), (0, 1))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"padding": "valid"}, "parts of the input would differ"),
        ({"x": (8, 10, 12, 16), "strides": 2}, "five outputs for four devices"),
        ({"x": (8, 4, 12, 16), "w": (7, 7, 16, 24)}, "margins reach beyond the neighbour"),
    ],
)
def test_places_that_are_not_split(change, reason):
    assert split(descriptor(**change), x=P(None, "model")).places == ((), ()), reason


RULES = {
    "forward": "n p0 p1 i, w0 w1 i o -> n p0 p1 o",
    "backward_data": "w0 w1 i o, n p0 p1 o -> n p0 p1 i",
    "backward_filter": "n p0 p1 i, n p0 p1 o -> w0 w1 i o",
}


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_rule_of_a_plain_convolution(direction):
    rule, arguments = sharding_rule(descriptor().with_direction(direction))
    assert rule == RULES[direction]
    assert arguments["need_replication_factors"] == ("w0", "w1")
    summed = {"forward": ("i",), "backward_data": ("o",), "backward_filter": ("n", "p0", "p1")}
    assert arguments["reduction_factors"] == summed[direction]


def test_rule_with_groups_strides_and_the_other_layout():
    d = descriptor(x=(8, 16, 12, 13), w=(3, 3, 8, 24), strides=2, data_format="channels_first")
    rule, arguments = sharding_rule(d)
    assert rule == "n (g i) (p0 s0) x1, w0 w1 i (g o) -> n (g o) p0 y1"
    assert arguments == {
        "need_replication_factors": ("i", "s0", "x1", "w0", "w1", "o", "y1"),
        "reduction_factors": (),
        "permutation_factors": ("p0",),
        "s0": 2,
        "g": 2,
        "o": 12,
    }


def test_rule_of_a_depthwise_convolution():
    rule, arguments = sharding_rule(descriptor(w=(3, 3, 1, 16)))
    assert rule == "n p0 p1 g, w0 w1 i g -> n p0 p1 g"
    assert "g" not in arguments
