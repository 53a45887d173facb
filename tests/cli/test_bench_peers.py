"""`keras-tunedconv bench peers` on the CPU, with the peers that are installed."""

import importlib.util
import json
import subprocess
import sys

import pytest
from click.testing import CliRunner

from keras_tunedconv.bench.peers.timer import PeerTimer
from keras_tunedconv.cli.bench import bench

PEERS = {name for name, module in (("torch", "torch"), ("xla", "jax")) if importlib.util.find_spec(module)}


def run(tmp_path, *arguments):
    """Of a process of its own, since torch and JAX come into it; with what it prints."""
    file = tmp_path / "out.json"
    command = [sys.executable, "-m", "keras_tunedconv.cli.main", "bench", "peers", "--device", "cpu"]
    done = subprocess.run([*command, *arguments, "--json", file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(file.read_text()), done.stdout


def test_all_contenders_compute_the_same_and_are_timed(tmp_path):
    even, uneven = "2,8,9,8,3,1,4,dilation=2", "2,8,10,8,3,2,1"
    report, output = run(tmp_path, even, uneven)
    assert len(report["rows"]) == 6
    for row in report["rows"]:
        assert set(row["seconds"]) == {"tuned", "default", *PEERS}, row["left_out"]
        assert row["algorithm"]
        assert row["default_algorithm"]
        if PEERS:
            assert row["over_tuned"]["best_peer"] > 0
        if "xla" in PEERS or ("torch" in PEERS and row["problem"] == even):
            assert row["difference"] < 1e-5
    for name in PEERS:
        assert f"geometric mean of {'XLA' if name == 'xla' else name} / tuned" in output
        assert report["geometric_means"][name] > 0
    assert "torch_benchmark" in report["absent"]
    assert "torch_benchmark left out" in output
    assert report["environment"].startswith("engine=onednn;")
    assert report["machine"]["versions"]["numpy"] in output
    assert "keras-tunedconv bench peers --device cpu" in output
    assert f"| `{uneven}` | backward_filter |" in " ".join(output.split())


@pytest.mark.skipif("xla" not in PEERS, reason="needs JAX")
def test_xla_is_given_the_filter_in_the_same_order(tmp_path):
    problem = "2,8,9x7,6,3x1,2,2,layout=channels_first"
    report, _ = run(tmp_path, problem, "--peer", "xla", "--filter-layout", "ohwi", "--batch", "3")
    assert report["filter_layout"] == "ohwi"
    for row in report["rows"]:
        assert row["problem"].startswith("3,8,9x7")
        assert set(row["seconds"]) == {"tuned", "default", "xla"}
        assert row["difference"] < 1e-5


def test_no_time_leaves_every_row_unmeasured(tmp_path):
    report, output = run(tmp_path, "baselines_gpu", "uneven_gpu", "--seconds-limit", "0")
    assert [row["measured"] for row in report["rows"]] == [False] * 51
    assert output.count("not measured") == 51 + 1
    assert report["geometric_means"] == {}


def invoke(*arguments):
    return CliRunner().invoke(bench, ["peers", *arguments])


def test_bad_arguments_are_usage_errors():
    for arguments, said in (
        (["resnet51"], "PROBLEMS"),
        (["1,2,3"], "PROBLEMS"),
        (["--seconds-limit", "nan"], "finite number of seconds"),
        (["--peer", "mxnet"], "--peer"),
        (["--filter-layout", "nhwc"], "--filter-layout"),
    ):
        result = invoke("--device", "cpu", *arguments)
        assert result.exit_code == 2, result.output
        assert said in result.output


def test_a_gpu_that_is_not_there_is_one_clear_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)  # as if it were not installed
    result = invoke("2,8,9,8,3,1,1")
    assert result.exit_code == 1
    assert "[torch]" in result.output
    assert "Traceback" not in result.output


def test_a_run_that_breaks_off_keeps_what_it_has(tmp_path, monkeypatch):
    def begin(self, problem, begun=PeerTimer.begin):
        if problem.batch == 3:
            raise RuntimeError("CUDA error: out of memory")
        begun(self, problem)

    monkeypatch.setattr(PeerTimer, "begin", begin)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    file = tmp_path / "out.json"
    problems = ("2,8,9,8,3,1,1", "3,8,9,8,3,1,1")
    result = invoke("--device", "cpu", *problems, "--direction", "forward", "--json", str(file))
    assert result.exit_code == 1
    assert "broke off after 1 rows: CUDA error: out of memory" in result.output
    assert "torch left out: torch is not installed" in result.output
    rows = json.loads(file.read_text())["rows"]
    assert [row["problem"] for row in rows] == [problems[0]]
    assert rows[0]["seconds"]["tuned"] > 0
