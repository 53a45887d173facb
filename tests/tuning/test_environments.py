"""Entries of other places: none is used where it was not measured, and none is lost; soft differences."""

from dataclasses import fields, replace

import keras
import numpy as np
import pytest
from tuning_data import build, entries, make_keys, make_record, tuned_layers

from keras_tunedconv import TunedConv2D
from keras_tunedconv.core import engines, registry
from keras_tunedconv.core.config import config
from keras_tunedconv.core.descriptor import ConvDescriptor
from keras_tunedconv.core.errors import UnavailableError
from keras_tunedconv.core.record import Provenance
from keras_tunedconv.tuning.merge import identity

SHAPES = ((2, 8, 8, 4), (3, 3, 4, 4), (2, 6, 6, 4))
KEY = make_keys(*SHAPES[:2])[0]


@pytest.fixture
def here():
    try:
        return engines.environment("cpu")
    except UnavailableError as error:
        pytest.skip(str(error))


def run():
    x, w = (np.random.default_rng(0).standard_normal(shape, "float32") for shape in SHAPES[:2])
    y = np.empty(SHAPES[2], "float32")
    engines.convolve(ConvDescriptor.from_key(KEY), x, w, y)
    return y


def some_algorithm():
    """Not the default of the engine here, so that only a record would choose it."""
    return engines.candidates(ConvDescriptor.from_key(KEY))[1]


def changed(environment, field, value):
    fields = dict(part.split("=", 1) for part in environment.split(";"))
    assert field in fields
    fields[field] = value
    return ";".join(f"{name}={text}" for name, text in fields.items())


HARD = {
    "engine": "cudnn",
    "version": "3.1",
    "runtime": "tbb",
    "cpu": "GenuineIntel 6.1.1",
    "isa": "avx2",
    "threads": "96",
}
ACCELERATORS = [
    "engine=cudnn;version=9.19;device=NVIDIA H100;sm=9.0;multiprocessors=132;~patch=0;~driver=13.0",
    "engine=cudnn;version=9.14;device=NVIDIA H100;sm=9.0;multiprocessors=132;~patch=0;~driver=13.0",
    "engine=cudnn;version=9.19;device=NVIDIA A100;sm=8.0;multiprocessors=108;~patch=0;~driver=13.0",
]


def assert_no_hit_and_kept(record):
    registry.put(record)
    y = run()
    stats = registry.stats()
    assert (stats["hits"], stats["copied"], stats["measured"]) == (0, 0, 1)
    assert np.isfinite(y).all()
    kept = {identity(known): known for known in registry.collect()[0]}
    assert kept[identity(record)].algorithm == record.algorithm
    assert len(kept) == 2


@pytest.mark.parametrize("field", HARD)
def test_a_hard_difference_is_no_hit(field, here):
    environment = changed(here, field, HARD[field])
    assert_no_hit_and_kept(make_record(KEY, environment=environment, algorithm=some_algorithm()))


@pytest.mark.parametrize("environment", ACCELERATORS)
def test_an_accelerators_entry_is_no_hit(environment, here):
    assert_no_hit_and_kept(make_record(KEY, environment=environment, algorithm=some_algorithm()))


def test_every_field_is_hard_or_soft(here):
    names = {part.split("=")[0] for part in here.split(";")}
    assert names == {*HARD, "~patch"}


def test_another_patch_level_is_used_marked_and_rechecked_once(here):
    before = changed(here, "~patch", "77")
    record = make_record(KEY, environment=before, algorithm=some_algorithm())
    registry.put(record)
    with config.override(copies_before_measuring=2):
        run()
        run()
        stats = registry.stats()
        assert (stats["hits"], stats["copied"], stats["measured"]) == (0, 1, 0)
        known = {known.environment: known for known in registry.collect()[0]}
        assert known[here].algorithm == record.algorithm
        assert known[here].provenance is Provenance.COPIED
        run()
        run()
    stats = registry.stats()
    assert (stats["copied"], stats["measured"]) == (0, 1)
    known = {known.environment: known for known in registry.collect()[0]}
    assert known[here].provenance is Provenance.MEASURED
    assert known[before].algorithm == record.algorithm


def test_an_algorithm_that_is_not_there_is_a_miss(here):
    record = make_record(KEY, environment=changed(here, "~patch", "77"), algorithm="of another patch level")
    assert_no_hit_and_kept(record)


@pytest.mark.parametrize("name", ["m.keras", "m.weights.h5"])
def test_entries_of_every_place_are_saved_again(name, tmp_path, here):
    model = build("functional", TunedConv2D)
    environments = [*(changed(here, *change) for change in HARD.items()), changed(here, "~patch", "77")]
    for layer in tuned_layers(model):
        for environment in (*environments, *ACCELERATORS):
            layer.tuning.take([make_record(KEY, environment=environment)])
    before = entries(model)
    for _ in range(2):
        model.save(tmp_path / name) if name == "m.keras" else model.save_weights(tmp_path / name)
        registry.clear()
        keras.utils.clear_session()
        model = build("functional", TunedConv2D)
        model.load_weights(tmp_path / name)
        for layer in tuned_layers(model):
            assert len(layer.tuning.foreign()) == len(environments) + len(ACCELERATORS)
        assert entries(model) == before


# ---- other keys --------------------------------------------------------------------------------------

BASE = ConvDescriptor.from_key(make_keys(SHAPES[0], SHAPES[1], padding="same")[0])
OTHER_KEYS = {
    "direction": {"direction": "backward_data"},
    "x_dtype": {"x_dtype": "float16"},
    "w_dtype": {"w_dtype": "float16"},
    "y_dtype": {"y_dtype": "float16"},
    "compute_dtype": {"compute_dtype": "float64"},
    "x_layout": {"x_layout": "channels_first"},
    "w_layout": {"w_layout": "oihw"},
    "y_layout": {"y_layout": "channels_first"},
    "allow_tf32": {"allow_tf32": True},
    "deterministic": {"deterministic": True},
    "batch": {"x_dims": (3, 4, 8, 8), "y_dims": (3, 4, 8, 8)},
    "channels": {"x_dims": (2, 8, 8, 8), "w_dims": (4, 8, 3, 3)},
    "groups": {"w_dims": (4, 2, 3, 3), "groups": 2},
    "filters": {"w_dims": (5, 4, 3, 3), "y_dims": (2, 5, 8, 8)},
    # What follows has the output size of the base.
    "padding": {"pad_before": (0, 1), "pad_after": (2, 1)},
    "padding of the other axis": {"pad_before": (1, 2), "pad_after": (1, 0)},
    "dilation": {"dilation": (2, 1), "pad_before": (2, 1), "pad_after": (2, 1)},
    "dilation of the other axis": {"dilation": (1, 2), "pad_before": (1, 2), "pad_after": (1, 2)},
    "kernel": {"w_dims": (4, 4, 5, 3), "pad_before": (2, 1), "pad_after": (2, 1)},
    "stride": {"x_dims": (2, 4, 16, 8), "stride": (2, 1), "pad_before": (0, 1), "pad_after": (1, 1)},
}


@pytest.mark.parametrize("change", OTHER_KEYS)
def test_an_entry_of_another_key_is_no_hit(change, here):
    other = replace(BASE, **OTHER_KEYS[change])
    assert other.key != BASE.key
    registry.put(make_record(other.key, environment=here, algorithm=engines.candidates(BASE)[1]))
    x, w, y = (np.ones(shape, "float32") for shape in (SHAPES[0], SHAPES[1], SHAPES[0]))
    with config.override(batch_policy="exact"):
        engines.convolve(BASE, x, w, y)
    stats = registry.stats()
    assert (stats["hits"], stats["copied"], stats["measured"]) == (0, 0, 1)
    assert {record.key for record in registry.collect()[0]} == {BASE.key, other.key}


def test_the_other_keys_vary_every_field():
    varied = {field for change in OTHER_KEYS.values() for field in change}
    assert varied == {field.name for field in fields(ConvDescriptor)}
