"""Rows: ratios, means, and the table and lines made of them."""

import json

import pytest

from keras_tunedconv.bench.peers import text
from keras_tunedconv.bench.peers.result import Row, geometric_means, largest_difference

SECONDS = {"tuned": 40e-6, "default": 60e-6, "torch": 50e-6, "torch_benchmark": 44e-6, "xla": 42e-6}


def row(problem="64,64,56,64,3,1,1,dtype=float16", **changes):
    return Row(problem, "forward", **{"seconds": dict(SECONDS), **changes})


def cells(line):
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_the_best_peer_is_the_fastest_of_those_there_are_and_not_the_own_library():
    assert row().over_tuned("best_peer") == pytest.approx(42 / 40)
    assert row(seconds={"tuned": 2.0, "default": 1.0, "torch": 6.0}).over_tuned("best_peer") == 3.0
    assert row(seconds={"tuned": 2.0, "default": 1.0}).over_tuned("best_peer") is None
    assert row(seconds={"torch": 2.0}).over_tuned("torch") is None


def test_means_are_over_the_rows_that_have_both():
    rows = [
        row(seconds={"tuned": 1.0, "torch": 4.0, "xla": 2.0}),
        row(seconds={"tuned": 1.0, "torch": 1.0}),
        row(seconds={"torch": 9.0}),
        row(seconds={}),
    ]
    assert geometric_means(rows) == pytest.approx({"torch": 2.0, "xla": 2.0, "best_peer": 2.0**0.5})


def test_a_row_is_json_with_its_ratios():
    found = json.loads(json.dumps(row(algorithm="eng5", difference=1e-3).to_dict()))
    assert found["algorithm"] == "eng5"
    assert found["measured"]
    assert found["over_tuned"]["default"] == pytest.approx(1.5)
    assert found["over_tuned"]["best_peer"] == pytest.approx(1.05)
    assert not Row("8,64,56,64,3,1,1", "forward").to_dict()["measured"]


def test_the_table_gives_microseconds_and_says_what_was_not_measured():
    rows = [row(), row("64,3,224,64,7,2,1,dtype=float16,count=2", seconds={})]
    headers, _, first, second = text.table(rows, "cuda").splitlines()
    assert cells(headers)[2:] == [
        "tuned",
        "cuDNN's first choice",
        "torch",
        "torch, benchmark",
        "XLA",
        "best peer/tuned",
    ]
    assert cells(first) == ["`64,64,56,64,3,1,1`", "forward", "40.0", "60.0", "50.0", "44.0", "42.0", "1.05"]
    assert cells(second) == ["`64,3,224,64,7,2,1`", "forward", text.NOT_MEASURED, "-", "-", "-", "-", "-"]


def test_a_peer_that_no_row_has_is_no_column():
    table = text.table([row(seconds={"tuned": 1e-6, "torch": 2e-6})], "cpu")
    assert "XLA" not in table
    assert "oneDNN's first choice" not in table


def test_unlike_dtypes_stay_in_the_problems():
    rows = [row(), row("64,64,56,64,3,1,1")]
    assert text.short_problems(rows) == [each.problem for each in rows]
    assert text.dtypes(rows) == ["float16", "float32"]


def test_the_summary_tells_of_means_differences_and_what_is_missing():
    rows = [
        row(difference=1e-4),
        row(difference=3e-4, left_out={"xla": "no memory"}),
        row(seconds={}),
    ]
    assert largest_difference(rows) == (3e-4, rows[1])
    lines = list(text.summary(rows, "cuda"))
    assert "geometric mean of torch, benchmark / tuned: 1.100" in lines
    assert "geometric mean of best of these / tuned: 1.050" in lines
    assert any("3.0e-04" in line for line in lines)
    assert any("XLA left out: no memory" in line for line in lines)
    assert lines[-1].startswith("1 of 3 not measured")


def test_nothing_measured_is_a_table_too():
    rows = [row(seconds={})]
    assert text.NOT_MEASURED in text.table(rows, "cuda")
    assert list(text.summary(rows, "cuda"))[-1].startswith("1 of 1 not measured")
