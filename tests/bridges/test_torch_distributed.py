"""Data-parallel training under torch: two processes on the CPU, gradients averaged by gloo."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from two_processes import free_ports

if os.environ["KERAS_BACKEND"] != "torch":
    pytest.skip("needs KERAS_BACKEND=torch", allow_module_level=True)

PROGRAM = """
import json, sys
import keras, numpy as np, torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
import keras_tunedconv

rank, ranks, port = (int(a) for a in sys.argv[1:])
keras.utils.set_random_seed(0)
layer = keras_tunedconv.TunedConv2D
model = keras.Sequential([
    keras.Input((12, 12, 3)),
    layer(8, 3, padding="same", activation="relu"),
    layer(8, 3, strides=2, groups=2),
    keras.layers.GlobalAveragePooling2D(),
    keras.layers.Dense(2),
])
rng = np.random.default_rng(1)
x, y = rng.standard_normal((8, 12, 12, 3)), rng.standard_normal((8, 2))
x, y = (torch.from_numpy(a.astype("float32"))[rank::ranks] for a in (x, y))
step = model
if ranks > 1:
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=ranks)
    step = DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(3):
    optimizer.zero_grad()
    ((step(x) - y) ** 2).mean().backward()
    optimizer.step()
records, _ = keras_tunedconv.core.registry.collect(0)
print(json.dumps({
    "keys": sorted(r.key for r in records),
    "weights": [w.tolist() for w in model.get_weights()],
}))
if ranks > 1:
    dist.destroy_process_group()
"""


def run(ranks):
    (port,) = free_ports(1)
    environment = os.environ | {"KERAS_TUNEDCONV_KEY_BUDGET": "0.02", "OMP_NUM_THREADS": "1"}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(rank), str(ranks), str(port)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]
    outputs = [process.communicate(timeout=280) for process in processes]
    for process, (_, errors) in zip(processes, outputs, strict=True):
        assert process.returncode == 0, errors[-3000:]
    return [json.loads(output.splitlines()[-1]) for output, _ in outputs]


@pytest.mark.slow
def test_two_ranks_give_what_one_process_gives():
    (alone,), ranks = run(1), run(2)
    assert len(alone["keys"]) == 5, "the input of the model needs no gradient"
    assert ranks[0]["keys"] == ranks[1]["keys"]
    assert all("|x=float32:nhwc:4x" in key for key in ranks[0]["keys"])
    for rank in ranks:
        for weight, expected in zip(rank["weights"], alone["weights"], strict=True):
            np.testing.assert_allclose(weight, expected, rtol=1e-4, atol=1e-6)
