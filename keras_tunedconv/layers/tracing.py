"""Which calls of a layer must run Keras's own convolution, because of who is calling."""

from __future__ import annotations

import sys
from functools import lru_cache
from types import FrameType
from typing import Any

import keras

from keras_tunedconv.layers.keras_internals import in_symbolic_scope

# Modules that trace a model into a file which is run without this package. None of them says so in a way
# that a layer could ask, but while one traces it is on the stack.
_EXPORTERS = (
    "keras.src.export.",
    "keras.src.backend.tensorflow.export",
    "keras.src.backend.jax.export",
    "tensorflow.python.saved_model.",
    "tensorflow.lite.",
    "tf2onnx.",
    "jax._src.export.",
    "jax.experimental.jax2tf.",
    "jax2onnx.",
)


def needs_stock(inputs: Any) -> bool:
    """Whether a call has to be left to Keras's own convolution.

    That is so where only shapes are inferred, and where the model is exported (SavedModel, ONNX, LiteRT,
    `torch.export`, `jax.export`): the artifact must run where this package is not.

    Args:
        inputs: What the layer was called with.
    """
    return isinstance(inputs, keras.KerasTensor) or in_symbolic_scope() or _exporting(inputs)


def _exporting(inputs: Any) -> bool:
    backend = _backend()
    if backend == "torch":
        return _torch_exporting()
    if backend == "tensorflow":
        return not sys.modules["tensorflow"].executing_eagerly() and _exporter_on_stack()
    if backend == "jax":
        return isinstance(inputs, sys.modules["jax"].core.Tracer) and _exporter_on_stack()
    return False


@lru_cache(maxsize=1)
def _backend() -> str:
    return str(keras.backend.backend())


def _torch_exporting() -> bool:
    torch = sys.modules["torch"]
    exporting = getattr(torch.compiler, "is_exporting", None)  # torch 2.7
    return bool((exporting is not None and exporting()) or torch.jit.is_tracing())


def _exporter_on_stack() -> bool:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if str(frame.f_globals.get("__name__", "")).startswith(_EXPORTERS):
            return True
        frame = frame.f_back
    return False
