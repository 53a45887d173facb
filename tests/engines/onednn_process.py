"""Processes that open oneDNN anew, for what a process does once."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

TESTS = Path(__file__).parents[1]
# A convolution that uses every thread, checked against the reference; `check()` runs it.
PREAMBLE = """
import os, sys
from pathlib import Path
import numpy as np
from keras_tunedconv.core import engines
from keras_tunedconv.core.descriptor import forward_descriptor
from keras_tunedconv.core.library import lib
import reference

descriptor = forward_descriptor((4, 24, 24, 16), (3, 3, 16, 32), padding="same")
x, w, y = reference.random_operands(descriptor)
expected = reference.expect(descriptor, x, w, y)

def check():
    result = np.full_like(y, np.nan)
    engines.run_algorithm(descriptor, x, w, result, engines.candidates(descriptor)[0])
    expected.check(result)

def libraries(name):
    lines = Path("/proc/self/maps").read_text().splitlines()
    return {line.split()[-1] for line in lines if name in line.rsplit("/", 1)[-1]}
"""


def run_python(script: str, **environment: str) -> str:
    """What a script prints in a process of its own, which must end well."""
    result = subprocess.run(
        [sys.executable, "-c", PREAMBLE + textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, "PYTHONPATH": str(TESTS), **environment},
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout
