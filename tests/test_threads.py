"""Threads that tune, gather, save and load at once: whole files, nothing lost."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from tuning_data import build, entries, fill, make_keys, make_record, tuned_layers

from keras_tunedconv import TunedConv2D, save_weights
from keras_tunedconv.core import engines, registry
from keras_tunedconv.core.config import config
from keras_tunedconv.core.descriptor import ConvDescriptor
from keras_tunedconv.core.errors import UnavailableError
from keras_tunedconv.tuning import database, flusher

BATCHES = range(1, 25)


def keys_of(layer, batch):
    x_shape = (batch, *layer.get_build_config()["input_shape"][1:])
    return make_keys(x_shape, tuple(layer._kernel.shape), strides=layer.strides, padding=layer.padding)


def in_threads(*functions):
    """Run functions at once; what one raises is raised."""
    barrier = threading.Barrier(len(functions))

    def run(function):
        barrier.wait()
        return function()

    with ThreadPoolExecutor(len(functions)) as pool:
        return [future.result() for future in [pool.submit(run, function) for function in functions]]


@pytest.mark.parametrize("name", ["m.weights.h5", "m.weights.json"])
def test_files_saved_while_entries_come_are_whole(name, tmp_path):
    model = build("functional", TunedConv2D)
    fill(model, batch=99)
    layers, expected = tuned_layers(model), model.get_weights()
    done = threading.Event()

    def measure(layer):
        for batch in BATCHES:
            for key in keys_of(layer, batch):
                registry.put(make_record(key))
            layer.tuning.collect()

    def measure_all():
        try:
            in_threads(*(lambda layer=layer: measure(layer) for layer in layers))
        finally:
            done.set()

    def save():
        files = []
        while not done.is_set() or not files:
            files.append(tmp_path / f"{len(files)}-{name}")
            save_weights(model, files[-1], max_shard_size=1 if name.endswith("json") else None)
        return files

    _, files = in_threads(measure_all, save)
    model.save_weights(tmp_path / "last.weights.h5")
    counts = []
    for file in [*files, tmp_path / "last.weights.h5"]:
        twin = build("functional", TunedConv2D)
        twin.load_weights(file)
        for one, other in zip(expected, twin.get_weights(), strict=True):
            np.testing.assert_array_equal(one, other)
        counts.append([len(found) for found in entries(twin)])
    assert counts == sorted(counts)
    assert counts[-1] == [3 * (len(BATCHES) + 1)] * 2


def test_one_file_saved_by_several_threads_is_whole(tmp_path):
    models = [build("functional", TunedConv2D) for _ in range(3)]
    for i, model in enumerate(models):
        for weight in model.weights:
            weight.assign(np.full(weight.shape, float(i)))
    path = tmp_path / "m.weights.json"

    def save(model):
        for _ in range(4):
            save_weights(model, path, max_shard_size=1200 / 1024**3)

    in_threads(*(lambda model=model: save(model) for model in models))
    twin = build("functional", TunedConv2D)
    twin.load_weights(path)
    values = {float(value) for weight in twin.get_weights() for value in np.unique(weight)}
    assert len(values) == 1
    assert values <= {0.0, 1.0, 2.0}


def test_measuring_flushing_and_loading_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(flusher, "_END_TIMEOUT_SECONDS", 200.0)
    try:
        engines.ensure_open("cpu")
    except UnavailableError as error:
        pytest.skip(str(error))
    path = tmp_path / "tuning.h5"
    shapes = [(batch, 6, 6, 2) for batch in range(1, 9)]
    descriptors = [
        ConvDescriptor.from_key(make_keys(shape, (3, 3, 2, 4), padding="same")[0]) for shape in shapes
    ]
    done = threading.Event()

    def convolve(descriptor, shape):
        x, w = np.ones(shape, "float32"), np.ones((3, 3, 2, 4), "float32")
        y = np.empty((*shape[:3], 4), "float32")
        for _ in range(20):
            engines.convolve(descriptor, x, w, y)
            assert y[0, 2, 2, 0] == 18.0
        return y

    def measure():
        tasks = zip(descriptors, shapes, strict=True)
        try:
            in_threads(*(lambda d=d, shape=shape: convolve(d, shape) for d, shape in tasks))
        finally:
            done.set()

    def flush():
        writer = flusher.Flusher(path)
        while not done.is_set():
            writer.flush()
        writer.flush()

    def load():
        while not done.is_set():
            if path.exists():
                assert database.read(path).malformed == 0

    with config.override(batch_policy="exact", key_budget=0.05):
        in_threads(measure, flush, flush, load)
    assert {record.key for record in database.read(path).records} == {d.key for d in descriptors}
