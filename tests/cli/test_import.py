"""`keras-tunedconv import`: entries of a database into the layers of a model's file, and nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from dataclasses import replace

import h5py
import keras
import numpy as np
import pytest
from click.testing import CliRunner
from tuning_data import (
    ELSEWHERE,
    HERE,
    KINDS,
    build,
    content,
    fill,
    make_keys,
    make_record,
    make_records,
    tuned_layers,
)

from keras_tunedconv import TunedConv2D
from keras_tunedconv.cli.main import main
from keras_tunedconv.core.record import Provenance
from keras_tunedconv.tuning import archive, database


def run(*arguments):
    return CliRunner().invoke(main, ["import", *map(str, arguments)])


def entries_of(model):
    """Records of each tuned layer of a model, without what importing changes."""
    return [
        content(replace(record, provenance=Provenance.MEASURED) for record in layer.tuning.records())
        for layer in tuned_layers(model)
    ]


def weights_of(path):
    """What a file stores except entries: members of the archive, and the bytes of each weight."""
    members = {}
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as opened:
            members = {name: opened.read(name) for name in opened.namelist() if name != archive.WEIGHTS}
            stored = opened.open(archive.WEIGHTS)
    else:
        stored = path.open("rb")
    with stored, h5py.File(stored, "r") as file:
        file.visititems(
            lambda name, each: members.update(
                {name: (each.dtype, each.shape, each[()].tobytes(), dict(each.attrs))}
                if isinstance(each, h5py.Dataset) and "/tuning/" not in name
                else {}
            )
        )
    return members


@pytest.fixture
def pair(tmp_path):
    """A tuned model, its entries in a database, and a file of the same model that has none."""

    def make(kind, suffix):
        keras.utils.set_random_seed(1)
        tuned = build(kind, TunedConv2D)
        fill(tuned)
        records = [record for layer in tuned_layers(tuned) for record in layer.tuning.records()]
        foreign = [replace(record, environment=ELSEWHERE) for record in records]
        strangers = map(make_record, make_keys((8, 16, 16, 5), (3, 3, 5, 4)))
        database.merge_into(tmp_path / "database.h5", [*records, *foreign, *strangers])
        keras.utils.set_random_seed(2)
        bare = build(kind, TunedConv2D)
        if kind != "subclassed":
            bare.compile("adam", "mse")
        path = tmp_path / f"bare{suffix}"
        bare.save(path) if suffix == ".keras" else bare.save_weights(path)
        return tuned, bare, path, tmp_path / "database.h5"

    return make


@pytest.mark.parametrize("suffix", [".keras", ".weights.h5"])
@pytest.mark.parametrize("kind", KINDS)
def test_each_layer_gets_its_own_and_the_weights_stay(pair, kind, suffix):
    if (kind, suffix) == ("subclassed", ".keras"):
        pytest.skip(
            "Keras opens it with the class's source only; its weights are covered by the other suffix"
        )
    tuned, bare, path, entries = pair(kind, suffix)
    before, mode = weights_of(path), path.stat().st_mode
    result = run(entries, path, "--environment", HERE)
    assert result.exit_code == 0, result.output
    assert weights_of(path) == before
    assert path.stat().st_mode == mode
    assert sorted(each.name for each in path.parent.iterdir()) == [
        path.name,
        "database.h5",
        "database.h5.lock",
    ]
    loaded = keras.saving.load_model(path) if suffix == ".keras" else build(kind, TunedConv2D)
    if suffix != ".keras":
        loaded.load_weights(path)
    for given, read in zip(bare.weights, loaded.weights, strict=True):
        assert np.array_equal(keras.ops.convert_to_numpy(given), keras.ops.convert_to_numpy(read))
    assert entries_of(loaded) == entries_of(tuned)
    assert all(
        r.provenance is Provenance.IMPORTED for layer in tuned_layers(loaded) for r in layer.tuning.records()
    )
    count = sum(map(len, entries_of(tuned)))
    assert f"{count} entries new or changed in {len(tuned_layers(tuned))} layers" in result.output


def test_a_second_time_changes_nothing(pair):
    _, _, path, entries = pair("functional", ".keras")
    run(entries, path)
    before = path.read_bytes()
    result = run(entries, path)
    assert result.output.startswith("0 entries new or changed in 0 layers")
    assert path.read_bytes() == before


def test_a_models_own_entries_changes_nothing(tmp_path):
    model = build("functional", TunedConv2D)
    fill(model)
    path = tmp_path / "model.keras"
    model.save(path)
    before = path.read_bytes()
    assert run(path, path).output.startswith("0 entries")
    assert path.read_bytes() == before


def test_the_better_entry_stays(tmp_path):
    model = build("sequential", TunedConv2D)
    fill(model, time_seconds=2.0)
    path = tmp_path / "model.weights.h5"
    model.save_weights(path)
    known = [record for layer in tuned_layers(model) for record in layer.tuning.records()]
    faster, slower = replace(known[0], time_seconds=1.0), replace(known[1], time_seconds=3.0)
    database.merge_into(tmp_path / "database.h5", [faster, slower])
    assert run(tmp_path / "database.h5", path).output.startswith("1 entry new or changed in 1 layer of")
    stored = [record for part in archive.entries_of(path) for record in part.decoded.records]
    assert len(stored) == len(known)
    assert replace(faster, provenance=Provenance.IMPORTED, sequence=0) in stored
    assert slower not in stored


def test_the_arguments_of_layers_tell_them_apart(tmp_path):
    """Two layers with kernels of one shape: in a `.keras` file stride and size decide."""
    model = keras.Sequential(
        [
            keras.Input((16, 16, 4)),
            TunedConv2D(4, 3, padding="same", name="plain"),
            keras.Sequential([TunedConv2D(4, 3, padding="same", strides=2, name="strided")]),
            TunedConv2D(4, 3, padding="same", name="half", dtype="mixed_float16"),
        ]
    )
    model.save(tmp_path / "model.keras")
    keys = {
        "plain": make_keys((2, 16, 16, 4), (3, 3, 4, 4), padding="same"),
        "strided": make_keys((2, 16, 16, 4), (3, 3, 4, 4), padding="same", strides=2),
        "half": make_keys((2, 8, 8, 4), (3, 3, 4, 4), padding="same", dtype="float16"),
        "nobody": make_keys((2, 8, 8, 4), (3, 3, 4, 4), padding="same", dtype="float32"),
    }
    database.merge_into(
        tmp_path / "database.h5", [make_record(key) for each in keys.values() for key in each]
    )
    assert run(tmp_path / "database.h5", tmp_path / "model.keras").exit_code == 0
    found = {
        part.name: {record.key for record in part.decoded.records}
        for part in archive.entries_of(tmp_path / "model.keras")
    }
    assert found == {name: set(keys[name]) for name in ("plain", "strided", "half")}


def test_a_shared_layer_takes_every_size(tmp_path):
    shared = TunedConv2D(4, 3, name="shared")
    inputs = keras.Input((16, 16, 4)), keras.Input((12, 12, 4))
    model = keras.Model(inputs, [shared(each) for each in inputs])
    model.save(tmp_path / "model.keras")
    keys = [*make_keys((2, 16, 16, 4), (3, 3, 4, 4)), *make_keys((2, 12, 12, 4), (3, 3, 4, 4))]
    database.merge_into(tmp_path / "database.h5", map(make_record, keys))
    assert run(tmp_path / "database.h5", tmp_path / "model.keras").output.startswith("6 entries")


def test_a_stock_model_is_refused(tmp_path):
    build("functional", keras.layers.Conv2D).save(tmp_path / "stock.keras")
    database.merge_into(tmp_path / "database.h5", make_records(3))
    before = (tmp_path / "stock.keras").read_bytes()
    result = run(tmp_path / "database.h5", tmp_path / "stock.keras")
    assert result.exit_code == 2
    assert "no TunedConv2D layer" in result.output
    assert "to_tuned" in result.output
    assert (tmp_path / "stock.keras").read_bytes() == before


def test_entries_of_a_later_schema_are_not_replaced(tmp_path):
    model = build("sequential", TunedConv2D)
    fill(model)
    path = tmp_path / "model.weights.h5"
    model.save_weights(path)
    records = [record for layer in tuned_layers(model) for record in layer.tuning.records()]
    database.merge_into(tmp_path / "database.h5", [replace(record, time_seconds=1e-9) for record in records])
    with h5py.File(path, "r+") as file:
        text = file["layers/conv2d/tuning/vars/text"]
        text[...] = np.frombuffer(text[()].tobytes().replace(b"tuning 1\n", b"tuning 9\n"), np.uint8)
    before = path.read_bytes()
    result = run(tmp_path / "database.h5", path)
    assert result.exit_code == 2
    assert "schema version 9" in result.output
    assert path.read_bytes() == before


BAD_MODELS = {
    "missing": (lambda path: None, "does not exist; in"),
    "garbage": (lambda path: path.write_bytes(b"no file of ours" * 100), "cannot be read"),
    "shards": (lambda path: path.write_text('{"weight_map": {}}'), "expected a .keras or .weights.h5 file"),
    "database": (lambda path: database.merge_into(path, make_records(1)), "keras-tunedconv merge"),
    "folder": (lambda path: path.mkdir(), "is no regular file"),
    "pipe": (os.mkfifo, "is no regular file"),
    "empty": (lambda path: path.touch(), "cannot be read"),
}


@pytest.mark.parametrize("case", BAD_MODELS)
def test_what_is_no_model_is_one_clear_error(tmp_path, case):
    make, message = BAD_MODELS[case]
    database.merge_into(tmp_path / "database.h5", make_records(3))
    make(tmp_path / "bad.h5")
    result = run(tmp_path / "database.h5", tmp_path / "bad.h5")
    assert result.exit_code == 2
    assert message in result.output
    assert "bad.h5" in result.output
    assert isinstance(result.exception, SystemExit)


def test_unknown_environments_and_files_are_errors_that_list_those_there_are(pair):
    _, _, path, entries = pair("sequential", ".weights.h5")
    result = run(entries, path, "--environment", "A100")
    assert result.exit_code == 2
    assert HERE in result.output
    assert ELSEWHERE in result.output
    result = run(entries.with_name("databse.h5"), path)
    assert result.exit_code == 2
    assert "database.h5" in result.output
    result = run(entries, path.parent / "none" / "model.keras")
    assert result.exit_code == 2
    assert f"no folder {path.parent / 'none'}" in result.output


def test_no_backend_is_imported(pair):
    _, _, path, entries = pair("functional", ".keras")
    code = (
        "import sys; from keras_tunedconv.cli.main import main; "
        f"main(['import', {str(entries)!r}, {str(path)!r}], standalone_mode=False); "
        "print(sorted({'keras', 'tensorflow', 'jax', 'torch'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ
    )
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    "text", ["{", "[]", json.dumps({"config": []}), json.dumps({"config": {"layers": 1}})]
)
def test_an_odd_configuration_is_no_crash(tmp_path, text):
    build("functional", TunedConv2D).save(tmp_path / "model.keras")
    with (
        zipfile.ZipFile(tmp_path / "model.keras") as source,
        zipfile.ZipFile(tmp_path / "odd.keras", "w") as odd,
    ):
        odd.writestr("config.json", text)
        odd.writestr(archive.WEIGHTS, source.read(archive.WEIGHTS))
    database.merge_into(tmp_path / "database.h5", make_records(3))
    result = run(tmp_path / "database.h5", tmp_path / "odd.keras")
    assert result.exit_code in (0, 2)
    assert result.exception is None or isinstance(result.exception, SystemExit)
