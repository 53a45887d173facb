"""Records that look measured, models to hang them on, and ways to read them back."""

from __future__ import annotations

from dataclasses import replace

from keras_tunedconv.core import registry
from keras_tunedconv.core.descriptor import DIRECTIONS, forward_descriptor
from keras_tunedconv.core.errors import TuningWarning
from keras_tunedconv.core.record import Provenance, Record
from keras_tunedconv.core.trials import Search, Trial, TrialState

HERE = "engine=test;version=1.0;cpu=test cpu;isa=avx2;threads=2"
ELSEWHERE = "engine=cudnn;version=9.19.0;device=NVIDIA H200;capability=9.0;sms=132"
# When all of it was measured: what is made twice is equal, and files are the same in every run.
CREATED = 1_700_000_000


def make_record(key=None, **fields):
    """A sound record; by default of a small forward convolution."""
    defaults = {
        "key": key or make_keys((8, 16, 16, 3), (3, 3, 3, 4))[0],
        "environment": HERE,
        "algorithm": "jit:avx2#0",
        "runner_up": "gemm:jit#0",
        "workspace_bytes": 4096,
        "created": CREATED,
        "time_seconds": 1.25e-4,
        "default_seconds": 2.5e-4,
        "spread": 0.02,
        "tuning_seconds": 0.375,
        "candidates_tried": 7,
        "candidates_total": 9,
        "provenance": Provenance.MEASURED,
        "math_type": 0,
        "deterministic": True,
    }
    return Record(**{**defaults, **fields})


def make_keys(x_shape, kernel_shape, **arguments):
    """Keys of a convolution in the three directions."""
    forward = forward_descriptor(x_shape, kernel_shape, **arguments)
    return [forward.with_direction(direction).key for direction in DIRECTIONS]


def make_records(count, environment=HERE, **fields):
    """Records of `count` different convolutions."""
    return [
        make_record(
            make_keys((1 + i // 3, 16, 16, 3), (3, 3, 3, 4))[i % 3], environment=environment, **fields
        )
        for i in range(count)
    ]


def make_search(key=None, environment=HERE, created=CREATED):
    """What became of one candidate of each fate."""
    trials = [
        Trial("default", TrialState.FINALIST, 0, "", 64, 0.01, 0.03, 2e-4, 2.5e-4, True, (2e-4, 3e-4)),
        Trial("best:avx2#0", TrialState.WON, 1, "", 4096, 0.02, 0.05, 1.5e-4, 1.25e-4, False, (1e-4,) * 16),
        Trial("SLOW ONE", TrialState.SLOW, 2, "", 0, 0.01, 0.02, 9e-4),
        Trial("broken", TrialState.FAILED, 3, "4096 bytes of workspace are over the limit"),
        Trial("wrong", TrialState.WRONG, 4, "its output differs: naïve ✓", 1, 0.5, 0.6, 1e-5),
        Trial("too late", TrialState.NOT_TRIED, 5),
    ]
    return Search(key or make_keys((8, 16, 16, 3), (3, 3, 3, 4))[0], environment, created, tuple(trials))


def make_searches(count, environment=HERE):
    """Searches of the keys of `make_records`, one a second."""
    return [
        make_search(record.key, environment, created=1000 + i)
        for i, record in enumerate(make_records(count, environment))
    ]


def own_warnings(caught):
    """This package's own of the warnings that were caught; Python's of files left open come at any moment."""
    return [warning for warning in caught if issubclass(warning.category, TuningWarning)]


def content(records):
    """Records without what is not stored, in a fixed order, for comparisons."""
    plain = [replace(record, sequence=0) for record in records]
    return sorted(plain, key=lambda record: (record.environment, record.key))


def tuned_layers(model):
    """The tuned layers of a model, in its order."""
    return [layer for layer in model._flatten_layers() if hasattr(layer, "tuning")]


def fill(model, batch=8, environment=HERE, **fields):
    """Give every tuned layer entries as a training step would: through what it traced and the registry."""
    for i, layer in enumerate(tuned_layers(model)):
        x_shape = (batch, *layer.get_build_config()["input_shape"][1:])
        arguments = {
            "strides": layer.strides,
            "padding": layer.padding,
            "data_format": layer.data_format,
            "dilation_rate": layer.dilation_rate,
        }
        kernel_shape = tuple(layer._kernel.shape)
        layer.tuning.note(x_shape=x_shape, kernel_shape=kernel_shape, dtype="float32", **arguments)
        for key in make_keys(x_shape, kernel_shape, **arguments):
            record = make_record(key, environment=environment, algorithm=f"algorithm {i}", **fields)
            registry.put(record)
        layer.tuning.collect()


def entries(model):
    """All entries of all tuned layers."""
    return [content(layer.tuning.records()) for layer in tuned_layers(model)]


def build(kind, layer_class):
    """A small model of stock or tuned layers: `"functional"`, `"sequential"` or `"subclassed"`."""
    import keras

    def convolutions():
        return [layer_class(4, 3, padding="same", activation="relu"), layer_class(6, 3, strides=2)]

    if kind == "sequential":
        return keras.Sequential([keras.Input((16, 16, 3)), *convolutions(), keras.layers.Flatten()])
    if kind == "functional":
        inputs = keras.Input((16, 16, 3))
        first, second = convolutions()
        hidden = first(inputs)
        hidden = keras.layers.BatchNormalization()(hidden)
        return keras.Model(inputs, second(hidden))

    class Subclassed(keras.Model):
        def __init__(self):
            super().__init__()
            self.first, self.second = convolutions()
            self.more = [layer_class(2, 1)]

        def build(self, input_shape):
            for layer in (self.first, self.second, *self.more):
                layer.build(input_shape)
                input_shape = layer.compute_output_shape(input_shape)

        def call(self, inputs):
            return self.more[0](self.second(self.first(inputs)))

    model = Subclassed()
    model.build((None, 16, 16, 3))
    return model


KINDS = ("functional", "sequential", "subclassed")
