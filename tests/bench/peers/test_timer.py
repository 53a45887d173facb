"""Timing on the CPU: this package alone in this process, torch and XLA in processes of their own."""

import importlib.util
import json
import subprocess
import sys

import pytest

from keras_tunedconv.bench.peers import timer
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
    seen.append([torch.backends.cudnn.benchmark, threading.current_thread().name.startswith("benchmark")])
    return conv2d(*args)
torch.nn.functional.conv2d = watched
operands, peer = draw(parse("2,8,9,8,3,1,1"), "ohwi", HostMemory()), TorchPeer()
for contender in (peer.heuristics(operands, "forward"), peer.benchmark(operands, "forward")):
    contender.run()
    contender.sample(2)
print(json.dumps({"seen": seen, "after": torch.backends.cudnn.benchmark}))
"""


def test_torch_benchmarks_in_a_thread_of_its_own_whose_plans_are_its_own():
    if importlib.util.find_spec("torch") is None:
        pytest.skip("needs torch")
    found = run_script(_BENCHMARK)
    assert found["seen"] == [[False, False]] * 3 + [[True, True]] * 3
    assert found["after"] is False
