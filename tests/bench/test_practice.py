"""Benchmarks of daily use: that they run, and count what they say they count. Not how long they take."""

from __future__ import annotations

import keras
import pytest
from click.testing import CliRunner

from keras_tunedconv.bench import sizes, tools
from keras_tunedconv.cli.main import main
from keras_tunedconv.core.descriptor import DIRECTIONS
from keras_tunedconv.tuning.merge import identity
from keras_tunedconv.tuning.schema import decode, encode

needs_bridge = pytest.mark.skipif(
    keras.backend.backend() not in ("tensorflow", "jax", "torch"), reason="no bridge to this backend"
)


@needs_bridge
@pytest.mark.timeout(900)
def test_sizes_are_trained_on_twice_by_stock_and_tuned(monkeypatch):
    monkeypatch.setattr(sizes, "SIZES", (16, 20, 24))
    monkeypatch.setattr(sizes, "_LAYERS", ((4, 2), (4, 1)))
    rounds = []
    report = sizes.run(batch=2, rounds=1, progress=rounds.append)
    assert report["sizes"] == 3
    assert len(rounds) == len(report["rounds"]) == 1
    for name in ("first", "second"):
        assert all(seconds > 0 for seconds in report["seconds"][name].values())
        ratio = report["seconds"][name]["tuned"] / report["seconds"][name]["stock"]
        assert report[f"{name}_pass_ratio"] == pytest.approx(ratio)
    # One size of two layers is measured; the input's gradient is not always asked for.
    assert 5 <= report["measured"] <= 6
    assert report["copied"] == 2 * report["measured"]
    assert report["tuning_seconds"] > 0


def test_many_records_are_different_and_can_be_stored():
    records = tools.many_records(3001)
    assert len({identity(record) for record in records}) == 3001
    assert {record.direction for record in records} == set(DIRECTIONS)
    assert decode(encode(records)).records == records


def test_inspecting_a_large_file_is_timed():
    report = tools.inspect(50, rounds=1)
    assert report["entries"] == 50
    assert report["seconds"] > 0
    assert report["bytes"] > 1000


def test_a_process_that_fails_is_an_error_with_what_it_wrote():
    with pytest.raises(RuntimeError, match=r"ended with status 1:[\s\S]*no such model"):
        tools.warm_up("no such model", [1], budget=1.0)


@pytest.mark.parametrize("budget", ["0", "-1", "nan"])
def test_a_budget_that_is_none_is_refused(budget):
    result = CliRunner().invoke(main, ["bench", "warm-up", "resnet50", "--budget", budget])
    assert result.exit_code == 2
    assert "budget" in result.output
