"""The bench commands: arguments, and one short run of each on the real engine."""

import json

import pytest
from click.testing import CliRunner

from keras_tunedconv.bench import problem
from keras_tunedconv.cli.bench import bench

SMALL = "2,8,9,8,3,1,1"


def run(*arguments):
    return CliRunner().invoke(bench, [str(a) for a in arguments])


def test_list_prints_sets_and_their_problems():
    output = run("list").output
    for name in problem.set_names():
        assert name in output
    lines = run("list", "resnet50").output.split()
    assert [problem.parse(line) for line in lines] == problem.load_set("resnet50")


def test_an_unknown_set_or_problem_is_a_usage_error():
    for name in ("resnet51", "1,2,3"):
        result = run("conv", name)
        assert result.exit_code == 2
        assert "PROBLEMS" in result.output
    assert run("list", "resnet51").exit_code == 2


def test_conv_on_the_engine_alone(tmp_path):
    file = tmp_path / "out.json"
    result = run("conv", SMALL, "--mode", "engine", "--seconds", "0", "--json", file)
    assert result.exit_code == 0, result.output
    report = json.loads(file.read_text())
    assert [r["direction"] for r in report["results"]] == ["forward", "backward_data", "backward_filter"]
    for r in report["results"]:
        assert r["milliseconds"]["engine"] > 0
        assert r["algorithm"]
    assert report["machine"]["cpus"] >= 1


def test_conv_under_the_active_backend_compares_with_stock(tmp_path):
    file = tmp_path / "out.json"
    result = run("conv", SMALL, "2,8,9,8,3,1,4", "--seconds", "0", "--json", file)
    assert result.exit_code == 0, result.output
    report = json.loads(file.read_text())
    assert len(report["results"]) == 6
    for r in report["results"]:
        assert {"stock", "tuned", "engine"} <= set(r["milliseconds"])
        assert r["difference"] < 1e-5
        assert r["stock_over_tuned"] == pytest.approx(r["milliseconds"]["stock"] / r["milliseconds"]["tuned"])
    assert report["geometric_means"]["tuned_over_engine"] > 0
    assert "geometric mean of stock / tuned" in result.output


def test_a_mode_of_another_backend_is_refused():
    import keras

    mode = "graph" if keras.backend.backend() == "torch" else "eager"
    result = run("conv", SMALL, "--mode", mode, "--direction", "backward_data", "--seconds", "0")
    assert result.exit_code == 1
    assert "mode" in result.output


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_small_whole_model(tmp_path):
    file = tmp_path / "out.json"
    # U-Net has no dropout, whose seeds differ between a model and its twin.
    arguments = ("--batch", 2, "--size", 32, "--steps", 2, "--rounds", 1, "--json", file)
    result = run("model", "unet", *arguments)
    assert result.exit_code == 0, result.output
    report = json.loads(file.read_text())
    assert report["tuned"]["measured"] > 0
    assert report["stock"]["measured"] == 0
    losses = [r["loss"] for r in report["runs"]]
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)
    assert report["stock"]["peak_step_bytes"] > 0


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_overhead(tmp_path):
    file = tmp_path / "out.json"
    arguments = ("--model", "unet", "--batch", 1, "--rounds", 1, "--json", file)
    result = run("overhead", *arguments)
    assert result.exit_code == 0, result.output
    report = json.loads(file.read_text())
    assert report["import_seconds"] > 0
    assert report["tuning"]["keys_measured"] > 0
    assert report["tuning"]["keys_measured_with_file"] == 0
    assert report["tuning"]["file_bytes_added"] > 0
    assert report["lookup_seconds"] > 0


@pytest.mark.parametrize("seconds", ["-1", "nan", "inf", "soon"])
@pytest.mark.parametrize("command", [["conv", SMALL], ["record", "out.h5", SMALL], ["figures"]])
def test_seconds_that_are_none_are_refused(command, seconds):
    result = run(*command, "--seconds", seconds)
    assert result.exit_code == 2
    assert "budget must be a finite number of seconds of at least 0" in result.output
