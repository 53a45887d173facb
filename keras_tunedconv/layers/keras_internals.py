"""What has to be known of Keras beyond its public interface, each with what is done where it is missing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras


def saveable_base() -> Any:
    """The class whose instances Keras saves with the layer that holds them.

    It has no public name, but it is a base of every layer.
    """
    for base in keras.layers.Layer.__mro__:
        if base.__name__ == "KerasSaveable":
            return base
    return object  # entries then stay in the process; weights are saved as ever


def _never() -> bool:
    return False


def _find_in_symbolic_scope() -> Callable[[], bool]:
    try:
        from keras.src.backend.common.symbolic_scope import in_symbolic_scope
    except ImportError:
        return _never  # shapes made up for inference are then taken for traced ones, and match nothing
    found: Callable[[], bool] = in_symbolic_scope
    return found


in_symbolic_scope = _find_in_symbolic_scope()
"""Whether Keras only infers shapes, with made-up dims in place of unknown ones."""


def flatten_layers(model: Any) -> list[Any]:
    """A model or layer and all layers inside it, each once, wrappers' and subclassed models' too."""
    if hasattr(model, "_flatten_layers"):
        return list(model._flatten_layers())
    found: dict[int, Any] = {}
    waiting = [model]
    while waiting:
        layer = waiting.pop()
        if id(layer) not in found:
            found[id(layer)] = layer
            waiting.extend(reversed(getattr(layer, "layers", ())))
    return list(found.values())
