"""What the cost model learns from: names taken apart, averages around a convolution, forests."""

import math

import numpy as np
import pytest

from keras_tunedconv.core.descriptor import forward_descriptor
from keras_tunedconv.prediction import forest
from keras_tunedconv.prediction.features import listing, place, problem
from keras_tunedconv.prediction.likeness import Likeness, Seen, near
from keras_tunedconv.prediction.names import kinds, parts

# ---- names -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "engine", "settings", "variants"),
    [
        ("cudnn:eng58:k25=0,k2=13/fold/swapped", "cudnn:eng58", {"k25=0", "k2=13"}, ("fold", "swapped")),
        ("cudnn:eng0/channels=16", "cudnn:eng0", set(), ("channels=16",)),
        ("onednn:jit_dw:avx512_core#0/plain", "onednn:jit_dw", {"avx512_core", "0"}, ("plain",)),
        ("cuda:depthwise", "cuda:depthwise", set(), ()),
        ("default", "default:", set(), ()),
        ("", ":", set(), ()),
        ("::/:#/", ":", {":"} - {":"}, (":#", "")),
    ],
)
def test_names_are_taken_apart(name, engine, settings, variants):
    found = parts(name)
    assert (found.engine, set(found.settings), found.variants) == (engine, settings, variants)


def test_knobs_are_numbers_and_other_parts_flags():
    assert parts("cudnn:eng1:k2=7,fast/swapped").columns == {
        "engine cudnn:eng1": 1.0,
        "knob k2": 7.0,
        "setting fast": 1.0,
        "variant swapped": 1.0,
    }
    assert parts("a:b:k2=" + "9" * 400).columns["setting k2=" + "9" * 400] == 1.0


def test_kinds_go_from_the_engine_to_the_name():
    one, other = kinds("cudnn:eng1:k2=1/swapped"), kinds("cudnn:eng1:k2=2/swapped")
    assert one[:2] == other[:2]
    assert one[2] != other[2]
    assert kinds("cudnn:eng1:k2=1")[0] == one[0]
    assert kinds("cudnn:eng1:k2=1")[1] != one[1]


def test_a_list_tells_places_and_what_is_like_the_default():
    names = ["x:a:k1=1", "x:b", "x:a:k1=1/swapped", "x:a:k1=2"]
    rows = listing(names)
    assert rows[:, 0].tolist() == [0, 1, 2, 3]
    assert rows[:, 2].tolist() == [0, 1, 0, 2]  # among those of the variant
    assert rows[:, 4].tolist() == [0, 0, 0, 1]  # among those of the engine and the variant
    assert rows[:, 6].tolist() == [1, 0, 1, 1]  # the default's engine
    assert rows[:, 7].tolist() == [1, 1, 0, 1]  # the default's variant


# ---- averages around a convolution -------------------------------------------------------------------------


def described(channels, size=16):
    return forward_descriptor((8, size, size, channels), (3, 3, channels, channels), padding="same")


def seen(channels, size=16, family="here", **slowness):
    descriptor = described(channels, size)
    names = {name.replace("_", ":"): value for name, value in slowness.items()}
    return Seen(place(descriptor), family, problem(descriptor), names)


def test_the_nearer_count_more():
    likeness = Likeness([seen(8, x_a=0.0, x_b=0.9), seen(512, x_a=0.9, x_b=0.0)])
    for channels, best in ((10, 0), (400, 1)):
        found = near(likeness.around(place(described(channels)), "here", ["x:a", "x:b"]))
        assert found.argmin() == best
        assert np.all((found >= 0) & (found <= 1))


def test_rare_names_are_judged_by_their_kind():
    many = [seen(16, size, **{"x_a_k1=1": 0.1, "x_b_k1=1": 0.8}) for size in range(8, 16)]
    likeness = Likeness([*many, seen(17, **{"x_a_k1=2": 0.1})])
    names = ["x:a:k1=3", "x:b:k1=3", "x:c"]
    of_a, of_b, unknown = near(likeness.around(place(described(16)), "here", names))
    assert of_a < 0.2 < 0.6 < of_b
    assert unknown == pytest.approx(0.7)


def test_other_families_count_less():
    likeness = Likeness([seen(16, x_a=0.0), seen(16, family="there", x_a=1.0)])
    names = ["x:a"]
    here, there = (
        near(likeness.around(place(described(16)), family, names))[0] for family in ("here", "there")
    )
    assert here < 0.4 < 0.6 < there


def test_a_layer_tells_nothing_about_itself():
    alone = seen(16, x_a=0.0)
    other = seen(64, x_a=0.9)
    likeness = Likeness([alone, seen(16, family="there", x_a=0.0), other])
    expected = Likeness([other]).around(alone.place, "here", ["x:a"])
    np.testing.assert_allclose(likeness.around_seen(0, ["x:a"]), expected)


# ---- forests ------------------------------------------------------------------------------------------


def test_forests_learn_what_depends_on_two_features():
    random = np.random.default_rng(0)
    rows = random.random((600, 5))
    target = np.where(rows[:, 1] > 0.5, rows[:, 3], 1 - rows[:, 3])
    grown = forest.grow(rows[:400], target[:400], trees=16, draws=8)
    error = np.abs(grown.predict(rows[400:]) - target[400:]).mean()
    assert error < 0.1 < np.abs(target[400:] - target.mean()).mean()


def test_equal_data_give_equal_forests():
    rows = np.random.default_rng(1).random((50, 3))
    one, other = (forest.grow(rows, rows[:, 0], trees=4, draws=4) for _ in range(2))
    np.testing.assert_array_equal(one.predict(rows), other.predict(rows))
    third = forest.grow(rows, rows[:, 0], trees=4, draws=4, seed=1)
    assert not np.array_equal(one.predict(rows), third.predict(rows))


@pytest.mark.parametrize("count", [1, 2, 5, 7])
def test_few_and_equal_rows_give_their_mean(count):
    rows, target = np.ones((count, 2)), np.arange(count, dtype=float)
    grown = forest.grow(rows, target, trees=3, draws=4)
    np.testing.assert_allclose(grown.predict(rows[:1]), target.mean())
    assert np.all(grown.left == -1)


def test_leaves_are_not_of_single_rows():
    rows = np.arange(40.0).reshape(-1, 1)
    target = (rows[:, 0] == 20).astype(float)
    found = forest.grow(rows, target, trees=8, draws=16).predict(rows)
    assert found.max() <= 1 / 3 + 1e-12
    assert math.isclose(float(np.abs(found).min()), 0.0)
