"""Waiting for what a backend still does when its functions have returned."""

from __future__ import annotations

import sys


def let_work_end() -> None:
    """Let convolutions end whose results nobody waits for.

    JAX runs what a thread gives it in the order of the calls, so what is given last ends last. The registry
    may only be cleared, and an engine closed, when no convolution is running.
    """
    if "jax" in sys.modules and "keras" in sys.modules:
        import jax
        import keras

        if keras.backend.backend() == "jax":
            jax.block_until_ready(jax.numpy.zeros(()) + 1)
