"""First guesses on the real oneDNN: learnt from one convolution, run on another, measured later."""

import keras
import numpy as np
import pytest

import keras_tunedconv
from keras_tunedconv.bench import candidates, problem
from keras_tunedconv.core import engines, registry, trials
from keras_tunedconv.core.config import config
from keras_tunedconv.core.record import Provenance
from keras_tunedconv.prediction import guessing
from keras_tunedconv.prediction.model import CostModel
from keras_tunedconv.tuning.database import DatabaseError, read_searches

KNOWN = problem.parse("2,16,10,16,3,1,1")
UNSEEN = problem.parse("2,16,12,16,3,1,1")


@pytest.fixture
def recorded(tmp_path):
    registry.clear()
    path = tmp_path / "candidates.h5"
    assert candidates.record(path, [KNOWN], seconds=60) == (3, 0)
    registry.clear()
    yield path
    registry.clear()


def test_a_guess_is_what_did_well_on_the_like(recorded):
    searches = {search.key: search for search in read_searches(recorded).searches}
    model = CostModel(searches.values())
    for direction in ("forward", "backward_data", "backward_filter"):
        descriptor = UNSEEN.descriptor(direction)
        record = guessing.guess(model, descriptor)
        trials_ = searches[KNOWN.descriptor(direction).key].trials
        seconds = {t.algorithm: t.seconds for t in trials_ if t.usable}
        # What its like did counts too, so of two that were nearly as fast it may be either.
        assert seconds[record.algorithm] <= 1.6 * min(seconds.values())
        assert (record.key, record.environment) == (descriptor.key, engines.environment("cpu"))
        assert record.provenance is Provenance.PREDICTED
        assert record.algorithm in engines.candidates(descriptor)
    assert guessing.guess(CostModel([]), UNSEEN.descriptor()) is None


def test_a_layer_runs_the_guess_and_measures_it_later(recorded):
    to_numpy = keras.ops.convert_to_numpy
    layer = keras_tunedconv.TunedConv2D(16, 3, padding="same")
    layer.build((2, 12, 12, 16))
    x = np.random.default_rng(0).standard_normal((2, 12, 12, 16), dtype="float32")
    stop = guessing.use(recorded)
    try:
        with config.override(copies_before_measuring=3):
            wanted = to_numpy(keras.ops.conv(x, layer.kernel, padding="same"))  # the bias is zeros
            for _ in range(2):
                np.testing.assert_allclose(to_numpy(layer(x)), wanted, atol=1e-4)
            forward = [r for r in registry.collect()[0] if r.key == UNSEEN.descriptor().key]
            assert [record.provenance for record in forward] == [Provenance.PREDICTED]
            assert registry.stats()["measured"] == 0
            for _ in range(3):
                to_numpy(layer(x))  # JAX returns before the convolution has run
            forward = [r for r in registry.collect()[0] if r.key == UNSEEN.descriptor().key]
            assert [record.provenance for record in forward] == [Provenance.MEASURED]
    finally:
        stop()


def test_what_is_known_stays(recorded):
    stop = guessing.use(recorded)
    try:
        with config.override(batch_policy="exact"):
            candidates.operands_on("cpu").call(UNSEEN.descriptor())()
        before = registry.collect()[0]
        assert [record.provenance for record in before] == [Provenance.MEASURED]
        assert engines.supported(UNSEEN.descriptor())
        assert registry.collect()[0] == before
    finally:
        stop()


def test_other_modes_and_ended_uses_guess_nothing(recorded):
    stop = guessing.use(recorded)
    with config.override(mode="heuristic"):
        assert engines.supported(UNSEEN.descriptor())
    stop()
    assert engines.supported(UNSEEN.descriptor("backward_data"))
    assert registry.collect()[0] == []


def test_a_missing_database_is_an_error(tmp_path):
    with pytest.raises(DatabaseError):
        guessing.use(tmp_path / "missing.h5")


def test_searches_of_this_process_serve_too(recorded):
    with config.override(record_candidates=True, batch_policy="exact"):
        candidates.operands_on("cpu").call(KNOWN.descriptor())()
    stop = guessing.use_searches(trials.collect()[0])
    try:
        assert engines.supported(UNSEEN.descriptor())
        assert Provenance.PREDICTED in {record.provenance for record in registry.collect()[0]}
    finally:
        stop()
