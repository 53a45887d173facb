"""How long the first step took, beside the measuring in it."""

from __future__ import annotations

import keras
import numpy as np
import pytest

from keras_tunedconv import TunedConv2D, TuningCallback, report, stats

if keras.backend.backend() not in ("tensorflow", "jax", "torch"):
    pytest.skip("no bridge to this backend", allow_module_level=True)

X = np.random.default_rng(0).random((4, 12, 12, 3), "float32")
Y = np.ones((4, 5), "float32")


def make_model():
    layers = [TunedConv2D(4, 3), keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(5)]
    model = keras.Sequential([keras.Input(X.shape[1:]), *layers])
    model.compile("sgd", "mse")
    return model


def test_it_is_that_of_the_models_first_training():
    model = make_model()
    assert stats()["first_step_seconds"] == 0
    model.fit(X, Y, epochs=2, batch_size=2, verbose=0, callbacks=[TuningCallback()])
    step = report(model, show=False).first_step
    assert step.seconds > step.tuning_seconds > 0
    assert step.tuning_seconds == pytest.approx(stats()["tuning_seconds"])
    assert step.other_seconds == pytest.approx(step.seconds - step.tuning_seconds)
    assert stats()["first_step_seconds"] == step.seconds
    assert "of it measuring" in str(report(model, show=False))
    model.fit(X, Y, verbose=0, callbacks=[TuningCallback()])
    assert report(model, show=False).first_step == step


def test_another_model_has_its_own():
    model, other = make_model(), make_model()
    for each in (model, other):
        each.fit(X, Y, verbose=0, callbacks=[TuningCallback()])
    first, second = (report(each, show=False).first_step for each in (model, other))
    assert first.tuning_seconds > 0
    assert second.tuning_seconds == 0  # the first one measured for both
    assert stats()["first_step_seconds"] == second.seconds
    assert report(make_model(), show=False).first_step is None
    assert report(show=False).first_step == second


def test_a_run_that_failed_in_its_first_step_leaves_no_clock_running(monkeypatch):
    class Stop(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            raise KeyboardInterrupt

    model, callback = make_model(), TuningCallback()
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, Y, verbose=0, callbacks=[callback, Stop()])
    assert report(model, show=False).first_step is None
    now = [1000.0]
    monkeypatch.setattr("keras_tunedconv.callback.time.monotonic", lambda: now[0])
    model = make_model()
    model.fit(X, Y, verbose=0, callbacks=[callback])
    assert report(model, show=False).first_step.seconds == 0.0


def test_the_end_of_another_step_may_be_told_meanwhile():
    """As Keras does in threads of its own, where every callback is safe for that."""
    model, callback = make_model(), TuningCallback()

    class Awaited:
        def __float__(self):
            callback.on_train_batch_end(0, {"loss": 1.0})
            return 1.0

    callback.set_model(model)
    callback.on_train_begin()
    callback.on_train_batch_begin(0)
    callback.on_train_batch_end(1, {"loss": Awaited()})
    noted = report(model, show=False).first_step
    assert noted is not None
    callback.on_train_batch_begin(2)
    callback.on_train_batch_end(2)
    assert report(model, show=False).first_step == noted
