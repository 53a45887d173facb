"""Timing in turn, with clocks that do what the test says."""

import math

import pytest

from keras_tunedconv.bench.timing import (
    MINIMUM_ROUNDS,
    SLOW_ROUNDS,
    Timing,
    geometric_mean,
    race,
    sampler,
    take_turns,
)


def scripted(name, seconds, log):
    """A sampler that claims a time without taking it."""

    def sample(repeats):
        log.append((name, repeats))
        return seconds

    return sample


def test_contenders_take_turns_and_long_runs_are_not_repeated():
    log = []
    timings = race({"a": scripted("a", 0.5, log), "b": scripted("b", 0.6, log)}, seconds=0.0)
    assert {name: t.median for name, t in timings.items()} == {"a": 0.5, "b": 0.6}
    rounds = [name for name, _ in log[4:]]
    assert rounds == ["a", "a", "b", "b"] * MINIMUM_ROUNDS
    assert {repeats for _, repeats in log} == {1}


def test_short_runs_are_repeated_within_a_sample():
    log = []
    race({"a": scripted("a", 0.001, log)}, seconds=0.0)
    assert ("a", 20) in log


def test_a_hopelessly_slow_contender_takes_part_in_the_first_rounds_only():
    timings = race({"fast": scripted("f", 0.01, []), "slow": scripted("s", 2.0, [])}, seconds=0.0)
    assert len(timings["slow"].samples) == SLOW_ROUNDS
    assert len(timings["fast"].samples) == MINIMUM_ROUNDS


def test_turns_are_taken_as_often_and_as_long_as_asked():
    log = []
    contenders = {"a": scripted("a", 0.5, log), "b": scripted("b", 0.6, log)}
    timings = take_turns(contenders, rounds=3, repeats=7)
    assert log == [("a", 7), ("b", 7)] * 3
    assert {name: t.samples for name, t in timings.items()} == {"a": [0.5] * 3, "b": [0.6] * 3}


def test_median_and_spread():
    timing = Timing(samples=[1.0, 1.0, 1.0, 1.0, 5.0])
    assert timing.median == 1.0
    assert Timing(samples=[1.0] * 8).spread == 0.0
    assert timing.spread > 0.0
    assert Timing(samples=[1.0, 3.0]).spread == 1.0


def test_sampler_waits_once_after_all_runs():
    events = []
    sampler(lambda: events.append("run"), lambda: events.append("wait"))(3)
    assert events == ["run", "run", "run", "wait"]


def test_geometric_mean():
    assert geometric_mean([1.0, 4.0]) == pytest.approx(2.0)
    assert math.isnan(geometric_mean([]))
