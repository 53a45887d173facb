"""Candidates in the database: beside the entries, in step with them, and never in their way."""

from dataclasses import replace

import h5py
import hostile
import numpy as np
import pytest
from tuning_data import ELSEWHERE, content, make_record, make_records, make_search, make_searches

from keras_tunedconv.core.trials import TrialState
from keras_tunedconv.tuning import database, schema, trial_schema
from keras_tunedconv.tuning.database import DatabaseError, keep_only, merge_into, read, read_searches
from keras_tunedconv.tuning.merge import merge_searches


@pytest.fixture
def path(tmp_path):
    return tmp_path / "tuning.h5"


def by_key(searches):
    return sorted(searches, key=lambda search: (search.environment, search.key))


def test_candidates_come_back(path):
    merge_into(path, make_records(5), searches=make_searches(5))
    assert by_key(read_searches(path).searches) == by_key(make_searches(5))
    assert content(read(path).records) == content(make_records(5))


def test_a_database_without_candidates_is_one(path):
    merge_into(path, make_records(2))
    assert read_searches(path).searches == []
    with h5py.File(path) as opened:
        assert set(opened["tuning"]) == {"text", "numbers"}


def test_writers_without_candidates_keep_them(path):
    merge_into(path, make_records(3), searches=make_searches(3))
    merge_into(path, make_records(6))
    assert by_key(read_searches(path).searches) == by_key(make_searches(3))


def test_candidates_of_others_are_merged(path):
    merge_into(path, make_records(3), searches=make_searches(3))
    more = make_search(environment=ELSEWHERE)
    merge_into(path, [make_record(environment=ELSEWHERE)], searches=[more])
    assert by_key(read_searches(path).searches) == by_key([*make_searches(3), more])


def test_candidates_without_an_entry_are_not_kept(path):
    merge_into(path, make_records(2), searches=make_searches(3))
    assert by_key(read_searches(path).searches) == by_key(make_searches(2))


def test_candidates_go_with_their_entries(path):
    records = [*make_records(3), *make_records(3, environment=ELSEWHERE)]
    merge_into(path, records, searches=[*make_searches(3), *make_searches(3, environment=ELSEWHERE)])
    assert keep_only(path, lambda record: record.environment == ELSEWHERE) == (3, 3)
    assert {search.environment for search in read_searches(path).searches} == {ELSEWHERE}
    keep_only(path, lambda record: False)
    assert read_searches(path).searches == []


def test_candidates_of_entries_that_gave_way_go(path, monkeypatch):
    monkeypatch.setattr(schema, "MAX_RECORDS", 3)
    monkeypatch.setattr(database, "MAX_RECORDS", 3)
    records = [replace(record, created=1000 + i) for i, record in enumerate(make_records(5))]
    merge_into(path, records[:3], searches=make_searches(3))
    merge_into(path, records[3:])
    assert [search.key for search in read_searches(path).searches] == [records[2].key]


def test_the_later_search_stays_and_the_earlier_fills_it_in():
    search = make_search(created=10)
    fresh = [replace(trial, state=TrialState.NOT_TRIED, estimate_seconds=0.0) for trial in search.trials]
    later = replace(search, created=20, trials=tuple(fresh))
    for order in ([search, later], [later, search]):
        known = {}
        merge_searches(known, order)
        (merged,) = known.values()
        assert merged.created == 20
        states = {trial.algorithm: trial.state for trial in merged.trials}
        assert states["best:avx2#0"] is TrialState.FINALIST  # the winner is the later search's to say
        assert states["SLOW ONE"] is TrialState.SLOW
        assert states["too late"] is TrialState.NOT_TRIED


def damage(path, name, data):
    with h5py.File(path, "r+") as opened:
        group = opened["tuning/candidates"]
        del group[name]
        if data is not None:
            group[name] = data


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("text", None),
        ("numbers", None),
        ("text", np.zeros((3, 3), np.uint8)),
        ("numbers", np.zeros((3, 16))),
        ("numbers", np.zeros((3, trial_schema.COLUMN_COUNT), np.float32)),
        ("text", np.frombuffer(b"keras_tunedconv candidates 2\n", np.uint8)),
        ("text", np.frombuffer(b"something else\n", np.uint8)),
    ],
)
def test_damaged_candidates_are_no_reason_not_to_read_entries(path, name, data):
    merge_into(path, make_records(3), searches=make_searches(3))
    damage(path, name, data)
    assert len(read(path).records) == 3
    with pytest.raises(DatabaseError, match="cannot be read"):
        read_searches(path)


def test_more_rows_than_are_read_are_refused_before_reading(path):
    merge_into(path, make_records(3), searches=make_searches(3))
    with h5py.File(path, "r+") as opened:
        group = opened["tuning/candidates"]
        del group["numbers"]
        shape = (trial_schema.MAX_TRIALS + 1, trial_schema.COLUMN_COUNT)
        group.create_dataset("numbers", shape, "<f8", chunks=(64, shape[1]))
    with pytest.raises(DatabaseError, match="at most"):
        read_searches(path)


def test_a_link_elsewhere_is_not_followed(path, tmp_path):
    other = tmp_path / "other.h5"
    merge_into(other, make_records(3), searches=make_searches(3))
    merge_into(path, make_records(3))
    with h5py.File(path, "r+") as opened:
        opened["tuning/candidates"] = h5py.ExternalLink(str(other), "tuning/candidates")
    with pytest.raises(DatabaseError, match="ExternalLink"):
        read_searches(path)
    assert len(read(path).records) == 3


# Columns that candidates do not have or check, and a file that is too large as a whole.
ONLY_FOR_ENTRIES = {
    hostile.a_million_entries,
    hostile.keys_that_contradict_themselves,
    hostile.keys_that_are_code,
    hostile.unknown_provenance,
    hostile.negative_time,
    hostile.not_a_number,
}


@pytest.mark.parametrize(
    "kind", [kind for kind in hostile.KINDS if kind not in ONLY_FOR_ENTRIES], ids=lambda kind: kind.__name__
)
def test_hostile_candidates_never_cost_an_entry(kind, path):
    records = make_records(3)
    merge_into(path, records, searches=make_searches(3))
    with h5py.File(path, "r+") as opened:
        kind(opened, f"{database.GROUP}/{database.CANDIDATES}")
    assert content(read(path).records) == content(records)
    try:
        decoded = read_searches(path)
    except DatabaseError:
        return
    assert decoded.malformed > 0 or by_key(decoded.searches) == by_key(make_searches(3))
