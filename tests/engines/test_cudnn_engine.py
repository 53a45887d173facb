"""The cuDNN engine on the mock driver: opening, names, rewritings, devices, failures, capture."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from engines import cudnn_mock, cudnn_scenarios

from keras_tunedconv.core.library import lib

pytestmark = [
    pytest.mark.skipif(not cudnn_mock.can_build(), reason="needs a C and a C++ compiler"),
    pytest.mark.skipif(lib is None, reason="needs the compiled core"),
]

SCENARIOS = [name for name in vars(cudnn_scenarios) if name.startswith("check_")]


class Worker:
    """The process with the mock; started again after a crash."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> subprocess.Popen[str]:
        tests = str(Path(__file__).resolve().parents[1])
        environment = os.environ | {"LD_LIBRARY_PATH": str(self.folder), "PYTHONPATH": tests}
        command = [sys.executable, "-m", "engines.cudnn_worker", str(self.folder)]
        return subprocess.Popen(
            command, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def run(self, scenario: str) -> dict[str, Any]:
        if self.process is None or self.process.poll() is not None:
            self.process = self.start()
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(scenario + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            return {"passed": False, "traceback": f"the process ended with {self.process.wait()}"}
        result: dict[str, Any] = json.loads(answer)
        return result


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    folder = tmp_path_factory.mktemp("mock")
    cudnn_mock.build(folder)
    worker = Worker(folder)
    yield worker
    if worker.process is not None:
        worker.process.communicate(timeout=200)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scenario(worker: Worker, scenario: str) -> None:
    result = worker.run(scenario)
    if not result["passed"]:
        pytest.fail(result["traceback"], pytrace=False)
