"""Train on handwritten digits, save, load in a fresh process: nothing is measured a second time.

    python examples/digits.py            # writes digits.keras into the current folder

The data are the 1,797 images of 8x8 pixels that ship with scikit-learn.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import keras_tunedconv
from keras_tunedconv import TunedConv2D, TuningCallback

EPOCHS = 12
BATCH = 64


def load_data() -> tuple[Any, Any, Any, Any]:
    """Training and test images in [0, 1], with their labels; the same split in every process."""
    images, labels = load_digits(return_X_y=True)
    images = (images / 16).astype("float32").reshape(-1, 8, 8, 1)
    x, x_test, y, y_test = train_test_split(images, labels, test_size=0.2, random_state=0, stratify=labels)
    return x, x_test, y, y_test


def make_model() -> keras.Model:
    """Three convolutions and a classifier."""
    return keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            TunedConv2D(32, 3, padding="same", activation="relu"),
            TunedConv2D(64, 3, padding="same", activation="relu"),
            keras.layers.MaxPooling2D(),
            TunedConv2D(128, 3, padding="same", activation="relu"),
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )


def train(file: Path) -> float:
    """Train, save the model with its tuning, and return the accuracy on the test images."""
    keras.utils.set_random_seed(0)
    x, x_test, y, y_test = load_data()
    model = make_model()
    model.compile(keras.optimizers.Adam(2e-3), "sparse_categorical_crossentropy", metrics=["accuracy"])
    model.fit(
        x,
        y,
        batch_size=BATCH,
        epochs=EPOCHS,
        validation_data=(x_test, y_test),
        verbose=2,
        callbacks=[TuningCallback()],
    )
    _, accuracy = model.evaluate(x_test, y_test, batch_size=BATCH, verbose=0)
    predictions = model.predict(x_test, batch_size=BATCH, verbose=0)
    model.save(file)
    np.save(file.with_suffix(".npy"), predictions)
    keras_tunedconv.report(model)
    print(f"first process: accuracy {accuracy:.3f}, {keras_tunedconv.stats()}")
    return float(accuracy)


def reload(file: Path) -> None:
    """In a fresh process: load, predict, train on, and show that nothing was measured."""
    x, x_test, y, _ = load_data()
    model = keras.models.load_model(file)
    predictions = model.predict(x_test, batch_size=BATCH, verbose=0)
    np.testing.assert_allclose(predictions, np.load(file.with_suffix(".npy")), rtol=1e-5, atol=1e-6)
    model.fit(x, y, batch_size=BATCH, epochs=1, verbose=2)
    keras_tunedconv.report(model)
    print(f"second process: same predictions, {keras_tunedconv.stats()}")
    print(json.dumps(keras_tunedconv.stats()))


def main() -> None:
    """Train here, then reload in a process of its own."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--file", type=Path, default=Path("digits.keras"), help="where the model is saved")
    parser.add_argument(
        "--reload", action="store_true", help="only load the file; what the second process does"
    )
    arguments = parser.parse_args()
    if arguments.reload:
        reload(arguments.file)
        return
    accuracy = train(arguments.file)
    command = [sys.executable, __file__, "--reload", "--file", str(arguments.file)]
    output = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    print(output, end="")
    stats = json.loads(output.splitlines()[-1])
    if stats["measured"] != 0:
        raise SystemExit(f"The second process measured {stats['measured']} keys; expected none.")
    if accuracy < 0.93:
        raise SystemExit(f"The model reached an accuracy of {accuracy:.3f}; expected at least 0.93.")
    print(f"{arguments.file} holds the model and its tuning; the second process measured nothing.")


if __name__ == "__main__":
    main()
