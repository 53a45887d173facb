"""Importing the package is enough for Keras to load its layers, in either order, and costs no Keras."""

from __future__ import annotations

import subprocess
import sys

import pytest

LOOK = (
    "print(keras.saving.get_registered_object('keras_tunedconv>TunedConv2D') is not None,"
    " keras.__spec__.loader.__class__.__name__)"
)


def run(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.strip()


@pytest.mark.parametrize(
    "imports",
    [
        "import keras, keras_tunedconv",
        "import keras_tunedconv, keras",
        "import keras_tunedconv; from keras import layers; import keras",
    ],
)
def test_both_imports_register_the_layer(imports: str):
    assert run(f"{imports}; {LOOK}") == "True SourceFileLoader"


def test_the_package_alone_imports_no_keras():
    assert (
        run("import keras_tunedconv, sys; print('keras' in sys.modules, 'numpy' in sys.modules)")
        == "False False"
    )


def test_keras_missing_stays_keras_missing():
    code = (
        "import keras_tunedconv, sys\n"
        "sys.path = [p for p in sys.path if 'site-packages' not in p]\n"
        "try:\n    import keras\nexcept ModuleNotFoundError as error:\n    print(error.name)\n"
    )
    assert run(code) == "keras"
