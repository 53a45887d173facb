"""Who wins when two records say something about the same thing."""

import time
from dataclasses import replace

import pytest
from tuning_data import ELSEWHERE, make_record

from keras_tunedconv.core.record import Provenance
from keras_tunedconv.tuning.merge import identity, leave_room, merge_into, outdates, prefer, supersede

NOW = int(time.time())


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        ({"provenance": Provenance.OVERRIDE, "time_seconds": 9.0}, {"provenance": Provenance.MEASURED}),
        ({"provenance": Provenance.MEASURED, "time_seconds": 9.0}, {"provenance": Provenance.COPIED}),
        ({"provenance": Provenance.COPIED, "time_seconds": 9.0}, {"provenance": Provenance.PREDICTED}),
        ({"time_seconds": 1.0, "candidates_tried": 3}, {"time_seconds": 2.0, "candidates_tried": 9}),
        ({"candidates_tried": 9}, {"candidates_tried": 3}),
        ({"time_seconds": 1.0, "created": NOW - 50}, {"time_seconds": 0.0, "created": NOW}),
        ({"created": NOW}, {"created": NOW - 50}),
        ({"created": NOW}, {"created": NOW + 10**8}),
    ],
)
def test_precedence(better, worse):
    good, bad = make_record(**better), make_record(**worse)
    assert prefer(good, bad) is good
    assert prefer(bad, good) is good


def test_of_equals_the_first_stays():
    first, second = make_record(algorithm="a"), make_record(algorithm="b")
    assert prefer(first, second) is first


@pytest.mark.parametrize("provenance", [Provenance.SHIPPED, Provenance.IMPORTED])
def test_shipped_and_imported_entries_count_as_measured(provenance):
    slow, fast = make_record(provenance=provenance, time_seconds=2.0), make_record(time_seconds=1.0)
    assert prefer(slow, fast) is fast


def test_what_runs_here_beats_a_stored_claim_of_less_time():
    stored = make_record(time_seconds=1e-12, created=NOW - 50)
    running = make_record(time_seconds=1.0, created=NOW)
    assert supersede(stored, running) is running
    # A stored claim from the time to come does not stand in the way.
    assert supersede(make_record(time_seconds=1e-12, created=NOW + 10**8), running) is running


def test_a_guess_that_runs_here_does_not_replace_a_stored_measurement():
    stored = make_record(created=NOW - 50)
    assert supersede(stored, make_record(provenance=Provenance.PREDICTED, created=NOW)) is stored


def test_environments_do_not_compete():
    here, there = make_record(), make_record(environment=ELSEWHERE)
    known = {identity(here): here}
    assert merge_into(known, [there]) == [there]
    assert set(known.values()) == {here, there}


def test_merging_tells_what_changed():
    slow, fast = make_record(time_seconds=2.0), make_record(time_seconds=1.0)
    known = {identity(slow): slow}
    assert merge_into(known, [fast]) == [fast]
    assert merge_into(known, [slow]) == []
    assert list(known.values()) == [fast]


def of_version(version, **fields):
    return make_record(environment=f"engine=cudnn;version={version};device=a GPU", **fields)


@pytest.mark.parametrize(("newer", "older"), [("9.10", "9.9"), ("10.0.0", "9.19.0"), ("9.19.0", "9.19")])
def test_a_newer_library_stands_above_an_older_one_whatever_the_times(newer, older):
    new = of_version(newer, time_seconds=2.0, created=NOW - 50)
    old = of_version(older, time_seconds=1.0, created=NOW - 60)
    assert identity(new) != identity(old)
    assert outdates(new, old)
    assert not outdates(old, new)


def test_of_patch_levels_the_higher_stands_above_whatever_else_is_soft():
    new = of_version("9.19", created=NOW - 50)
    old = replace(new, environment=f"{new.environment};~driver=580.1;~patch=3", created=NOW - 40)
    new = replace(new, environment=f"{new.environment};~driver=570.9;~patch=10")
    assert outdates(new, old)
    assert not outdates(old, new)


def test_libraries_of_other_devices_are_not_compared():
    earlier, later = make_record(created=NOW - 50), make_record(environment=ELSEWHERE, created=NOW)
    assert outdates(later, earlier)
    assert not outdates(earlier, later)


def test_outdated_libraries_give_way_first_then_the_oldest():
    outdated = of_version("9.1", created=NOW)
    current = of_version("9.2", created=NOW - 90)
    old, new = make_record(created=NOW - 50), make_record(environment=ELSEWHERE, created=NOW - 40)
    every = [new, outdated, old, current]
    assert set(leave_room(every, 3)) == {new, old, current}
    assert set(leave_room(every, 2)) == {new, old}
    assert leave_room(every, 0) == []
    assert set(leave_room(every, 9)) == set(every)
