"""Short texts for tables."""

import pytest
from tuning_data import make_keys

from keras_tunedconv.tuning import describe
from keras_tunedconv.tuning.describe import format_problem, format_seconds


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 s"),
        (12.345, "12.3 s"),
        (1.0, "1 s"),
        (0.012345, "12.3 ms"),
        (1.25e-4, "125 us"),
        (9.996e-4, "1 ms"),
        (0.9996, "1 s"),
        (-2e-3, "-2 ms"),
    ],
)
def test_durations(seconds, text):
    assert format_seconds(seconds) == text


def test_shapes_tell_what_is_out_of_the_ordinary():
    key = make_keys((2, 9, 9, 4), (3, 3, 2, 6), strides=(2, 1))[0]
    assert format_problem(key) == "2x4x9x9 filter 6x2x3x3 stride 2x1 groups 2 float32"
    key = make_keys((2, 9, 9, 4), (3, 3, 4, 6), dilation_rate=2, dtype="bfloat16")[0]
    assert format_problem(key) == "2x4x9x9 filter 6x4x3x3 dilation 2x2 bfloat16"


def test_padding_is_told_once_where_it_is_even():
    even = make_keys((2, 9, 9, 4), (3, 3, 4, 6), padding="same")[0]
    odd = make_keys((2, 9, 9, 4), (2, 2, 4, 6), padding="same")[0]
    assert " pad 1x1 " in format_problem(even)
    assert " pad 0x0:1x1 " in format_problem(odd)


def test_what_is_no_key_is_shown_as_it_is(monkeypatch):
    assert format_problem("forward|something") == "something"
    monkeypatch.setattr(describe, "lib", None)
    key = make_keys((2, 9, 9, 4), (3, 3, 4, 6))[0]
    assert format_problem(key) == key.partition("|")[2]


def test_a_plain_table_is_aligned_and_as_wide_as_its_cells():
    made = describe.plain_table(("layer", "time"), [("conv", "1 ms"), ("a longer name", "12.5 ms")])
    assert made.splitlines() == ["layer             time", "conv              1 ms", "a longer name  12.5 ms"]
    assert describe.plain_table(("layer", "time"), []) == "layer  time"
