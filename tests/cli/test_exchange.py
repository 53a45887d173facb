"""`keras-tunedconv diff`, `merge`, `export`, `prune`: models' files and databases, and what bad ones get."""

import json
from dataclasses import replace

import h5py
import numpy as np
import pytest
from click.testing import CliRunner
from tuning_data import ELSEWHERE, HERE, content, make_record, make_records, make_searches

from keras_tunedconv.cli.main import main
from keras_tunedconv.core.record import Provenance
from keras_tunedconv.tuning import database, hdf5
from keras_tunedconv.tuning.schema import encode

RECORDS = make_records(3)


def run(*arguments):
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def write(path, *records):
    database.merge_into(path, records)
    return path


def write_weights(path, *layers):
    """What Keras writes, without Keras: a layer for each list of records."""
    with h5py.File(path, "w") as file:
        for i, records in enumerate(layers):
            file.create_group(f"layers/conv2d_{i}/vars")["0"] = np.ones((3, 3, 3, 4), "f4")
            group = file[f"layers/conv2d_{i}"].create_group("tuning").create_group("vars")
            hdf5.write_columns(group, encode(records))
    return path


def broken(tmp_path):
    """A database of a later schema."""
    path = write(tmp_path / "later.h5", *RECORDS)
    with h5py.File(path, "r+") as file:
        text = (
            file["tuning/text"][()]
            .tobytes()
            .replace(b"keras_tunedconv tuning 1", b"keras_tunedconv tuning 9")
        )
        file["tuning/text"][...] = np.frombuffer(text, np.uint8)
    return path


# ---- diff -----------------------------------------------------------------------------------------------


@pytest.fixture
def pair(tmp_path):
    """Two files with a common entry, one of other times, one of other algorithms, and one each of its own."""
    common, retimed, changed, *own = make_records(5)
    a = write(tmp_path / "a.h5", common, retimed, changed, own[0])
    others = replace(retimed, time_seconds=1.0), replace(changed, algorithm="other")
    b = write_weights(tmp_path / "b.weights.h5", [common, *others], [common, own[1]])
    return a, b, changed, own


def test_diff_as_json(pair):
    a, b, changed, own = pair
    result = run("diff", a, b, "--json")
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    assert [e["key"] for e in found["only_in_a"]] == [own[0].key]
    assert [e["key"] for e in found["only_in_b"]] == [own[1].key]
    (different,) = found["different"]
    assert different["key"] == changed.key
    assert (different["a_algorithm"], different["b_algorithm"]) == (changed.algorithm, "other")
    assert different["environment"] == HERE


def test_diff_as_text(pair):
    result = run("diff", *pair[:2])
    assert result.exit_code == 1
    assert "1 only in A, 1 only in B, 1 with other algorithms" in result.stdout
    assert f"env 1: {HERE}" in result.stdout
    assert "other" in result.stdout


def test_diff_without_differences(tmp_path):
    a, b = (
        write(tmp_path / "a.h5", *RECORDS),
        write_weights(tmp_path / "b.weights.h5", RECORDS[:2], RECORDS[2:]),
    )
    result = run("diff", a, b)
    assert (result.exit_code, result.stdout) == (0, "0 only in A, 0 only in B, 0 with other algorithms\n")
    result = run("diff", a, b, "--json")
    assert (result.exit_code, json.loads(result.stdout)) == (
        0,
        {"only_in_a": [], "only_in_b": [], "different": []},
    )


# ---- merge, export --------------------------------------------------------------------------------------


def test_merge_takes_the_better(tmp_path):
    first, second, third = RECORDS
    a = write(tmp_path / "a.h5", first, replace(second, provenance=Provenance.COPIED))
    b = write_weights(tmp_path / "b.weights.h5", [replace(second, algorithm="measured")], [third])
    result = run("merge", tmp_path / "out.h5", a, b)
    assert result.exit_code == 0, result.output
    assert "3 entries new or changed, 3 in" in result.output
    expected = [first, replace(second, algorithm="measured"), third]
    assert content(database.read(tmp_path / "out.h5").records) == content(expected)


def test_merging_a_file_into_itself_changes_nothing(tmp_path):
    path = write(tmp_path / "a.h5", *RECORDS)
    before = path.stat(), path.read_bytes()
    result = run("merge", path, path, path)
    assert result.exit_code == 0
    assert "0 entries new or changed, 3 in" in result.output
    assert (path.stat().st_mtime_ns, path.read_bytes()) == (before[0].st_mtime_ns, before[1])


def test_export_of_a_model(tmp_path):
    foreign = make_record(environment=ELSEWHERE)
    model = write_weights(tmp_path / "m.weights.h5", [RECORDS[0], foreign], RECORDS[1:])
    assert run("export", model, tmp_path / "all.h5").exit_code == 0
    assert content(database.read(tmp_path / "all.h5").records) == content([*RECORDS, foreign])
    assert run("export", model, tmp_path / "some.h5", "--environment", "engine=cudnn").exit_code == 0
    assert content(database.read(tmp_path / "some.h5").records) == content([foreign])


# ---- prune ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keep", [False, True])
def test_prune(tmp_path, keep):
    foreign = make_record(environment=ELSEWHERE)
    path = write(tmp_path / "a.h5", *RECORDS, foreign)
    result = run("prune", path, "--environment", "H200", *(["--keep"] if keep else []))
    assert result.exit_code == 0, result.output
    expected = [foreign] if keep else RECORDS
    assert content(database.read(path).records) == content(expected)
    said = "3 entries dropped, 1 left" if keep else "1 entry dropped, 3 left"
    assert said in result.output


def test_prune_of_everything_leaves_a_database(tmp_path):
    path = write(tmp_path / "a.h5", *RECORDS)
    assert run("prune", path, "--environment", "engine=test").exit_code == 0
    assert database.read(path).records == []
    assert run("merge", path, write(tmp_path / "b.h5", *RECORDS)).exit_code == 0
    assert content(database.read(path).records) == content(RECORDS)


@pytest.mark.parametrize("text", ["A100", ""])
def test_an_unknown_environment_is_an_error_that_lists_those_there_are(tmp_path, text):
    path = write(tmp_path / "a.h5", *RECORDS)
    before = path.read_bytes()
    for command in (["prune", path], ["export", path, tmp_path / "out.h5"]):
        result = run(*command, "--environment", text)
        assert result.exit_code == 2
        assert HERE in result.output
    assert path.read_bytes() == before
    assert not (tmp_path / "out.h5").exists()


# ---- bad files ------------------------------------------------------------------------------------------


def commands(bad, good, out):
    return [
        ["diff", bad, good],
        ["diff", good, bad],
        ["merge", out, good, bad],
        ["export", bad, out],
        ["prune", bad, "--environment", "engine"],
    ]


def test_a_later_schema_is_refused_with_the_version_it_needs(tmp_path):
    bad, good = broken(tmp_path), write(tmp_path / "good.h5", *RECORDS)
    for command in [*commands(bad, good, tmp_path / "out.h5"), ["merge", bad, good]]:
        result = run(*command)
        assert result.exit_code == 2, command
        assert "schema version 9" in result.output
        assert "reads version 1" in result.output
    assert not (tmp_path / "out.h5").exists()


@pytest.mark.parametrize("kind", ["missing", "garbage"])
def test_no_such_file(tmp_path, kind):
    bad, good = tmp_path / "bad.h5", write(tmp_path / "good.h5", *RECORDS)
    if kind == "garbage":
        bad.write_bytes(b"no file of ours" * 100)
    for command in commands(bad, good, tmp_path / "out.h5"):
        result = run(*command)
        assert result.exit_code == 2, command
        assert "bad.h5" in result.output
    assert not (tmp_path / "out.h5").exists()


def test_a_model_is_no_place_to_merge_into(tmp_path):
    model = write_weights(tmp_path / "m.weights.h5", RECORDS)
    before = model.read_bytes()
    result = run("merge", model, write(tmp_path / "a.h5", *RECORDS))
    assert result.exit_code == 2
    assert "cannot be read as a tuning database" in result.output
    assert model.read_bytes() == before


# ---- candidates ------------------------------------------------------------------------------------------


def test_candidates_go_where_their_entries_go(tmp_path):
    a, b, out = (tmp_path / name for name in ("a.h5", "b.h5", "out.h5"))
    database.merge_into(a, make_records(3), searches=make_searches(3))
    database.merge_into(b, make_records(2, ELSEWHERE), searches=make_searches(2, ELSEWHERE))
    weights = write_weights(tmp_path / "m.weights.h5", make_records(1))
    assert run("merge", out, a, b, weights).exit_code == 0
    assert len(database.read_searches(out).searches) == 5
    written = out.stat().st_ino
    assert run("merge", out, out).exit_code == 0
    assert out.stat().st_ino == written
    assert run("export", out, tmp_path / "c.h5", "--environment", ELSEWHERE).exit_code == 0
    assert len(database.read_searches(tmp_path / "c.h5").searches) == 2
    assert run("prune", out, "--environment", ELSEWHERE).exit_code == 0
    assert {search.environment for search in database.read_searches(out).searches} == {HERE}
