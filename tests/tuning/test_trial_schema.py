"""Columns of candidates hold what they were given, and nothing that was not sound comes out of them."""

import numpy as np
import pytest
from tuning_data import ELSEWHERE, HERE, make_keys, make_search, make_searches

from keras_tunedconv.core.trials import TrialState
from keras_tunedconv.tuning import schema, trial_schema
from keras_tunedconv.tuning.schema import Columns, SchemaError
from keras_tunedconv.tuning.trial_schema import decode, encode


def columns_of(searches):
    made = encode(searches)
    return Columns(text=made.text.copy(), numbers=made.numbers.copy())


def column(name):
    return [column.name for column in trial_schema._COLUMNS].index(name)


def test_searches_come_back_as_they_were():
    searches = [*make_searches(4), make_search(environment=ELSEWHERE, created=7)]
    decoded = decode(encode(searches))
    assert sorted(decoded.searches, key=repr) == sorted(searches, key=repr)
    assert (decoded.malformed, decoded.problem) == (0, "")


def test_no_searches_are_columns_too():
    assert decode(encode([])).searches == []


def test_a_search_has_every_state():
    assert {trial.state for trial in make_search().trials} == set(TrialState)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("direction", 1e9),
        ("problem", -1),
        ("environment", 0.5),
        ("algorithm", np.nan),
        ("reason", np.inf),
        ("created", -1),
        ("order", 1e7),
        ("state", 6),
        ("state", 0.5),
        ("deterministic", 2),
        ("workspace_bytes", 2.0**41),
        ("plan_seconds", np.nan),
        ("screen_seconds", -1e-9),
        ("estimate_seconds", np.inf),
        ("median_seconds", 1e300),
        ("sample_count", 17),
        ("sample_count", -1),
        ("sample_0", -np.inf),
        ("sample_15", np.nan),
    ],
)
def test_a_row_with_nonsense_is_skipped_and_named(name, value):
    search = make_search()
    columns = columns_of([search])
    columns.numbers[1, column(name)] = value
    decoded = decode(columns)
    assert decoded.searches[0].trials == (search.trials[0], *search.trials[2:])
    assert decoded.malformed == 1
    assert name in decoded.problem
    assert "candidate 1" in decoded.problem


def test_the_header_names_nothing():
    columns = columns_of([make_search()])
    columns.numbers[0, column("environment")] = 0
    assert decode(columns).malformed == 1


@pytest.mark.parametrize("bad", [b"\xff\xfe", b"a\x00b", b"a\x1b[31mb", "a\u2028b".encode()])
def test_strings_that_are_not_printable_text_spoil_only_their_rows(bad):
    search = make_search()
    columns = columns_of([search])
    text = columns.text.tobytes().replace(search.trials[2].algorithm.encode(), bad)
    decoded = decode(Columns(np.frombuffer(text, np.uint8), columns.numbers))
    assert decoded.malformed == 1
    assert "algorithm" in decoded.problem


def test_entries_are_not_candidates_nor_the_other_way_round():
    columns = columns_of([make_search()])
    with pytest.raises(SchemaError, match="do not begin"):
        schema.decode(columns)
    with pytest.raises(SchemaError, match="do not begin"):
        decode(Columns(np.frombuffer(b"keras_tunedconv tuning 1", np.uint8), columns.numbers))


def test_a_later_version_is_refused_with_what_it_needs(monkeypatch):
    monkeypatch.setattr(trial_schema, "VERSION", 2)
    columns = columns_of([make_search()])
    monkeypatch.undo()
    with pytest.raises(SchemaError, match="version 2 and this keras_tunedconv reads version 1"):
        decode(columns)


def test_claims_of_too_many_strings_are_refused(monkeypatch):
    columns = columns_of(make_searches(3))
    monkeypatch.setattr(trial_schema, "MAX_TRIALS", 1)
    with pytest.raises(SchemaError, match="claim more than"):
        decode(columns)


def test_where_they_are_too_many_the_oldest_give_way(monkeypatch):
    searches = make_searches(5)
    monkeypatch.setattr(trial_schema, "MAX_TRIALS", 2 * len(searches[0].trials) + 1)
    kept = decode(encode(searches)).searches
    assert kept == sorted(searches, key=lambda search: search.created)[-2:]


def test_what_would_not_be_read_back_is_not_written():
    with pytest.raises(ValueError, match=r"cannot be stored.*key"):
        encode([make_search(key="forward|" + "x" * 640)])
    with pytest.raises(ValueError, match="more than one line"):
        encode([make_search(environment="a\nb")])


def test_random_numbers_never_raise():
    columns = columns_of(make_searches(3))
    rng = np.random.default_rng(0)
    for _ in range(50):
        numbers = columns.numbers.copy()
        places = rng.random(numbers.shape) < 0.1
        numbers[places] = rng.choice([0, 1, -1, 3.5, 1e9, 1e300, np.nan, np.inf], places.sum())
        text = bytearray(columns.text.tobytes())
        for place in rng.integers(30, len(text), 5):
            text[place] = rng.integers(0, 256)
        decoded = decode(Columns(np.frombuffer(bytes(text), np.uint8), numbers))
        assert sum(len(search.trials) for search in decoded.searches) + decoded.malformed == len(numbers)


def test_keys_share_their_strings():
    keys = make_keys((8, 16, 16, 3), (3, 3, 3, 4))
    text = encode([make_search(key=key) for key in keys]).text.tobytes().decode()
    assert text.count(HERE) == 1
    assert text.count("groups=1") == 1
