"""`keras-tunedconv bench peers` on a GPU; torch's benchmark does not run what heuristics had found."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.gpu

_EVEN, _UNEVEN, _GROUPED = "8,64,28,64,3,1,1", "8,64,28,64,3,2,1", "8,64,28,64,3,1,8"


@pytest.fixture(scope="module", autouse=True)
def torch() -> Any:
    module = pytest.importorskip("torch")
    if not module.cuda.is_available():
        pytest.skip("needs a CUDA device")
    return module


@pytest.mark.timeout(600)
@pytest.mark.parametrize("filter_layout", ["ohwi", "hwio"])
def test_all_contenders_are_timed_and_agree(tmp_path: Path, filter_layout: str) -> None:
    file = tmp_path / "out.json"
    command = [sys.executable, "-m", "keras_tunedconv.cli.main", "bench", "peers", "--device", "cuda"]
    options = ["--dtype", "float16", "--filter-layout", filter_layout, "--json", str(file)]
    done = subprocess.run(
        [*command, _EVEN, _UNEVEN, _GROUPED, *options], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(file.read_text())
    expected = {"tuned", "default", "torch", "torch_benchmark"}
    if importlib.util.find_spec("jax") is None or "xla" in report["absent"]:
        assert "xla" in report["absent"]
    else:
        expected.add("xla")
    assert len(report["rows"]) == 9
    for row in report["rows"]:
        assert set(row["seconds"]) == expected, row["left_out"]
        if "xla" in expected or not row["problem"].startswith(_UNEVEN):
            assert row["difference"] < 1e-2
    assert report["environment"].startswith("engine=cudnn;")
    assert report["host_seconds"] > 0


def test_torchs_benchmark_searches_where_heuristics_have_been_asked_before(torch: Any) -> None:
    from keras_tunedconv.bench.peers.memory import CudaMemory
    from keras_tunedconv.bench.peers.operands import draw
    from keras_tunedconv.bench.peers.torch_peer import TorchPeer
    from keras_tunedconv.bench.problem import parse

    operands = draw(parse(f"{_EVEN},dtype=float16"), "ohwi", CudaMemory())
    peer = TorchPeer()

    def kernels(contender: Any) -> int:
        with torch.profiler.profile(activities=list(torch.profiler.supported_activities())) as found:
            contender.run()
        return sum(event.device_type == torch.autograd.DeviceType.CUDA for event in found.events())

    heuristics, benchmark = peer.heuristics(operands, "forward"), peer.benchmark(operands, "forward")
    kernels(heuristics)
    once, search, again = kernels(heuristics), kernels(benchmark), kernels(benchmark)
    assert 0 < once <= again + 4
    assert search > 2 * max(once, again)
