"""Processes of one training choose the same algorithms, and one that fails leaves the others alone."""

from __future__ import annotations

import fcntl
import os
import struct
import time

import pytest
from two_processes import free_ports, results, start

from keras_tunedconv.core.record import Provenance
from keras_tunedconv.tuning import database

BACKEND = os.environ["KERAS_BACKEND"]
F_OFD_GETLK = 36  # of Linux; Python has no name for it

# What ranks do to become one training, and how `fit` is told that they are.
JOIN = {
    "tensorflow": """
os.environ["TF_CONFIG"] = json.dumps({
    "cluster": {"worker": [f"127.0.0.1:{p}" for p in ports]}, "task": {"type": "worker", "index": rank}})
import tensorflow as tf
strategy = tf.distribute.MultiWorkerMirroredStrategy()
""",
    "jax": """
import jax
jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(f"127.0.0.1:{ports[0]}", 2, rank)
""",
    "torch": """
import torch, torch.distributed as dist
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{ports[0]}", rank=rank, world_size=2)
""",
}
MODEL = """
def make():
    keras.utils.set_random_seed(0)
    layer = keras_tunedconv.TunedConv2D
    return keras.Sequential([
        keras.Input((12, 12, 3)),
        layer(8, 3, padding="same", activation="relu"),
        layer(8, 3, strides=2, groups=2),
        keras.layers.GlobalAveragePooling2D(),
        keras.layers.Dense(2),
    ])
rng = np.random.default_rng(1)
x, y = (rng.standard_normal(shape).astype("float32") for shape in ((16, 12, 12, 3), (16, 2)))
callback = keras_tunedconv.TuningCallback(*path)
"""
TRAIN = {
    "tensorflow": """
with strategy.scope():
    model = make()
    optimizer = keras.optimizers.SGD(0.1)
    optimizer.build(model.trainable_variables)

@tf.function
def step(x, y):
    def of_one_replica(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x) - y) ** 2)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    strategy.run(of_one_replica, args=(x, y))

callback.set_model(model)
callback.on_train_begin()
for epoch in range(2):
    for number in range(2):
        step(*(tf.constant(a[rank::2][4 * number : 4 * number + 4]) for a in (x, y)))
        callback.on_train_batch_end(number)
    callback.on_epoch_end(epoch)
callback.on_train_end()
""",
    "jax": """
distribution = keras.distribution.DataParallel(auto_shard_dataset=False)
keras.distribution.set_distribution(distribution)
model = make()
model.compile("sgd", "mse")
half = slice(8 * rank, 8 * rank + 8)
model.fit(x[half], y[half], batch_size=4, epochs=2, shuffle=False, verbose=0, callbacks=[callback])
""",
    "torch": """
model = make()
parallel = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
callback.set_model(model)
callback.on_train_begin()
for epoch in range(2):
    for step in range(2):
        part = [torch.from_numpy(a[rank::2][4 * step : 4 * step + 4]) for a in (x, y)]
        optimizer.zero_grad()
        ((parallel(part[0]) - part[1]) ** 2).mean().backward()
        optimizer.step()
        callback.on_train_batch_end(step)
    callback.on_epoch_end(epoch)
callback.on_train_end()
""",
}
END = """
records = keras_tunedconv.core.registry.collect(0)[0]
print(json.dumps({
    "stats": keras_tunedconv.stats(),
    "algorithms": {r.key: r.algorithm for r in records},
    "layers": [sorted(r.key for r in layer.tuning.records()) for layer in model.layers[:2]],
    "weights": [float(abs(keras.ops.convert_to_numpy(w.value)).sum()) for w in model.weights[:2]],
}), flush=True)
"""
BEGIN = """
import json, os, sys
rank, ports, path = int(sys.argv[1]), sys.argv[2].split(","), sys.argv[3:]
"""
IMPORTS = """
import keras, numpy as np
import keras_tunedconv, keras_tunedconv.core.registry
"""
PROGRAM = BEGIN + JOIN[BACKEND] + IMPORTS + MODEL + TRAIN[BACKEND] + END


def train(*paths):
    """Two ranks, each with the arguments of its callback."""
    ports = ",".join(map(str, free_ports(2)))
    return results([start(PROGRAM, rank, ports, *path) for rank, path in enumerate(paths)])


def test_ranks_choose_the_same_algorithms(tmp_path):
    path = tmp_path / "tuning.h5"
    first, second = train([path], [path])
    assert first["algorithms"] == second["algorithms"]
    assert len(first["algorithms"]) == 5, "the input of the model needs no gradient"
    assert all("|x=float32:nhwc:4x" in key for key in first["algorithms"])
    stats = first["stats"], second["stats"]
    assert sum(one["measured"] for one in stats) == 5, "each key is measured by one rank"
    assert sum(one["hits"] for one in stats) == 5, "and taken by the other, before it runs anything else"
    assert sum(one["defaults"] for one in stats) == 0
    stored = database.read(path).records
    assert {record.key: record.algorithm for record in stored} == first["algorithms"]
    assert all(record.provenance is Provenance.MEASURED for record in stored)
    assert first["layers"] == second["layers"]
    assert sorted(sum(first["layers"], [])) == sorted(first["algorithms"])
    assert first["weights"] == pytest.approx(second["weights"], rel=1e-6)


def test_a_rank_without_the_file_does_not_hang_the_others(tmp_path):
    path = tmp_path / "tuning.h5"
    with_file, without = train([path], [])
    assert with_file["stats"]["measured"] == without["stats"]["measured"] == 5
    assert {record.key for record in database.read(path).records} == set(with_file["algorithms"])


TWO_DEVICES = """
import tensorflow as tf
(cpu,) = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
assert strategy.num_replicas_in_sync == 2
"""


@pytest.mark.skipif(BACKEND != "tensorflow", reason="needs KERAS_BACKEND=tensorflow")
def test_two_devices_of_one_process_share_what_is_measured(tmp_path):
    path = tmp_path / "tuning.h5"
    program = BEGIN + TWO_DEVICES + IMPORTS + MODEL + TRAIN[BACKEND] + END
    (only,) = results([start(program, 0, "", path)])
    assert (only["stats"]["measured"], only["stats"]["defaults"]) == (5, 0)
    assert {record.key: record.algorithm for record in database.read(path).records} == only["algorithms"]


# Processes that agree need not be in one training.
ALONE = (
    BEGIN
    + IMPORTS
    + """
callback = keras_tunedconv.TuningCallback(*path)
callback.on_train_begin()
layer = keras_tunedconv.TunedConv2D(32, 3)
x = np.ones((8, 64, 64, 32), "float32")
layer.build(x.shape)
print("ready", flush=True)
sys.stdin.readline()
keras.ops.convert_to_numpy(layer(x))
print(json.dumps(keras_tunedconv.stats()), flush=True)
"""
)


def is_claimed(path):
    """Whether some process is deciding what runs for a key."""
    query = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 1 << 32, 0, 0)
    with path.with_name(path.name + ".peers").open("r+b") as file:
        answer = fcntl.fcntl(file, F_OFD_GETLK, query)
    return struct.unpack("hhqqi4x", answer)[0] != fcntl.F_UNLCK


def go(process):
    process.stdin.write("go\n")
    process.stdin.flush()


def test_a_rank_killed_while_it_measures_is_not_waited_for(tmp_path):
    path = tmp_path / "tuning.h5"
    # The other would wait four times the budget, which is longer than this test.
    budgets = {"KERAS_TUNEDCONV_KEY_BUDGET": "200", "KERAS_TUNEDCONV_PROCESS_BUDGET": "2000"}
    slow = start(ALONE, 0, "", path, **budgets, KERAS_TUNEDCONV_MINIMUM_RUNS="1000")
    other = start(ALONE, 1, "", path, **budgets)
    try:
        assert [p.stdout.readline() for p in (slow, other)] == ["ready\n"] * 2
        go(slow)
        while not is_claimed(path):
            assert slow.poll() is None
            time.sleep(0.01)
        go(other)
    finally:
        slow.kill()
        slow.communicate()
    (stats,) = results([other])
    assert (stats["measured"], stats["hits"], stats["defaults"]) == (1, 0, 0)
