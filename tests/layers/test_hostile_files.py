"""Whatever somebody put in the place of entries, the weights load, and one warning tells."""

import functools
import warnings

import h5py
import hostile
import keras
import numpy as np
import pytest
from tuning_data import build, entries, make_record, tuned_layers

from keras_tunedconv.core import registry
from keras_tunedconv.core.errors import TuningWarning
from keras_tunedconv.layers.tuned_conv2d import TunedConv2D
from keras_tunedconv.tuning import schema

GROUP = "layers/conv2d/tuning"


def load(path):
    model = build("sequential", TunedConv2D)
    model.load_weights(path)
    return model


def assert_same_weights(first, second):
    for one, other in zip(first.get_weights(), second.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)


def soft_link_for_the_group(file):
    file.move(GROUP, "elsewhere")
    file[GROUP] = h5py.SoftLink("/elsewhere")


def external_link_for_the_group(file):
    del file[GROUP]
    file[GROUP] = h5py.ExternalLink("/etc/passwd", "/")


def dangling_link_for_the_group(file):
    del file[GROUP]
    file[GROUP] = h5py.SoftLink("/nowhere")


def data_for_the_group(file):
    del file[GROUP]
    file[GROUP] = np.ones(3)


def soft_link_for_vars(file):
    file.move(f"{GROUP}/vars", "elsewhere")
    file[f"{GROUP}/vars"] = h5py.SoftLink("/elsewhere")


def data_for_vars(file):
    del file[f"{GROUP}/vars"]
    file[f"{GROUP}/vars"] = np.ones(3)


# Each takes the open file; those in `hostile` also where the columns are.
HOSTILE = {
    spoil.__name__: spoil
    for spoil in (
        soft_link_for_the_group,
        external_link_for_the_group,
        dangling_link_for_the_group,
        data_for_the_group,
        soft_link_for_vars,
        data_for_vars,
    )
}
HOSTILE |= {spoil.__name__: functools.partial(spoil, place=f"{GROUP}/vars") for spoil in hostile.KINDS}


@pytest.mark.parametrize("kind", HOSTILE)
def test_weights_load_and_one_warning_names_file_and_layer(kind, saved):
    model, path = saved
    with h5py.File(path, "r+") as file:
        HOSTILE[kind](file)
    twin = build("sequential", TunedConv2D)
    name = tuned_layers(twin)[0].name
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        twin.load_weights(path)
    told = [str(w.message) for w in caught if issubclass(w.category, TuningWarning)]
    assert len(told) == 1
    assert str(path) in told[0]
    assert repr(name) in told[0]
    assert_same_weights(model, twin)
    assert [len(records) for records in entries(twin)] == [0, 3]
    assert len(registry.collect()[0]) == 3


@pytest.mark.parametrize("kind", HOSTILE)
def test_the_next_file_is_read_as_ever(kind, saved):
    model, path = saved
    good = path.with_name("good.weights.h5")
    good.write_bytes(path.read_bytes())
    with h5py.File(path, "r+") as file:
        HOSTILE[kind](file)
    twin = build("sequential", TunedConv2D)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TuningWarning)
        twin.load_weights(path)
    twin.load_weights(good)
    assert entries(twin) == entries(model)


def test_names_with_slashes_and_other_scripts_are_only_text(saved):
    model, path = saved
    odd = make_record(entries(model)[0][0].key, environment="../../etc/passwd", algorithm="алгоритм/🤖")
    tuned_layers(model)[0].tuning.load_own_variables(dict(schema.encode([odd]).items()))
    model.save_weights(path)
    assert odd in entries(load(path))[0]


def test_a_model_file_with_a_link_for_entries_is_opened(saved, tmp_path):
    import zipfile

    model, _ = saved
    model.save(tmp_path / "m.keras")
    with zipfile.ZipFile(tmp_path / "m.keras") as archive:
        archive.extractall(tmp_path / "parts")
    with h5py.File(tmp_path / "parts" / "model.weights.h5", "r+") as file:
        soft_link_for_the_group(file)
    with zipfile.ZipFile(tmp_path / "bad.keras", "w") as archive:
        for part in (tmp_path / "parts").iterdir():
            archive.write(part, part.name)
    with pytest.warns(TuningWarning, match="SoftLink"):
        twin = keras.models.load_model(tmp_path / "bad.keras")
    assert_same_weights(model, twin)


def test_shards_with_a_link_for_entries_load(saved, tmp_path):
    model, _ = saved
    model.save_weights(tmp_path / "m.weights.json", max_shard_size=1)
    (shard,) = tmp_path.glob("m_*.weights.h5")
    with h5py.File(shard, "r+") as file:
        external_link_for_the_group(file)
    twin = build("sequential", TunedConv2D)
    with pytest.warns(TuningWarning, match="ExternalLink"):
        twin.load_weights(tmp_path / "m.weights.json")
    assert_same_weights(model, twin)
