"""Saving through this package: whole files at every moment, nothing else touched."""

import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import h5py
import keras
import numpy as np
import pytest
from tuning_data import build, entries, fill

from keras_tunedconv import TunedConv2D, save_model, save_weights
from keras_tunedconv.tuning import replacing

SHARD = 1200 / 1024**3


def filled():
    model = build("functional", TunedConv2D)
    fill(model)
    return model


def changed(model):
    for weight in model.weights:
        weight.assign(weight + 1)
    return model


def save(model, path):
    if path.suffix == ".keras":
        save_model(model, path)
    else:
        save_weights(model, path, max_shard_size=SHARD if path.suffix == ".json" else None)


def assert_holds(path, model):
    twin = build("functional", TunedConv2D)
    twin.load_weights(path)
    for one, other in zip(model.get_weights(), twin.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
    assert entries(twin) == entries(model)


NAMES = ["m.keras", "m.weights.h5", "m.weights.json"]


@pytest.mark.parametrize("name", NAMES)
def test_files_load_and_are_replaced(name, tmp_path):
    path = tmp_path / name
    model = filled()
    for _ in range(3):
        save(changed(model), path)
        assert_holds(path, model)
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


def test_a_model_file_is_the_model(tmp_path):
    model = filled()
    save_model(model, str(tmp_path / "m.keras"))
    twin = keras.models.load_model(tmp_path / "m.keras")
    assert [layer.name for layer in twin.layers] == [layer.name for layer in model.layers]
    assert entries(twin) == entries(model)


@pytest.mark.parametrize("name", NAMES[:2])
def test_a_replaced_file_keeps_its_permissions_and_links(name, tmp_path):
    (tmp_path / "real").mkdir()
    file = tmp_path / "real" / name
    save(filled(), file)
    file.chmod(0o640)
    link = tmp_path / name
    link.symlink_to(file)
    model = changed(filled())
    save(model, link)
    assert link.is_symlink()
    assert file.stat().st_mode & 0o777 == 0o640
    assert_holds(file, model)


@pytest.mark.parametrize(
    ("function", "name"),
    [(save_model, "m.h5"), (save_model, "m"), (save_weights, "m.h5"), (save_weights, "m.weights.json")],
)
def test_other_endings_are_refused(function, name, tmp_path):
    with pytest.raises(ValueError, match=re.escape(f"Received: filepath={tmp_path / name}")):
        function(filled(), tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_places_that_cannot_be_written(tmp_path):
    with pytest.raises(FileNotFoundError, match="create it first"):
        save_model(filled(), tmp_path / "no" / "m.keras")
    (tmp_path / "m.keras").mkdir()
    with pytest.raises(IsADirectoryError, match="is a folder"):
        save_model(filled(), tmp_path / "m.keras")
    with pytest.raises(OSError):
        save_model(filled(), "/proc/m.keras")


@pytest.mark.parametrize("name", NAMES)
def test_a_full_disk_leaves_the_old_file(name, tmp_path):
    path = tmp_path / name
    model = filled()
    save(model, path)
    before = {p.name for p in tmp_path.iterdir()}
    other = changed(filled())
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            save(other, path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert_holds(path, model)
    assert {p.name for p in tmp_path.iterdir()} == before


def test_room_is_asked_for_the_numbers_of_the_optimizer_too(tmp_path):
    model = keras.Sequential([keras.Input((1000,)), keras.layers.Dense(1000, dtype="float64")])
    model.compile("adam")
    model.optimizer.build(model.trainable_variables)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20 * 2**20, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            save_weights(model, tmp_path / "m.weights.h5")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", NAMES)
def test_an_interrupted_save_leaves_the_old_file(name, tmp_path, monkeypatch):
    path = tmp_path / name
    model = filled()
    save(model, path)
    before = {p.name for p in tmp_path.iterdir()}

    def interrupt(*arguments):
        raise KeyboardInterrupt

    other = changed(filled())
    monkeypatch.setattr(other.layers[-1], "save_own_variables", interrupt)
    with pytest.raises(KeyboardInterrupt):
        save(other, path)
    assert_holds(path, model)
    assert {p.name for p in tmp_path.iterdir()} == before


# ---- shards ------------------------------------------------------------------------------------------


def shards(folder):
    return {p.name for p in folder.glob("*.weights.h5")}


def test_shards_of_the_index_before_are_removed(tmp_path):
    path = tmp_path / "m.weights.json"
    filled().save_weights(path, max_shard_size=SHARD)
    usual = shards(tmp_path)
    assert "m_00001.weights.h5" in usual
    model = filled()
    for _ in range(2):
        save(changed(model), path)
        assert_holds(path, model)
        assert len(shards(tmp_path)) == len(usual) + 1  # the first one's usual name is kept
    with h5py.File(tmp_path / "m_00000.weights.h5") as opened:
        assert len(opened) == 0


def test_files_that_only_look_like_shards_stay(tmp_path):
    others = {"m_00012.weights.h5", "m-1a2b3c4d_00001.weights.h5", "n_00000.weights.h5", "m_00000.weights.h5"}
    for name in others:
        filled().save_weights(tmp_path / name)
    before = {name: (tmp_path / name).read_bytes() for name in others}
    for _ in range(2):
        save(filled(), tmp_path / "m.weights.json")
    assert {name: (tmp_path / name).read_bytes() for name in others} == before


def test_keras_can_save_over_it(tmp_path):
    path = tmp_path / "m.weights.json"
    save(filled(), path)
    model = changed(filled())
    model.save_weights(path, max_shard_size=SHARD)
    assert_holds(path, model)


def test_an_index_that_names_other_files_removes_none(tmp_path):
    (tmp_path / "kept.weights.h5").write_bytes(b"somebody's")
    (tmp_path / "m.weights.json").write_text('{"weight_map": {"/vars": ["kept.weights.h5", "../kept"]}}')
    save(filled(), tmp_path / "m.weights.json")
    assert (tmp_path / "kept.weights.h5").read_bytes() == b"somebody's"


# ---- what others left or are writing -----------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_what_killed_writers_left_is_removed(name, tmp_path):
    left = replacing.workplace_of(tmp_path / name, "0123abcd")
    left.mkdir()
    (left / name).write_bytes(b"half a file")
    shard = tmp_path / "m.shards-0123abcd_00003.weights.h5"
    shard.write_bytes(b"half a file")
    save(filled(), tmp_path / name)
    assert not left.exists()
    assert shard.exists() == (name != "m.weights.json")


@pytest.mark.parametrize("name", NAMES)
def test_what_others_are_writing_is_left(name, tmp_path):
    with replacing.workplace(tmp_path / name) as folder:
        (folder / name).write_bytes(b"half a file")
        shard = tmp_path / f"m.shards-{replacing.token_of(folder)}_00003.weights.h5"
        shard.write_bytes(b"half a file")
        save(filled(), tmp_path / name)
        assert (folder / name).read_bytes() == b"half a file"
        assert shard.exists()


def test_a_workplace_taken_for_abandoned_before_it_was_locked_is_made_again(tmp_path, monkeypatch):
    lock, taken = replacing._lock, []

    def late(folder):
        if not taken:
            taken.append(folder)
            folder.rmdir()
            return None
        return lock(folder)

    monkeypatch.setattr(replacing, "_lock", late)
    with replacing.workplace(tmp_path / "m.keras") as folder:
        assert folder.is_dir()
        assert folder != taken[0]


# ---- killed ------------------------------------------------------------------------------------------

# Under Keras's numpy backend, whose processes may fork: children save without end, each weight of a save
# having one value, and are killed at a random moment.
# Prints for each file how often it could not be read, and how many saves it went through.
KILL_SAVERS = """
import itertools, random, sys, warnings
from pathlib import Path
import numpy as np, keras
from killing import killed_at_random
from tuning_data import fill
from keras_tunedconv import TunedConv2D, TuningWarning, save_model, save_weights
from keras_tunedconv.tuning.archive import entries_of

how, kills, *paths = sys.argv[1:]

def build():
    layers = TunedConv2D(24, 3), TunedConv2D(24, 3), keras.layers.Flatten(), keras.layers.Dense(2)
    return keras.Sequential([keras.Input((16, 16, 3)), *layers])

def save(path, value):
    for weight in model.weights:
        weight.assign(np.full(weight.shape, value))
    if how == "plain":
        (model.save if path.endswith(".keras") else model.save_weights)(path)
    elif path.endswith(".keras"):
        save_model(model, path)
    else:
        save_weights(model, path, max_shard_size=4e-5 if path.endswith(".json") else None)

def value_in(path):
    twin.load_weights(path)
    values = {float(v) for weight in twin.get_weights() for v in np.unique(weight)}
    assert len(values) == 1, f"weights of several saves: {values}"
    assert sum(len(found.decoded.records) for found in entries_of(Path(path))) == 6
    return values.pop()

def kill_savers(path):
    last, unreadable = 0.0, 0
    save(path, last)

    def saver():
        values = itertools.count(last + 1)
        return lambda: save(path, next(values))

    for _ in killed_at_random(int(kills), chance, saver):
        try:
            value = value_in(path)
        except Exception as error:
            if how == "whole":
                raise
            unreadable += 1
            continue
        assert value >= last
        last = value
    save(path, last)  # which also shows that nothing stays locked
    print(unreadable, int(last))

model, twin, chance = build(), build(), random.Random(2)
fill(model)
warnings.simplefilter("error", TuningWarning)
for path in paths:
    kill_savers(path)
"""


def kill_savers(how, kills, paths):
    tests = str(Path(__file__).parent)
    environment = {
        **os.environ,
        "KERAS_BACKEND": "numpy",
        "PYTHONPATH": os.pathsep.join([tests, os.environ.get("PYTHONPATH", "")]),
    }
    command = [sys.executable, "-c", KILL_SAVERS, how, str(kills), *paths]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1000)
    assert done.returncode == 0, done.stderr[-3000:]
    return [tuple(map(int, line.split())) for line in done.stdout.splitlines()]


def test_killed_savers_leave_whole_files(tmp_path):
    for unreadable, saves in kill_savers("whole", 6, [tmp_path / name for name in NAMES]):
        assert unreadable == 0
        assert saves > 0
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_two_hundred_killed_savers_leave_whole_files(tmp_path):
    counts = kill_savers("whole", 200, [tmp_path / name for name in NAMES])
    assert [unreadable for unreadable, _ in counts] == [0, 0, 0]
    # What Keras's own saving does depends on the moment, so it is told and not asserted.
    torn = kill_savers("plain", 200, [tmp_path / f"plain-{name}" for name in NAMES[:2]])
    for name, (unreadable, saves) in zip(
        [*NAMES, *(f"{n} by Keras alone" for n in NAMES[:2])], counts + torn, strict=True
    ):
        print(f"\n{name}: 200 kills in {saves} saves, {unreadable} unreadable", end="")
