"""`keras-tunedconv inspect`: every kind of file, no backend, one clear error for what is no such file."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pytest
from click.testing import CliRunner
from tuning_data import ELSEWHERE, content, make_record, make_records, make_searches

from keras_tunedconv.cli.inspect import inspect
from keras_tunedconv.tuning import archive, database, hdf5
from keras_tunedconv.tuning.schema import encode

RECORDS = [*make_records(3), make_record(environment=ELSEWHERE, algorithm="engine=38;knobs=")]


def run(*arguments):
    return CliRunner().invoke(inspect, [str(argument) for argument in arguments])


def listed(path):
    result = run(path, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.output)


def write_weights(path, records=RECORDS, layers=("conv2d", "conv2d_1")):
    """What Keras writes, without Keras."""
    with h5py.File(path, "w") as file:
        for layer in layers:
            weights = file.create_group(f"layers/{layer}/vars")
            weights.attrs["name"] = f"name_of_{layer}"
            weights["0"] = np.ones((3, 3, 3, 4), "f4")
            with hdf5.compact_groups():
                group = file[f"layers/{layer}"].create_group("tuning").create_group("vars")
            hdf5.write_columns(group, encode(records))
    return path


@pytest.fixture
def weights(tmp_path):
    return write_weights(tmp_path / "m.weights.h5")


def test_weights_files(weights):
    found = listed(weights)
    assert [part["layer"] for part in found] == ["layers/conv2d", "layers/conv2d_1"]
    assert [part["name"] for part in found] == ["name_of_conv2d", "name_of_conv2d_1"]
    entry = found[0]["entries"][3]
    assert entry["environment"] == ELSEWHERE
    assert entry["provenance"] == "measured"
    assert entry["key"] == RECORDS[3].key
    assert entry["time_seconds"] == RECORDS[3].time_seconds


@pytest.mark.parametrize("padding", [0, 3000])
def test_model_files_are_read_in_place(weights, tmp_path, padding):
    path = tmp_path / "m.keras"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("config.json", "x" * padding)
        file.write(weights, "model.weights.h5")
        file.writestr("metadata.json", "{}")
    assert len(listed(path)) == 2


def test_indexes_of_shards(tmp_path):
    for i in range(2):
        write_weights(tmp_path / f"m_{i}.weights.h5", layers=[f"conv2d_{i}"])
    index = {"weight_map": {"/a": "m_0.weights.h5", "/b": ["m_0.weights.h5", "m_1.weights.h5"]}}
    (tmp_path / "m.weights.json").write_text(json.dumps(index))
    found = listed(tmp_path / "m.weights.json")
    assert [part["layer"] for part in found] == ["layers/conv2d_0", "layers/conv2d_1"]


def test_columns_that_two_shards_part_are_put_together(tmp_path):
    for i, name in enumerate(("text", "numbers")):
        path = write_weights(tmp_path / f"m_{i}.weights.h5", layers=["conv2d"])
        with h5py.File(path, "r+") as file:
            del file[f"layers/conv2d/tuning/vars/{name}"]
    index = {"weight_map": {"/a": ["m_0.weights.h5", "m_1.weights.h5"]}}
    (tmp_path / "m.weights.json").write_text(json.dumps(index))
    (found,) = listed(tmp_path / "m.weights.json")
    assert len(found["entries"]) == 4


def test_databases(tmp_path):
    database.merge_into(tmp_path / "tuning.h5", RECORDS)
    (found,) = listed(tmp_path / "tuning.h5")
    assert found["layer"] == ""
    assert len(found["entries"]) == 4


def test_the_table_is_for_people(weights):
    output = run(weights).output
    assert "name_of_conv2d" in output
    assert "1x3x16x16 filter 4x3x3x3 float32" in output
    assert "8 entries of 2 environments" in output
    assert f"env 2: {ELSEWHERE}" in output.replace("\n", "")


def test_a_file_without_entries_is_no_error(tmp_path):
    result = run(write_weights(tmp_path / "m.weights.h5", layers=()))
    assert result.exit_code == 0
    assert "0 entries" in result.output


def test_broken_entries_are_told_and_the_others_listed(weights):
    with h5py.File(weights, "r+") as file:
        text = file["layers/conv2d/tuning/vars/text"]
        text[:5] = 0
        numbers = file["layers/conv2d_1/tuning/vars/numbers"]
        numbers[0, 8] = np.nan
    first, second = listed(weights)
    assert first["entries"] == []
    assert "do not begin" in first["problem"]
    assert second["malformed"] == 1
    assert len(second["entries"]) == 3
    output = run(weights).output
    assert "layers/conv2d: entries cannot be read" in output.replace("\n", " ")
    assert "1 malformed entries" in output.replace("\n", " ")


def test_links_and_cycles_are_not_followed(weights, tmp_path):
    with h5py.File(weights, "r+") as file:
        file["layers/again"] = file["layers"]
        file["layers/soft"] = h5py.SoftLink("/layers")
        file["layers/out"] = h5py.ExternalLink(str(tmp_path / "other.h5"), "/")
        file["layers/conv2d/\x1b[31mred"] = file["layers/conv2d/vars"]
        file.move("layers/conv2d_1", "layers/\x1b]0;title\x07")
    found = listed(weights)
    assert len(found) == 2
    assert all(part["layer"].isprintable() for part in found)
    assert "\x1b" not in run(weights).output


def deflated(path, weights):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.write(weights, "model.weights.h5")


def without_weights(path, weights):
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("config.json", "{}")


def damaged_archive(path, weights):
    path.write_bytes(b"PK\x03\x04 and nothing else")


BAD = {
    "nothing": (lambda path, weights: None, "does not exist"),
    "empty": (lambda path, weights: path.write_bytes(b""), "cannot be read"),
    "text": (lambda path, weights: path.write_text("hello"), "cannot be read"),
    "folder": (lambda path, weights: path.mkdir(), "is no regular file"),
    "cut off": (lambda path, weights: path.write_bytes(weights.read_bytes()[:3000]), "cannot be read"),
    "damaged archive": (damaged_archive, "cannot be read"),
    "archive without weights": (without_weights, "holds no model.weights.h5"),
    "compressed archive": (deflated, "compressed"),
    "other json": (lambda path, weights: path.write_text('{"a": 1}'), "no weight_map"),
    "broken json": (lambda path, weights: path.write_text('{"weight_map": '), "cannot be read"),
    "missing shard": (
        lambda path, weights: path.write_text('{"weight_map": {"/a": "gone.h5"}}'),
        "No such file",
    ),
    "shard elsewhere": (
        lambda path, weights: path.write_text('{"weight_map": {"/a": "../m.weights.h5"}}'),
        "not a file beside it",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_no_such_file_is_one_clear_error(case, weights, tmp_path):
    make, message = BAD[case]
    make(tmp_path / "bad", weights)
    result = run(tmp_path / "bad")
    assert result.exit_code == 2
    assert result.output.startswith("Error: ")
    assert message in result.output
    assert str(tmp_path / "bad") in result.output.replace("\n", "")
    assert isinstance(result.exception, SystemExit)


def test_deep_and_wide_files_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(archive, "_MAX_GROUPS", 50)
    with h5py.File(tmp_path / "wide.h5", "w") as file:
        for i in range(60):
            file.create_group(f"layers/{i}")
    with h5py.File(tmp_path / "deep.h5", "w") as file:
        file.create_group("/".join("d" * 45))
    assert run(tmp_path / "wide.h5").exit_code == 2
    monkeypatch.setattr(archive, "_MAX_DEPTH", 20)
    assert run(tmp_path / "deep.h5").exit_code == 2


def test_no_backend_is_imported(weights):
    code = (
        "import sys; from keras_tunedconv.cli.main import main; "
        f"main(['inspect', {str(weights)!r}], standalone_mode=False); "
        "print(sorted({'keras', 'tensorflow', 'jax', 'torch'} & set(sys.modules)))"
    )
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert finished.stdout.splitlines()[-1] == "[]"


def test_what_keras_wrote_is_read(tmp_path):
    tests = Path(__file__).parents[1]
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); "
        "from tuning_data import *; from keras_tunedconv import TunedConv2D; "
        "m = build('functional', TunedConv2D); fill(m); m.save(sys.argv[2] + '/m.keras'); "
        "m.save_weights(sys.argv[2] + '/m.weights.h5'); "
        "m.save_weights(sys.argv[2] + '/s.weights.json', max_shard_size=1)"
    )
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"}
    subprocess.run([sys.executable, "-c", code, tests, tmp_path], check=True, env=environment)
    found = [listed(tmp_path / name) for name in ("m.keras", "m.weights.h5", "s.weights.json")]
    assert found[0] == found[1] == found[2]
    assert [len(part["entries"]) for part in found[0]] == [3, 3]
    assert all(part["name"].startswith("conv2d") for part in found[0])


def test_what_is_listed_is_what_is_stored(weights):
    records = archive.entries_of(weights)[0].decoded.records
    assert content(records) == content(RECORDS)


# ---- candidates ------------------------------------------------------------------------------------------


@pytest.fixture
def recorded(tmp_path):
    path = tmp_path / "recorded.h5"
    database.merge_into(path, make_records(3), searches=make_searches(3))
    return path


def test_candidates_are_listed_the_fastest_first(recorded):
    result = run(recorded, "--candidates", "backward_data|")
    assert result.exit_code == 0, result.output
    assert "1 search with recorded candidates" in result.output
    lines = [line for line in result.output.splitlines() if "│" in line]
    assert ["best:avx2#0" in lines[0], "default" in lines[1], "SLOW ONE" in lines[2]] == [True, True, True]
    assert "not tried" in result.output
    assert "over the limit" in result.output


def test_candidates_as_json(recorded):
    result = run(recorded, "--candidates", "", "--json")
    listed = json.loads(result.output)
    assert [search["key"] for search in listed] == [search.key for search in make_searches(3)]
    assert listed[0]["trials"][1]["state"] == "won"
    assert len(listed[0]["trials"][1]["samples"]) == 16


def test_files_without_candidates_list_none(weights, tmp_path):
    assert "0 searches" in run(weights, "--candidates", "").output
    database.merge_into(tmp_path / "plain.h5", make_records(1))
    assert "0 searches" in run(tmp_path / "plain.h5", "--candidates", "").output
    assert run(tmp_path / "missing.h5", "--candidates", "").exit_code == 2


def test_damaged_candidates_are_an_error_only_where_asked_for(recorded):
    with h5py.File(recorded, "r+") as file:
        del file["tuning/candidates/text"]
    assert len(listed(recorded)[0]["entries"]) == 3
    result = run(recorded, "--candidates", "")
    assert result.exit_code == 2
    assert "cannot be read" in result.output
