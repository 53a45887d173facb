"""Overrides of the algorithm: for a block, nested, for a direction, from the environment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest

import keras_tunedconv
from keras_tunedconv.core import engines, registry
from keras_tunedconv.core.config import config
from keras_tunedconv.core.descriptor import DIRECTIONS, forward_descriptor
from keras_tunedconv.core.errors import InvalidArgumentError, NotFoundError, TunedConvError
from keras_tunedconv.core.library import ffi, lib
from keras_tunedconv.core.override import override, parse

FORWARD = forward_descriptor((2, 8, 8, 4), (3, 3, 4, 4), padding="same")


@pytest.fixture(autouse=True)
def onednn() -> Iterator[None]:
    try:
        engines.ensure_open("cpu")
    except TunedConvError as error:
        pytest.skip(str(error))
    yield
    lib.tc_set_override(-1, ffi.NULL)


def run(direction: str = "forward") -> np.ndarray:
    rng = np.random.default_rng(0)
    x, w, y = (rng.random(size, "float32") for size in ((2, 8, 8, 4), (3, 3, 4, 4), (2, 8, 8, 4)))
    engines.convolve(FORWARD.with_direction(direction), x, w, y)
    return {"forward": y, "backward_data": x, "backward_filter": w}[direction]


def test_a_block_runs_the_algorithm_and_measures_nothing():
    names = engines.candidates(FORWARD)
    assert len(names) > 1
    expected = None
    for name in names:
        with override(name, "forward"):
            y = run()
        expected = y if expected is None else expected
        np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)
    stats = registry.stats()
    assert (stats["measured"], stats["hits"], stats["defaults"], stats["tuning_seconds"]) == (0, 0, 0, 0.0)
    run()
    assert registry.stats()["measured"] == 1


def test_blocks_nest_and_an_exception_ends_them():
    good = engines.candidates(FORWARD)[0]
    with config.override(tune=False), override("none such"):
        with override(good, "forward"):
            run()
        with pytest.raises(NotFoundError):
            run()
        with pytest.raises(ZeroDivisionError), override(good):
            raise ZeroDivisionError
        with pytest.raises(NotFoundError):
            run()
    run()


def test_an_error_lists_what_can_run():
    with override("none such", "backward_data"):
        run()  # another direction
        with pytest.raises(NotFoundError, match="none such") as caught:
            run("backward_data")
    for name in engines.candidates(FORWARD.with_direction("backward_data"))[:2]:
        assert name in str(caught.value)


def test_bad_arguments_change_nothing():
    with pytest.raises(ValueError, match="'forward', 'backward_data', 'backward_filter'"):
        override("any", "sideways").__enter__()
    for name in ("", "x" * 256):
        with pytest.raises(InvalidArgumentError, match="1 to 255 bytes"):
            override(name).__enter__()
    run()


def test_it_is_public():
    assert keras_tunedconv.override is override


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("jit:avx2#0", dict.fromkeys(DIRECTIONS, "jit:avx2#0")),
        ("cudnn:eng1:k2=3,k4=5", dict.fromkeys(DIRECTIONS, "cudnn:eng1:k2=3,k4=5")),
        ("forward=a", {"forward": "a"}),
        (
            " forward = cudnn:eng1:k2=3 ; backward_filter=b;",
            {"forward": "cudnn:eng1:k2=3", "backward_filter": "b"},
        ),
    ],
)
def test_parse(text, expected):
    assert parse(text) == expected


@pytest.mark.parametrize("text", ["", " ; ", "forward=", "sideways=a", "forward=a;sideways=b"])
def test_parse_refuses(text):
    with pytest.raises(ValueError, match=r"KERAS_TUNEDCONV_OVERRIDE must be .*backward_data"):
        parse(text)


SCRIPT = """
import json
import numpy as np
from keras_tunedconv.core import engines, registry
from keras_tunedconv.core.descriptor import forward_descriptor
from keras_tunedconv.core.errors import NotFoundError
forward = forward_descriptor((2, 8, 8, 4), (3, 3, 4, 4), padding="same")
x, w = np.ones((2, 8, 8, 4), "f4"), np.ones((3, 3, 4, 4), "f4")
said = {}
for direction in ("forward", "backward_filter"):
    try:
        engines.convolve(forward.with_direction(direction), x, w, x.copy())
        said[direction] = "ran"
    except NotFoundError as error:
        said[direction] = str(error)
print(json.dumps([said, registry.stats()]))
"""


def test_the_environment_is_read_before_anything_runs():
    environment = {**os.environ, "KERAS_TUNEDCONV_OVERRIDE": "forward=none such", "KERAS_TUNEDCONV_TUNE": "0"}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    said, stats = json.loads(done.stdout)
    assert "the override 'none such' cannot run" in said["forward"]
    assert said["backward_filter"] == "ran"
    assert (stats["measured"], stats["defaults"]) == (0, 1)
