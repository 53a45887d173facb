"""Databases that models share: where they are looked for, which comes first, and what a broken one does."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from tuning_data import ELSEWHERE, make_record, make_records, own_warnings

from keras_tunedconv.core import engines, registry
from keras_tunedconv.core.descriptor import forward_descriptor
from keras_tunedconv.core.errors import TuningWarning
from keras_tunedconv.core.record import Provenance
from keras_tunedconv.tuning import database, search_path

X_SHAPE, KERNEL_SHAPE = (2, 8, 8, 4), (3, 3, 4, 4)


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """An empty folder for each place, in the order of precedence."""
    monkeypatch.delenv(search_path.SWITCH_VARIABLE)
    found = {name: tmp_path / name for name in (search_path.USER, search_path.NAMED, search_path.SHIPPED)}
    for folder in found.values():
        folder.mkdir()
    monkeypatch.setattr(search_path, "user_folder", lambda: found["user"])
    monkeypatch.setattr(search_path, "_SHIPPED_FOLDER", found["shipped"])
    monkeypatch.setenv(search_path.FOLDERS_VARIABLE, str(found["named"]))
    monkeypatch.setattr(search_path, "_warned", set())
    return found


@pytest.fixture
def record():
    """A record of a convolution that oneDNN can run here, not by its first choice."""
    descriptor = forward_descriptor(X_SHAPE, KERNEL_SHAPE)
    return make_record(
        descriptor.key,
        environment=engines.environment("cpu"),
        algorithm=engines.candidates(descriptor)[1],
        runner_up="",
    )


def run_convolution():
    x, w, y = (np.ones(shape, "float32") for shape in (X_SHAPE, KERNEL_SHAPE, (2, 6, 6, 4)))
    engines.convolve(forward_descriptor(X_SHAPE, KERNEL_SHAPE), x, w, y)
    return y


def test_a_shipped_entry_runs_unmeasured_and_is_told_only_then(folders, record):
    database.merge_into(folders["shipped"] / "cpu.h5", [record])
    search_path.offer("cpu")
    assert registry.collect()[0] == []
    assert np.all(run_convolution() == 36)
    assert registry.stats()["hits"] == 1
    assert registry.stats()["measured"] == 0
    (used,) = registry.collect()[0]
    assert (used.algorithm, used.provenance) == (record.algorithm, Provenance.SHIPPED)


@pytest.mark.parametrize(
    ("places", "winner"),
    [
        (("user", "named", "shipped"), "user"),
        (("named", "shipped"), "named"),
        (("model", "user", "named", "shipped"), "model"),
    ],
)
@pytest.mark.parametrize("model_first", [True, False])
def test_precedence(folders, record, places, winner, model_first):
    for place in places:
        if place != "model":
            database.merge_into(folders[place] / "one.h5", [replace(record, runner_up=place)])
    if not model_first:
        search_path.offer("cpu")
    if "model" in places:
        registry.put(replace(record, runner_up="model"))
    if model_first:
        search_path.offer("cpu")
    run_convolution()
    (used,) = registry.collect()[0]
    assert used.runner_up == winner


def test_an_entry_measured_here_stands_above_all(folders, record):
    run_convolution()
    (measured,) = registry.collect()[0]
    database.merge_into(folders["user"] / "one.h5", [replace(record, runner_up="user")])
    search_path.offer("cpu")
    run_convolution()
    assert registry.collect()[0] == [measured]


def test_a_shared_measurement_stands_above_the_model_files_copy(folders, record):
    registry.put(replace(record, provenance=Provenance.COPIED, runner_up="model"))
    database.merge_into(folders["shipped"] / "one.h5", [replace(record, runner_up="shipped")])
    search_path.offer("cpu")
    run_convolution()
    (used,) = registry.collect()[0]
    assert used.runner_up == "shipped"


def test_other_environments_stay_out(folders, record):
    database.merge_into(folders["user"] / "many.h5", [*make_records(30, environment=ELSEWHERE), record])
    assert search_path._of_device(database.read(folders["user"] / "many.h5").records, "cpu", "user") == [
        replace(record, provenance=Provenance.IMPORTED)
    ]
    assert len(search_path._of_device(make_records(3, environment=ELSEWHERE), "cuda", "shipped")) == 3


def test_another_patch_level_of_the_library_is_taken_in(folders, record):
    other = replace(record, environment=f"{record.environment.partition(';~')[0]};~patch=99")
    database.merge_into(folders["shipped"] / "one.h5", [other])
    search_path.offer("cpu")
    run_convolution()
    stats = registry.stats()
    assert (stats["copied"], stats["measured"], stats["hits"]) == (1, 0, 0)  # to be measured again once


def test_several_places_and_single_files_can_be_named(folders, tmp_path, record, monkeypatch):
    other = tmp_path / "other.db"
    database.merge_into(other, [record])
    for name in ("b.h5", "a.h5"):
        database.merge_into(folders["named"] / name, [record])
    (folders["named"] / "notes.txt").write_text("not a database")
    monkeypatch.setenv(search_path.FOLDERS_VARIABLE, os.pathsep.join((str(folders["named"]), str(other))))
    assert [source.path.name for source in search_path.sources()] == ["a.h5", "b.h5", "other.db"]
    assert {source.origin for source in search_path.sources()} == {search_path.NAMED}


def test_a_broken_and_a_missing_one_are_a_warning_each_and_the_rest_is_used(
    folders, tmp_path, record, monkeypatch
):
    (folders["user"] / "broken.h5").write_bytes(b"\x89HDF\r\n\x1a\n" + b"\0" * 40)
    database.merge_into(folders["shipped"] / "good.h5", [record])
    monkeypatch.setenv(search_path.FOLDERS_VARIABLE, str(tmp_path / "none"))
    with pytest.warns(TuningWarning) as told:
        search_path.offer("cpu")
        search_path.offer("cpu")
    assert len(own_warnings(told)) == 2
    assert any("broken.h5 cannot be read" in str(one.message) for one in told)
    assert any(f"no tuning database {tmp_path / 'none'}" in str(one.message) for one in told)
    run_convolution()
    assert registry.stats()["hits"] == 1


def test_a_malformed_entry_is_told_with_its_file(folders, record):
    bad = replace(record, key=record.key.replace("groups=1", "groups=7"))
    database.merge_into(folders["user"] / "odd.h5", [bad])
    with pytest.warns(TuningWarning, match=r"1 entries of .*odd\.h5 were ignored: .*7 groups"):
        search_path.offer("cpu")


def test_it_can_be_switched_off(folders, record, monkeypatch):
    database.merge_into(folders["user"] / "one.h5", [record])
    assert len(search_path.sources()) == 1
    monkeypatch.setenv(search_path.SWITCH_VARIABLE, "0")
    assert search_path.sources() == []


def test_they_are_read_when_a_layer_first_runs_and_not_at_import(tmp_path, record):
    descriptors = forward_descriptor(X_SHAPE, KERNEL_SHAPE)
    database.merge_into(tmp_path / "one.h5", [record])
    code = f"""
import keras
from keras_tunedconv import TunedConv2D, stats
from keras_tunedconv.tuning import database
read, database.read = database.read, lambda path: print("read", path) or read(path)
layer = TunedConv2D({KERNEL_SHAPE[-1]}, 3, use_bias=False)
layer.build({X_SHAPE})
print("built")
for _ in range(2):
    keras.ops.convert_to_numpy(layer(keras.ops.ones({X_SHAPE})))
print("stats", stats()["hits"], stats()["measured"])
print(len(layer.tuning.records()), layer.tuning.collect(), *layer.tuning.forward)
"""
    environment = {
        **os.environ,
        search_path.FOLDERS_VARIABLE: str(tmp_path),
        search_path.SWITCH_VARIABLE: "1",
        "XDG_DATA_HOME": str(tmp_path / "home"),
    }
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    shipped = sorted(search_path._SHIPPED_FOLDER.glob("*.h5"), reverse=True)
    assert done.stdout.splitlines() == [
        "built",
        *(f"read {path}" for path in [*shipped, tmp_path / "one.h5"]),
        "stats 1 0",
        f"0 1 {descriptors.key}",
    ]
