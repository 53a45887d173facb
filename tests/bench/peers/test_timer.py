"""Timing on the CPU: this package alone in this process, torch and XLA in processes of their own."""

import importlib.util
import json
import subprocess
import sys

import pytest

from keras_tunedconv.bench.peers import text, timer
from keras_tunedconv.bench.peers.memory import HostMemory
from keras_tunedconv.bench.peers.result import Row
from keras_tunedconv.bench.problem import parse
from keras_tunedconv.core import engines
from keras_tunedconv.core.errors import EngineFailureError


@pytest.fixture
def alone(monkeypatch):
    """A timer where neither torch nor JAX is installed."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(timer, "ROUNDS", 3)
    monkeypatch.setattr(timer, "REPEATS", 1)
    return timer.PeerTimer(HostMemory(), "hwio")


def test_peers_that_are_not_installed_are_left_out_with_a_reason(alone):
    assert alone.absent == {
        "torch": "torch is not installed",
        "torch_benchmark": "what torch benchmarks is cuDNN's plans",
        "xla": "jax is not installed",
    }


def test_tuned_and_the_first_choice_are_timed_and_named(alone):
    problem, row = parse("2,8,9,8,3,1,1"), Row("2,8,9,8,3,1,1", "backward_filter")
    alone.begin(problem)
    alone.time(row)
    alone.end()
    assert set(row.seconds) == {"tuned", "default"}
    assert all(seconds > 0 for seconds in row.seconds.values())
    names = engines.candidates(problem.descriptor("backward_filter"))
    assert row.default_algorithm == names[0]
    assert row.algorithm in names
    assert 0 < row.candidates_tried <= row.candidates_total
    assert row.tuning_seconds > 0
    assert row.difference is None
    assert row.left_out == {}


def test_each_row_is_tuned_anew(alone):
    alone.begin(parse("2,8,9,8,3,1,1"))
    rows = [Row("2,8,9,8,3,1,1", "forward") for _ in range(2)]
    for row in rows:
        alone.time(row)
    assert all(row.candidates_tried > 0 for row in rows)


def test_a_contender_that_fails_is_left_out_and_the_others_go_on(alone, monkeypatch):
    def fail(*_):
        raise EngineFailureError("no such plan\nwith details")

    monkeypatch.setattr(timer, "_default", fail)
    row = Row("2,8,9,8,3,1,1", "forward")
    alone.begin(parse(row.problem))
    alone.time(row)
    assert set(row.seconds) == {"tuned"}
    assert row.left_out == {"default": "no such plan"}


def test_a_device_that_fails_while_contenders_take_turns_is_told_in_the_row(alone, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("unspecified launch failure")

    monkeypatch.setattr(timer, "take_turns", fail)
    row = Row("2,8,9,8,3,1,1", "forward")
    alone.begin(parse(row.problem))
    alone.time(row)
    assert row.seconds == {}
    assert row.left_out == {"turns": "unspecified launch failure"}
    assert row.is_measured
    assert any("timing in turn left out: unspecified" in line for line in text.summary([row], "cuda"))


def run_script(script):
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


_BENCHMARK = """
import json, threading
import torch
from keras_tunedconv.bench.peers.memory import HostMemory
from keras_tunedconv.bench.peers.operands import draw
from keras_tunedconv.bench.peers.torch_peer import TorchPeer
from keras_tunedconv.bench.problem import parse

conv2d, seen = torch.nn.functional.conv2d, []
def watched(*args):
    in_thread = threading.current_thread().name.startswith("benchmark")
    seen.append([torch.backends.cudnn.benchmark, in_thread, torch.backends.cudnn.allow_tf32])
    return conv2d(*args)
torch.nn.functional.conv2d = watched
peer = TorchPeer()
for dtype in ("float32", "bfloat16"):
    operands = draw(parse(f"2,8,9,8,3,1,1,dtype={dtype}"), "ohwi", HostMemory())
    for contender in (peer.heuristics(operands, "forward"), peer.benchmark(operands, "forward")):
        contender.run()
        contender.sample(2)
print(json.dumps({"seen": seen, "after": [torch.backends.cudnn.benchmark, torch.backends.cudnn.allow_tf32]}))
"""


def test_torch_benchmarks_in_a_thread_of_its_own_and_keeps_its_tensor_cores():
    if importlib.util.find_spec("torch") is None:
        pytest.skip("needs torch")
    found = run_script(_BENCHMARK)
    # Of each dtype once and twice more; without TF32 torch would leave tensor cores out for bfloat16 too.
    float32 = [[False, False, False]] * 3 + [[True, True, False]] * 3
    assert found["seen"] == float32 + [[False, False, True]] * 3 + [[True, True, True]] * 3
    assert found["after"] == [False, True]
