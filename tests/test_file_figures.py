"""What many entries of other places cost: a figure to record, so the times are printed and not asserted."""

import statistics
import time

import numpy as np
import pytest
from tuning_data import ELSEWHERE, build, make_keys, make_record, tuned_layers

from keras_tunedconv import TunedConv2D
from keras_tunedconv.core import engines, registry
from keras_tunedconv.core.descriptor import ConvDescriptor
from keras_tunedconv.core.library import ffi, lib

FOREIGN = 10_000


def foreign_records(count):
    shapes = [(1 + i // 3, 16, 16, 3) for i in range(0, count, 3)]
    keys = [key for shape in shapes for key in make_keys(shape, (3, 3, 3, 4))]
    return [make_record(key, environment=ELSEWHERE) for key in keys[:count]]


def median_load_seconds(path):
    samples = []
    for _ in range(7):
        model = build("sequential", TunedConv2D)
        registry.clear()
        begin = time.perf_counter()
        model.load_weights(path)
        samples.append(time.perf_counter() - begin)
    return statistics.median(samples), model


@pytest.mark.slow
def test_ten_thousand_foreign_entries(tmp_path):
    model = build("sequential", TunedConv2D)
    model.save_weights(tmp_path / "plain.weights.h5")
    plain, _ = median_load_seconds(tmp_path / "plain.weights.h5")
    layers, records = tuned_layers(model), foreign_records(FOREIGN)
    for i, layer in enumerate(layers):
        layer.tuning.take(records[i :: len(layers)])
    model.save_weights(tmp_path / "foreign.weights.h5")
    loaded, twin = median_load_seconds(tmp_path / "foreign.weights.h5")
    assert sum(len(layer.tuning.foreign()) for layer in tuned_layers(twin)) == FOREIGN
    assert len(registry.collect()[0]) == FOREIGN
    print(f"\nloading {FOREIGN} foreign entries adds {(loaded - plain) * 1e3:.0f} ms", end="")

    descriptor = ConvDescriptor.from_key(make_keys((2, 8, 8, 4), (3, 3, 4, 4))[0])
    x, w, y = (np.ones(shape, "float32") for shape in ((2, 8, 8, 4), (3, 3, 4, 4), (2, 6, 6, 4)))
    engines.convolve(descriptor, x, w, y)
    assert registry.stats()["hits"] == 0
    seconds = ffi.new("double *")
    assert lib.tc_time_lookup(descriptor.to_c(), lib.TC_CPU, 0, 1_000_000, seconds) == lib.TC_OK
    print(f"; a look-up beside them takes {seconds[0] * 1e6:.3f} us")
