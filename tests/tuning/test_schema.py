"""Columns hold what they were given, and nothing that was not sound comes out of them."""

import dataclasses
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tuning_data import ELSEWHERE, content, make_record, make_records

from keras_tunedconv.core.record import Provenance
from keras_tunedconv.tuning import schema
from keras_tunedconv.tuning.schema import Columns, SchemaError, decode, encode


def columns_of(records):
    made = encode(records)
    return Columns(text=made.text.copy(), numbers=made.numbers.copy())


def column(name):
    return schema._POSITION[name]


def test_records_come_back_as_they_were():
    records = [
        make_record(),
        make_record(environment=ELSEWHERE, algorithm="engine=38;knobs=1:2,7:0", runner_up=""),
        make_record(provenance=Provenance.COPIED, time_seconds=0.0, default_seconds=0.0, deterministic=False),
        make_record(workspace_bytes=2**40, created=2**33, math_type=1, algorithm="naïve ✓"),
    ]
    decoded = decode(encode(records))
    assert content(decoded.records) == content(records)
    assert (decoded.malformed, decoded.problem) == (0, "")


def test_no_records_are_columns_too():
    assert decode(encode([])).records == []


def test_the_sequence_is_not_stored():
    assert decode(encode([make_record(sequence=7)])).records[0].sequence == 0


def test_strings_are_stored_once():
    columns = encode(make_records(300))
    text = columns.text.tobytes().decode()
    assert text.count(make_record().environment) == 1
    # The three directions of one convolution share the rest of their keys.
    assert text.count("groups=1") == 100


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("direction", 1e9),
        ("problem", -1),
        ("environment", 0.5),
        ("algorithm", np.nan),
        ("runner_up", np.inf),
        ("workspace_bytes", 2.0**41),
        ("workspace_bytes", 0.5),
        ("created", -1),
        ("time_seconds", np.nan),
        ("time_seconds", -1e-9),
        ("default_seconds", np.inf),
        ("spread", -np.inf),
        ("tuning_seconds", 1e300),
        ("candidates_tried", 10),
        ("candidates_total", 1e7),
        ("provenance", 0),
        ("provenance", 7),
        ("provenance", 1.5),
        ("math_type", 2),
        ("deterministic", -1),
    ],
)
def test_a_row_with_nonsense_is_skipped_and_named(name, value):
    columns = columns_of(make_records(3))
    columns.numbers[1, column(name)] = value
    decoded = decode(columns)
    assert len(decoded.records) == 2
    assert decoded.malformed == 1
    assert name in decoded.problem
    assert "entry 1" in decoded.problem


def test_a_row_that_takes_its_direction_from_elsewhere_is_skipped():
    columns = columns_of(make_records(2))
    columns.numbers[0, column("direction")] = columns.numbers[0, column("algorithm")]
    assert [record.direction for record in decode(columns).records] == ["backward_data"]


def test_the_header_names_nothing():
    columns = columns_of(make_records(2))
    columns.numbers[0, column("environment")] = 0
    assert decode(columns).malformed == 1


@pytest.mark.parametrize(
    "bad", [b"\xff\xfe", b"a\x00b", b"a\x1b[31mb", "a\u2028b".encode(), b"\xed\xa0\x80", b"\xc0\x80"]
)
def test_strings_that_are_not_printable_text_spoil_only_their_rows(bad):
    records = [make_record(), make_record(make_records(2)[1].key, algorithm="ALGORITHM")]
    columns = columns_of(records)
    text = columns.text.tobytes().replace(b"ALGORITHM", bad)
    decoded = decode(Columns(np.frombuffer(text, np.uint8), columns.numbers))
    assert content(decoded.records) == content(records[:1])
    assert "algorithm" in decoded.problem


@pytest.mark.parametrize("field", ["environment", "algorithm", "runner_up"])
def test_names_longer_than_the_core_takes_are_skipped(field):
    columns = columns_of([make_record(**{field: "x" * 255})])
    assert len(decode(columns).records) == 1
    longer = columns.text.tobytes().replace(b"x" * 255, "é".encode() * 128)
    decoded = decode(Columns(np.frombuffer(longer, np.uint8), columns.numbers))
    assert decoded.records == []
    assert field in decoded.problem


def test_a_key_longer_than_the_core_takes_is_skipped():
    key = make_record().key
    columns = columns_of([make_record()])
    rest = key.partition("|")[2].encode()
    longer = columns.text.tobytes().replace(rest, rest + b"0" * (640 - len(key)))
    decoded = decode(Columns(np.frombuffer(longer, np.uint8), columns.numbers))
    assert decoded.records == []
    assert "key" in decoded.problem


@pytest.mark.parametrize(
    "text", [b"", b"\n", b"something else", b"keras_tunedconv tuning ", b"keras_tunedconv tuning x"]
)
def test_columns_of_something_else_are_refused(text):
    with pytest.raises(SchemaError, match="do not begin"):
        decode(Columns(np.frombuffer(text, np.uint8), encode([make_record()]).numbers))


def test_a_later_version_is_refused_with_what_to_do():
    columns = encode([make_record()])
    text = columns.text.tobytes().replace(b"tuning 1\n", b"tuning 2\n")
    with pytest.raises(SchemaError, match=r"version 2 .* upgrade"):
        decode(Columns(np.frombuffer(text, np.uint8), columns.numbers))


def test_text_of_line_feeds_is_refused_before_it_is_split():
    text = encode([make_record()]).text.tobytes() + b"\n" * schema.MAX_TEXT_BYTES
    with pytest.raises(SchemaError, match="strings"):
        decode(Columns(np.frombuffer(text, np.uint8), encode([make_record()]).numbers))


@pytest.mark.parametrize(
    "fields",
    [
        {"algorithm": "two\nlines"},
        {"algorithm": ""},
        {"environment": "x" * 256},
        {"time_seconds": float("nan")},
        {"candidates_tried": 10, "candidates_total": 9},
        {"provenance": Provenance.DEFAULT},
        {"key": "sideways|x=1"},
    ],
)
def test_what_would_not_come_back_is_not_written(fields):
    with pytest.raises(ValueError, match="cannot be stored"):
        encode([make_record(), make_record(**fields)])


def test_no_more_is_written_than_is_read():
    one = make_record()
    with pytest.raises(SchemaError, match="At most"):
        encode(dataclasses.replace(one, environment=str(i)) for i in range(schema.MAX_RECORDS + 1))


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_whatever_bytes_hold_only_sound_records_come_out(data):
    columns = columns_of(make_records(6))
    for _ in range(data.draw(st.integers(1, 8))):
        if data.draw(st.booleans()):
            columns.text[data.draw(st.integers(0, columns.text.size - 1))] = data.draw(st.integers(0, 255))
        else:
            raw = columns.numbers.view(np.uint8).reshape(-1)
            raw[data.draw(st.integers(0, raw.size - 1))] = data.draw(st.integers(0, 255))
    try:
        decoded = decode(columns)
    except SchemaError:
        return
    assert len(decoded.records) + decoded.malformed == 6
    assert content(decode(encode(decoded.records)).records) == content(decoded.records)


def test_ten_thousand_entries_are_read_whole():
    records = make_records(10_000, environment=ELSEWHERE, created=int(time.time()))
    assert content(decode(encode(records)).records) == content(records)
