"""`doctor` tells what is broken and does not break with it."""

import json
import os
import shutil
import subprocess
import sys

import pytest
from click.testing import CliRunner
from tuning_data import make_records

from keras_tunedconv.cli import facts, probe
from keras_tunedconv.cli.doctor import doctor
from keras_tunedconv.tuning import database

ENGINE_READY = {"library": "oneDNN 3.2.0 (openmp threads), /lib/libdnnl.so.3", "environment": "engine=onednn"}


@pytest.fixture
def probes(monkeypatch):
    """Probes that answer what the test put into this dict, by name or by (name, argument)."""
    answers = {
        "core": {"file": "/x/_core.abi3.so", "abi_version": 1, "xla_handler": True},
        ("engine", "onednn"): dict(ENGINE_READY),
        ("engine", "cudnn"): {"problem": "libcudnn.so.9: cannot open shared object file"},
        "tensorflow_op": {"built": True, "path": "/cache/op.so", "xla": True},
        "backend": {"tuned": True, "algorithms": ["jit:avx2#0"], "libraries": []},
    }

    def run(name, argument="", *, environment=None):
        return answers.get((name, argument), answers.get(name))

    monkeypatch.setattr(probe, "run", run)
    monkeypatch.setattr(facts, "gpus", list)
    monkeypatch.setattr(facts, "version", lambda distribution: "1.0")
    return answers


def commands(found):
    return [one["command"] for one in found["missing"]]


def test_nothing_is_missing_where_everything_is_there(probes):
    assert facts.gather(check=True)["missing"] == []
    result = CliRunner().invoke(doctor)
    assert result.exit_code == 0
    assert "Nothing is missing" in result.output


def test_cudnn_is_missed_only_where_there_is_a_gpu(probes, monkeypatch):
    assert commands(facts.gather()) == []
    monkeypatch.setattr(facts, "gpus", lambda: ["NVIDIA H200"])
    assert commands(facts.gather()) == ["pip install nvidia-cudnn-cu12"]


@pytest.mark.parametrize(
    ("name", "answer", "command"),
    [
        ("core", {"problem": "no module"}, "pip install --force-reinstall --no-deps keras-tunedconv"),
        (("engine", "onednn"), {"problem": "ended by SIGSEGV"}, "pip install onednn-cpu-gomp"),
        ("tensorflow_op", {"built": False, "problem": "not built yet"}, "keras-tunedconv build"),
        ("tensorflow_op", {"problem": "TensorFlow crashed"}, "keras-tunedconv build"),
        ("backend", {"problem": "died"}, "KERAS_BACKEND=jax python -m keras_tunedconv.cli.probe backend"),
    ],
)
def test_what_is_missing_comes_with_its_command(probes, name, answer, command):
    probes[name] = answer
    found = facts.gather(check=True)
    assert command in commands(found)
    result = CliRunner().invoke(doctor, ["--check"])
    assert result.exit_code == 0, result.output
    assert command in result.output
    assert answer["problem"].split()[-1] in result.output


def test_without_a_compiler_the_compiler_comes_first(probes, monkeypatch):
    probes["tensorflow_op"] = {"built": False, "problem": "not built yet"}
    monkeypatch.setattr(facts, "compilers", list)
    assert commands(facts.gather()) == ["apt-get install g++"]


def test_json_is_plain_data(probes):
    found = json.loads(CliRunner().invoke(doctor, ["--json"]).output)
    assert found["engines"][0]["library"] == ENGINE_READY["library"]
    assert found["core"]["xla_handler"] is True


def test_broken_metadata_and_configuration_files_are_survived(monkeypatch, tmp_path):
    (tmp_path / "keras.json").write_text("{ not json")
    monkeypatch.delenv("KERAS_BACKEND")
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    assert facts.active_backend() == "tensorflow (Keras's default)"
    (tmp_path / "keras.json").write_text('{"backend": "jax"}')
    assert facts.active_backend().startswith("jax")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    assert facts.compilers() == []
    assert facts.version("no-such-distribution") is None


def test_a_probe_that_fails_or_does_not_exist_is_reported():
    assert "KeyError" in probe.run("no_such_probe")["problem"]


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
def test_a_library_that_crashes_is_reported(tmp_path):
    source, library = tmp_path / "bad.c", tmp_path / "libdnnl.so.3"
    source.write_text(
        "#include <stdlib.h>\n__attribute__((constructor)) static void die(void) { abort(); }\n"
    )
    subprocess.run(["gcc", "-shared", "-fPIC", source, "-o", library], check=True)
    environment = {**os.environ, "KERAS_TUNEDCONV_ONEDNN": str(library)}
    command = [sys.executable, "-m", "keras_tunedconv.cli.main", "doctor", "--json"]
    process = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    found = json.loads(process.stdout)
    onednn = next(one for one in found["engines"] if one["name"] == "onednn")
    assert "SIGABRT" in onednn["problem"]


def test_the_real_thing_opens_the_wheels_library():
    found = facts.engine("onednn")
    assert found["library"].startswith("oneDNN 3."), found
    assert found["environment"].startswith("engine=onednn;")
    assert found["why"]


def test_it_lists_the_databases_for_all_models(probes, tmp_path, monkeypatch):
    monkeypatch.setenv("KERAS_TUNEDCONV_DATABASES", os.pathsep.join((str(tmp_path), "/none.h5")))
    assert "KERAS_TUNEDCONV_SEARCH_PATH switches them off" in CliRunner().invoke(doctor).output
    monkeypatch.setenv("KERAS_TUNEDCONV_SEARCH_PATH", "1")
    monkeypatch.setattr("keras_tunedconv.tuning.search_path.user_folder", lambda: tmp_path / "data")
    database.merge_into(tmp_path / "fleet.h5", make_records(3))
    output = CliRunner().invoke(doctor).output
    assert f"{tmp_path / 'data'}" in output
    assert f"named: {tmp_path / 'fleet.h5'}: 3 entries of 1 environment\n" in output
    assert "named: /none.h5: There is no tuning database /none.h5" in output
