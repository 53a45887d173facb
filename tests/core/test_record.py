"""Records: to C and back without loss, and what does not fit is refused."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from keras_tunedconv.core import registry
from keras_tunedconv.core.descriptor import forward_descriptor
from keras_tunedconv.core.errors import InvalidArgumentError
from keras_tunedconv.core.record import Provenance, Record

RECORD = Record(
    key=forward_descriptor((8, 9, 9, 4), (3, 3, 4, 6)).key,
    environment="engine=onednn;version=0.0.0;cpu=an unknown one;threads=1",
    algorithm="onednn:jit:none#0/any",
    runner_up="onednn:gemm:jit#0/plain",
    workspace_bytes=1 << 20,
    created=1_700_000_000,
    time_seconds=1.25e-3,
    default_seconds=2.5e-3,
    spread=0.01,
    tuning_seconds=0.75,
    candidates_tried=3,
    candidates_total=5,
    provenance=Provenance.MEASURED,
)


@pytest.fixture(autouse=True)
def empty_registry():
    registry.clear()
    yield
    registry.clear()


def test_a_record_survives_the_way_through_c():
    assert Record.from_c(RECORD.to_c()) == RECORD


def test_what_it_says():
    assert RECORD.direction == "forward"
    assert RECORD.gain == 2.0
    assert not RECORD.complete
    assert replace(RECORD, time_seconds=0.0).gain == 1.0


def test_a_put_record_is_collected_once():
    registry.put(RECORD)
    records, latest = registry.collect()
    assert [replace(r, sequence=0) for r in records] == [RECORD]
    assert registry.collect(latest) == ([], latest)
    registry.put(replace(RECORD, environment="engine=onednn;version=0.0.1;cpu=another"))
    (other,), _ = registry.collect(latest)
    assert other.environment.endswith("another")
    assert len(registry.collect()[0]) == 2


@pytest.mark.parametrize(
    "change",
    [
        {"key": "forward|x=1"},
        {"key": ""},
        {"environment": ""},
        {"algorithm": ""},
        {"algorithm": "a\nb"},
        {"time_seconds": math.nan},
        {"time_seconds": -1.0},
        {"default_seconds": math.inf},
        {"spread": math.nan},
        {"tuning_seconds": -0.5},
        {"workspace_bytes": -1},
        {"workspace_bytes": 1 << 62},
        {"candidates_tried": 6},
        {"candidates_total": -1, "candidates_tried": -1},
        {"math_type": 7},
    ],
    ids=str,
)
def test_a_malformed_record_is_kept_out(change):
    with pytest.raises(InvalidArgumentError):
        registry.put(replace(RECORD, **change))
    assert registry.collect()[0] == []


def test_text_that_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="algorithm holds at most 255 bytes"):
        replace(RECORD, algorithm="a" * 256).to_c()
    with pytest.raises(ValueError, match="no NUL"):
        replace(RECORD, environment="a\0b").to_c()


def test_text_that_is_not_utf8_is_kept_out():
    from keras_tunedconv.core.library import lib

    c = RECORD.to_c()
    c.algorithm[0] = b"\xff"
    assert lib.tc_registry_put(c) == lib.TC_INVALID_ARGUMENT
