"""What every test starts from: one backend, an empty registry, default settings, the same random numbers."""

from __future__ import annotations

import importlib.util
import os
import random
import sys

import hypothesis
import pytest
from waiting import let_work_end

BACKENDS = ("tensorflow", "jax", "torch")

# Keras reads it once, at import. Unset, it would be the user's ~/.keras/keras.json.
os.environ.setdefault(
    "KERAS_BACKEND", next((name for name in BACKENDS if importlib.util.find_spec(name)), "numpy")
)
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
for _name in list(os.environ):
    # A developer's own settings would change what tests see; files and folders of the machine may stay.
    if _name.startswith("KERAS_TUNEDCONV_") and not _name.endswith(
        ("_DIR", "_ONEDNN", "_CUDNN", "_CACHE", "_PREBUILT")
    ):
        del os.environ[_name]
# Nor do the databases of whoever runs the tests; those of this package's subprocesses are no other.
os.environ["KERAS_TUNEDCONV_SEARCH_PATH"] = "0"

# A run tries the examples of the run before, however slow the machine. `--hypothesis-profile=exploring`
# tries others.
_patient = {"deadline": None, "suppress_health_check": [hypothesis.HealthCheck.too_slow]}
hypothesis.settings.register_profile("fixed", derandomize=True, **_patient)
hypothesis.settings.register_profile("exploring", **_patient)
hypothesis.settings.load_profile("fixed")


@pytest.fixture(autouse=True)
def _isolated_registry():
    """Each test starts alone: no peers, plans, records, counts or warnings told; it leaves no setting."""
    from keras_tunedconv.bridges import fallback
    from keras_tunedconv.core import peers, registry
    from keras_tunedconv.core.config import config

    peers.leave()
    registry.clear()
    fallback.forget()
    with config.override():
        yield
        let_work_end()
    registry.clear()


@pytest.fixture(autouse=True)
def _same_random_numbers():
    """Weights and data that a test draws are those that it drew before."""
    random.seed(0)  # Keras's initializers take their seeds from here
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(0)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)


@pytest.fixture(autouse=True)
def _default_dtype_policy():
    """A test that changes Keras's global dtypes does not change the next one's."""
    yield
    if "keras" in sys.modules:
        import keras

        keras.config.set_floatx("float32")
        keras.config.set_dtype_policy("float32")
