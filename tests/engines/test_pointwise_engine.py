"""The documentation's example engine: it builds as that says, serves what it can, and leaves the rest."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import keras_tunedconv
from keras_tunedconv.core import engines, library
from keras_tunedconv.core.errors import InvalidArgumentError, UnavailableError

SOURCE = Path(keras_tunedconv.__file__).parent / "docs" / "pointwise_engine.c"

pytestmark = pytest.mark.skipif(library.lib is None, reason="needs the compiled core")


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    """The engine, built with the headers that are installed."""
    if shutil.which("cc") is None:
        pytest.skip("building an engine needs a C compiler named cc")
    made = tmp_path_factory.mktemp("engine") / "pointwise.so"
    include = f"-I{library.native_folder() / 'include'}"
    warnings = ["-std=c11", "-Wall", "-Wextra", "-Werror"]
    command = ["cc", "-O2", "-shared", "-fPIC", *warnings, include, SOURCE, "-o", made]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return made


# An engine stays loaded, so each use has a process of its own.
SCRIPT = """
import json, sys
import numpy as np
from keras_tunedconv.core import engines, registry
from keras_tunedconv.core.config import config
from keras_tunedconv.core.descriptor import DIRECTIONS, forward_descriptor
from keras_tunedconv.tuning import environments
found = {"name": engines.load_engine(sys.argv[1])}
engines.ensure_open("cpu")
found["opened"] = engines.opened()
found["here"] = sorted(environments.current())
rng = np.random.default_rng(0)
x, w = rng.random((2, 5, 7, 6), "float32"), rng.random((1, 1, 6, 4), "float32")
pointwise = forward_descriptor(x.shape, w.shape)
found["candidates"] = engines.candidates(pointwise)
expected = x.reshape(-1, 6).astype("float64") @ w.reshape(6, 4)
y = np.empty((2, 5, 7, 4), "float32")
found["errors"] = []
for name in found["candidates"]:
    y[:] = np.nan
    engines.run_algorithm(pointwise, x, w, y, name)
    found["errors"].append(float(abs(y.reshape(-1, 4) - expected).max()))
y[:] = np.nan
engines.convolve(pointwise, x, w, y)
found["errors"].append(float(abs(y.reshape(-1, 4) - expected).max()))
(record,) = registry.collect()[0]
found["record"] = [record.algorithm, record.environment, record.candidates_tried]
# A stored choice of it is used, and what it cannot do goes to oneDNN.
registry.clear()
registry.put(record)
engines.convolve(pointwise, x, w, y)
found["hits"] = registry.stats()["hits"]
for other in (pointwise.with_direction("backward_filter"), forward_descriptor(x.shape, (3, 3, 6, 4))):
    n, outputs, *size = other.y_dims
    w, y = np.ones((*other.w_dims[2:], 6, 4), "float32"), np.ones((n, *size, outputs), "float32")
    engines.convolve(other, x.copy(), w, y)
found["others"] = sorted({r.environment.partition(";")[0] for r in registry.collect()[0]})
print(json.dumps(found))
"""


def test_it_serves_what_it_can_and_leaves_the_rest(engine):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, engine], capture_output=True, text=True, env=os.environ
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["name"] == "pointwise"
    assert found["opened"] == ["pointwise", "onednn"]
    assert found["here"][1] == "engine=pointwise;version=1"
    assert found["here"][0].startswith("engine=onednn;")
    assert found["candidates"] == ["pointwise:dot", "pointwise:axpy"]
    assert len(found["errors"]) == 3
    assert max(found["errors"]) < 1e-5
    algorithm, environment, tried = found["record"]
    assert algorithm in found["candidates"]
    assert (environment, tried) == ("engine=pointwise;version=1", 2)
    assert found["hits"] == 1
    assert found["others"] == ["engine=onednn", "engine=pointwise"]


KERAS_SCRIPT = """
import sys
import keras, numpy as np
from keras_tunedconv import TunedConv2D
from keras_tunedconv.core import engines
engines.load_engine(sys.argv[1])
layer = TunedConv2D(4, 1)
x = np.random.default_rng(0).random((2, 5, 7, 6), "float32")
y = keras.ops.convert_to_numpy(layer(keras.ops.convert_to_tensor(x)))
kernel = keras.ops.convert_to_numpy(layer.kernel).reshape(6, 4)
assert np.allclose(y, x @ kernel, atol=1e-5)
layer.tuning.collect()
print([(r.algorithm.partition(":")[0], r.environment) for r in layer.tuning.forward.values()])
"""


@pytest.mark.skipif(
    os.environ["KERAS_BACKEND"] not in ("jax", "torch", "tensorflow"), reason="needs a bridge"
)
def test_a_layer_runs_it(engine):
    command = [sys.executable, "-c", KERAS_SCRIPT, engine]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[('pointwise', 'engine=pointwise;version=1')]"


def test_what_is_no_engine_is_refused(tmp_path):
    before = engines.opened()
    (tmp_path / "text.so").write_text("no library")
    for path in (tmp_path / "text.so", tmp_path / "missing.so"):
        with pytest.raises(UnavailableError, match=path.name):
            engines.load_engine(path)
    if shutil.which("cc") is not None:
        source = tmp_path / "empty.c"
        source.write_text("int nothing;\n")
        subprocess.run(["cc", "-shared", "-fPIC", source, "-o", tmp_path / "empty.so"], check=True)
        with pytest.raises(InvalidArgumentError, match="exports no tunedconv_engine_entry"):
            engines.load_engine(tmp_path / "empty.so")
    assert engines.opened() == before
