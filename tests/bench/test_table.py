"""Results as text."""

import numpy as np

from keras_tunedconv.bench import table
from keras_tunedconv.bench.conv import ConvResult, geometric_means, relative_difference


def result(**milliseconds):
    return ConvResult("8,3,9,4,3,1,1", "forward", "graph", milliseconds, {}, "jit:avx2#0", 1e-7)


def test_ratios_come_from_the_medians():
    r = result(stock=30.0, tuned=10.0, engine=8.0)
    assert (r.stock_over_tuned, r.tuned_over_engine, r.framework_over_tuned) == (3.0, 1.25, None)
    means = geometric_means([r, result(stock=120.0, tuned=10.0)])
    assert round(means["stock_over_tuned"], 9) == 6.0
    assert means["tuned_over_engine"] == 1.25
    assert "framework_over_tuned" not in means


def test_markdown_has_a_row_a_result_and_drops_empty_columns():
    headers, rows = table.drop_empty(table.HEADERS, [table.row(result(stock=30.0, tuned=10.0))])
    assert "framework ms" not in headers
    lines = table.markdown(headers, rows).splitlines()
    assert len(lines) == 3
    assert len({len(line) for line in lines}) == 1
    cells = dict(zip(headers, (c.strip() for c in lines[2].strip("|").split("|")), strict=True))
    assert cells["stock ms"] == "30.0"
    assert cells["stock/tuned"] == "3.00"
    assert cells["difference"] == "1.0e-07"


def test_a_bar_in_a_cell_does_not_end_it():
    assert "a\\|b" in table.markdown(("x",), [["a|b"]])


def test_numbers():
    assert [table.number(v) for v in (None, 0.01234, 1.0, 12.34, 123.4, 12345.6)] == [
        "-",
        "0.0123",
        "1.00",
        "12.3",
        "123",
        "12346",
    ]


def test_relative_difference_is_infinite_for_nan():
    expected = np.array([1.0, -4.0])
    assert relative_difference(np.array([1.0, -3.0]), expected) == 0.25
    assert relative_difference(np.array([np.nan, -4.0]), expected) == np.inf
