"""Whatever somebody put in the place of entries, the weights load, and one warning tells."""

import functools
import random
import time
import warnings

import h5py
import hostile
import keras
import numpy as np
import pytest
from tuning_data import build, entries, fill, make_record, tuned_layers

from keras_tunedconv.core import registry
from keras_tunedconv.core.errors import TuningWarning
from keras_tunedconv.layers.tuned_conv2d import TunedConv2D
from keras_tunedconv.tuning import schema

GROUP = "layers/conv2d/tuning"


@pytest.fixture
def saved(tmp_path):
    """A model, and its weights file with entries."""
    model = build("sequential", TunedConv2D)
    fill(model)
    path = tmp_path / "m.weights.h5"
    model.save_weights(path)
    registry.clear()
    return model, path


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


# ---- mutation ----------------------------------------------------------------------------------------


def ranges_of_entries(path):
    """Where entries and the groups they are in lie in a file."""
    found = []

    def visit(name, item):
        if "/tuning" not in name:
            return
        header = h5py.h5o.get_info(item.id)
        found.append(range(header.addr, header.addr + header.hdr.space.total))
        if isinstance(item, h5py.Dataset):
            found.append(range(item.id.get_offset(), item.id.get_offset() + item.id.get_storage_size()))

    with h5py.File(path) as opened:
        opened.visititems(visit)
    return found


def mutate(path, count, target):
    """Loads `count` copies of a file, each with a few of the target's bytes changed."""
    model, original = None, path.read_bytes()
    chance = random.Random(0)
    places = [place for part in target(path) for place in part]
    changed = path.with_name("changed.weights.h5")
    model = build("sequential", TunedConv2D)
    for _ in range(count):
        data = bytearray(original)
        for _ in range(chance.choice((1, 1, 2, 8))):
            at = chance.choice(places)
            data[at] = chance.choice((0, 255, data[at] ^ 1 << chance.randrange(8), chance.randrange(256)))
        changed.write_bytes(data)
        begin = time.monotonic()
        registry.clear()
        for weight in model.weights:
            weight.assign(np.zeros(weight.shape, weight.dtype))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield model, changed
        assert time.monotonic() - begin < 20  # a hang, not a figure


def damaged_entries_leave_the_weights(model, path, count):
    for twin, changed in mutate(path, count, ranges_of_entries):
        twin.load_weights(changed)
        assert_same_weights(model, twin)
        for record in registry.collect()[0]:
            assert record.time_seconds >= 0


def damaged_files_load_or_are_refused(path, count):
    whole = range(path.stat().st_size)
    for twin, changed in mutate(path, count, lambda _: [whole]):
        try:
            twin.load_weights(changed)
        except (MemoryError, SystemError):
            raise
        except Exception:  # Keras refuses the file, in whatever way HDF5 made it
            continue


def test_damaged_entries_leave_the_weights(saved):
    damaged_entries_leave_the_weights(*saved, count=150)


def test_damaged_files_load_or_are_refused(saved):
    damaged_files_load_or_are_refused(saved[1], count=100)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_ten_thousand_damaged_files(saved):
    damaged_entries_leave_the_weights(*saved, count=7000)
    damaged_files_load_or_are_refused(saved[1], count=3000)
