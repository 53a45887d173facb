"""Train and save, load, load: the second and third process measure nothing and choose the same algorithms."""

import json
import subprocess
import sys

import pytest

SCRIPT = """
import json, sys
import keras, numpy as np
import keras_tunedconv
from keras_tunedconv import TunedConv2D, TuningCallback

source, target, database = sys.argv[1:]
keras.utils.set_random_seed(1)

def build():
    return keras.Sequential([
        keras.Input((12, 12, 8)),
        TunedConv2D(16, 3, padding="same", activation="relu"),
        TunedConv2D(16, 3, strides=2, groups=2),
        keras.layers.GlobalAveragePooling2D(),
        keras.layers.Dense(3),
    ])

if source.endswith(".keras"):
    model = keras.models.load_model(source)
else:
    model = build()
    model.compile("sgd", "mse")
    if source != "-":
        model.load_weights(source)
x = np.random.default_rng(0).standard_normal((16, 12, 12, 8)).astype("float32")
y = np.zeros((16, 3), "float32")
callbacks = [TuningCallback(None if database == "-" else database)]
model.fit(x, y, batch_size=8, epochs=2, verbose=0, shuffle=False, callbacks=callbacks)
outputs = model.predict(x, batch_size=8, verbose=0)
model.evaluate(x, y, batch_size=8, verbose=0)
if target.endswith(".keras"):
    model.save(target)
elif target.endswith(".json"):
    model.save_weights(target, max_shard_size=1)
elif target != "-":
    model.save_weights(target)
chosen = {
    key: record.algorithm
    for layer in model.layers[:2]
    for part in layer.tuning.values()
    for key, record in part.items()
}
print(json.dumps({"chosen": chosen, "stats": keras_tunedconv.stats(), "outputs": outputs.tolist()}))
"""


def run(source, target, database="-"):
    arguments = [sys.executable, "-c", SCRIPT, str(source), str(target), str(database)]
    finished = subprocess.run(arguments, capture_output=True, text=True, timeout=280)
    assert finished.returncode == 0, finished.stderr
    return json.loads(finished.stdout.splitlines()[-1])


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "name",
    ["m.keras", *(pytest.param(name, marks=pytest.mark.slow) for name in ("m.weights.h5", "m.weights.json"))],
)
def test_saved_models_measure_nothing(name, tmp_path):
    first = run("-", tmp_path / name)
    assert first["stats"]["measured"] >= 5, first["stats"]
    assert {key.partition("|")[0] for key in first["chosen"]} == {
        "forward",
        "backward_data",
        "backward_filter",
    }
    again = tmp_path / "again" / name
    again.parent.mkdir()
    second = run(tmp_path / name, again)
    third = run(again, "-")
    for later in (second, third):
        assert later["stats"]["measured"] == 0, later["stats"]
        assert later["stats"]["hits"] >= 5
        assert later["chosen"] == first["chosen"]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_database_measures_nothing_for_another_model(tmp_path):
    database = tmp_path / "tuning.h5"
    first = run("-", "-", database)
    second = run("-", "-", database)
    assert first["stats"]["measured"] >= 5
    assert second["stats"]["measured"] == 0, second["stats"]
    assert second["chosen"] == first["chosen"]
    assert second["outputs"] == first["outputs"]
