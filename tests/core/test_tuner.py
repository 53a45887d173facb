"""Registry and tuner as Python sees them, with an engine whose algorithms the tests script.

What the tuner decides in each case is tested in C, on a virtual clock (tests/native/tuner_test.c). Here
the same engine runs inside the extension: choices, counts, records, warnings and exceptions.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import cffi
import native_build
import numpy as np
import pytest
from tuning_data import own_warnings

from keras_tunedconv.core import registry
from keras_tunedconv.core.config import config
from keras_tunedconv.core.descriptor import ConvDescriptor, forward_descriptor
from keras_tunedconv.core.errors import (
    DeviceFailureError,
    EngineFailureError,
    InvalidArgumentError,
    NotFoundError,
    TuningWarning,
    UnsupportedError,
    check,
    emit_pending_warnings,
)
from keras_tunedconv.core.library import ffi, lib
from keras_tunedconv.core.record import Provenance, Record

DETERMINISTIC = 1
FORWARD = forward_descriptor((2, 6, 6, 3), (3, 3, 3, 4), padding="same")


class FakeEngine:
    """The scripted engine in this process, taken for the one of CUDA devices."""

    def __init__(self, library: Path) -> None:
        header = (native_build.NATIVE / "fake_engine.h").read_text()
        self._ffi = cffi.FFI()
        self._ffi.cdef("\n".join(line for line in header.splitlines() if not line.startswith("#")))
        self._lib = self._ffi.dlopen(str(library))
        self._lib.fake_reset()
        self.path = library

    def script(self, *algorithms: dict[str, Any]) -> None:
        """Set the algorithms, the default first; see fake_algorithm in fake_engine.h for the fields."""
        array = self._ffi.new("fake_algorithm[]", len(algorithms))
        for place, fields in zip(array, algorithms, strict=True):
            place.name = fields["name"].encode()
            for field in fields.keys() - {"name"}:
                setattr(place, field, fields[field])
        self._lib.fake_set_algorithms(array, len(algorithms))

    def runs(self, name: str) -> int:
        return int(self._lib.fake_runs(name.encode()))


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return native_build.build_fake_engine(tmp_path_factory.mktemp("fake"))


@pytest.fixture
def engine(library: Path) -> Iterator[FakeEngine]:
    fake = FakeEngine(library)
    lib.tc_engine_close(b"cudnn")  # reopened by whoever needs it; says so when it was not open
    registry.clear()
    check(lib.tc_engine_load(str(library).encode()))
    fake.script(
        {"name": "standard", "seconds": 1e-3, "flags": DETERMINISTIC},
        {"name": "fast", "seconds": 5e-4},
    )
    yield fake
    check(lib.tc_set_override(-1, ffi.NULL))
    check(lib.tc_engine_close(b"fake"))


def run(descriptor: ConvDescriptor = FORWARD) -> np.ndarray:
    """Run a convolution on the scripted engine; gives the output, and checks that it is right."""
    rng = np.random.default_rng(0)
    x = rng.uniform(0.5, 1.5, np.prod(descriptor.x_dims)).astype("float32")
    w = rng.uniform(0.5, 1.5, np.prod(descriptor.w_dims)).astype("float32")
    y = np.full(np.prod(descriptor.y_dims), np.nan, "float32")
    context = ffi.new("tc_context *", {"device_kind": lib.TC_CUDA})
    places = {name: ffi.cast("void *", array.ctypes.data) for name, array in (("x", x), ("w", w), ("y", y))}
    operands = ffi.new("tc_operands *", places)
    check(lib.tc_convolve(descriptor.to_c(), context, operands))
    np.testing.assert_allclose(y, np.resize(x, y.size) * np.resize(w, y.size), rtol=1e-3)
    return y


def records() -> list[Record]:
    return registry.collect()[0]


def test_the_winner_is_recorded_with_its_figures(engine: FakeEngine):
    run()
    (record,) = records()
    assert (record.key, record.algorithm, record.runner_up) == (FORWARD.key, "fast", "standard")
    assert record.environment == "engine=fake;version=1;device=any"
    assert record.time_seconds == pytest.approx(5e-4)
    assert record.default_seconds == pytest.approx(1e-3)
    assert record.gain == pytest.approx(2.0)
    assert record.provenance is Provenance.MEASURED
    assert record.complete
    assert not record.deterministic
    stats = registry.stats()
    assert (stats["measured"], stats["hits"], stats["defaults"], stats["fallbacks"]) == (1, 0, 0, 0)
    assert stats["tuning_seconds"] >= record.tuning_seconds > 0


def test_a_record_makes_the_next_process_measure_nothing(engine: FakeEngine):
    run()
    (record,) = records()
    registry.clear()
    engine.script({"name": "standard", "seconds": 1e-3}, {"name": "fast", "seconds": 5e-4})
    registry.put(record)
    run()
    assert (engine.runs("fast"), engine.runs("standard")) == (1, 0)
    stats = registry.stats()
    assert (stats["measured"], stats["hits"], stats["tuning_seconds"]) == (0, 1, 0.0)
    assert [replace(r, sequence=record.sequence) for r in records()] == [record]


def test_collect_gives_each_change_once(engine: FakeEngine):
    run()
    first, since = registry.collect()
    assert registry.collect(since) == ([], since)
    run(forward_descriptor((3, 6, 6, 3), (3, 3, 3, 4), padding="same"))
    second, _ = registry.collect(since)
    assert len(first) == len(second) == 1
    assert first[0].key != second[0].key


def test_tune_false_runs_the_default_until_something_is_stored(engine: FakeEngine):
    with config.override(tune=False):
        run()
        assert (engine.runs("standard"), registry.stats()["defaults"]) == (1, 1)
        assert records() == []
        registry.put(Record(FORWARD.key, "engine=fake;version=1;device=any", "fast"))
        run()
    assert engine.runs("fast") == 1
    assert (registry.stats()["defaults"], registry.stats()["hits"]) == (0, 1)


def test_replay_names_the_key_that_is_not_stored(engine: FakeEngine):
    with config.override(mode="replay"), pytest.raises(NotFoundError, match="mode replay") as raised:
        run()
    assert FORWARD.key in str(raised.value)
    assert engine.runs("standard") == 0


def test_refresh_measures_what_is_stored(engine: FakeEngine):
    registry.put(Record(FORWARD.key, "engine=fake;version=1;device=any", "standard"))
    with config.override(mode="refresh"):
        run()
    assert [r.algorithm for r in records()] == ["fast"]
    assert registry.stats()["measured"] == 1


def test_a_foreign_record_is_kept_and_not_used(engine: FakeEngine):
    registry.put(Record(FORWARD.key, "engine=fake;version=2;device=any", "standard"))
    run()
    assert sorted((r.environment[-1], r.algorithm) for r in records()) == [("y", "fast"), ("y", "standard")]
    assert registry.stats()["hits"] == 0


def test_an_unknown_algorithm_is_left_out_with_one_warning(engine: FakeEngine):
    registry.put(Record(FORWARD.key, "engine=fake;version=1;device=any", "of another version"))
    run()
    with pytest.warns(TuningWarning, match="of another version") as caught:
        emit_pending_warnings()
    assert len(own_warnings(caught)) == 1
    assert FORWARD.key in str(own_warnings(caught)[0].message)
    assert [r.algorithm for r in records()] == ["fast"]


def test_a_wrong_result_never_wins(engine: FakeEngine):
    for fault in ({"tint": 0.5}, {"output": 1}, {"output": 2}):
        engine.script({"name": "standard", "seconds": 1e-3}, {"name": "wrong", "seconds": 1e-4, **fault})
        run()
        assert [r.algorithm for r in records()] == ["standard"]
        registry.clear()


def test_training_goes_on_when_an_algorithm_fails(engine: FakeEngine):
    failing = {"name": "fast", "seconds": 5e-4, "run_status": lib.TC_ENGINE_FAILURE, "good_runs": 60}
    engine.script({"name": "standard", "seconds": 1e-3}, failing)
    for _ in range(80):
        run()
    assert engine.runs("fast") == 61
    with pytest.warns(TuningWarning, match="'fast' failed") as caught:
        emit_pending_warnings()
    assert len(own_warnings(caught)) == 1
    assert records() == []


def test_failures_become_exceptions(engine: FakeEngine):
    engine.script({"name": "standard", "run_status": lib.TC_ENGINE_FAILURE})
    with pytest.raises(EngineFailureError, match="scripted to fail"):
        run()
    registry.clear()
    engine.script({"name": "standard", "run_status": lib.TC_DEVICE_FAILURE})
    with pytest.raises(DeviceFailureError):
        run()
    registry.clear()
    engine.script()
    with pytest.raises(UnsupportedError):
        run()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        emit_pending_warnings()


def test_determinism_restricts_the_choice(engine: FakeEngine):
    run(replace(FORWARD, deterministic=True))
    (record,) = records()
    assert record.algorithm == "standard"
    assert record.deterministic
    assert engine.runs("fast") == 0


def test_an_override_runs_or_lists_what_can(engine: FakeEngine):
    check(lib.tc_set_override(lib.TC_FORWARD, b"standard"))
    run()
    assert (engine.runs("standard"), engine.runs("fast")) == (1, 0)
    assert records() == []
    check(lib.tc_set_override(-1, b"none such"))
    with pytest.raises(NotFoundError, match="standard, fast"):
        run()
    with pytest.raises(InvalidArgumentError):
        check(lib.tc_set_override(5, b"standard"))
