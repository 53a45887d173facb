"""What has to be known of Keras beyond its public interface, each with what is done where it is missing."""

from __future__ import annotations

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


def in_symbolic_scope() -> bool:
    """Whether Keras only infers shapes, with made-up dims in place of unknown ones."""
    try:
        from keras.src.backend.common.symbolic_scope import in_symbolic_scope
    except ImportError:
        return False
    return bool(in_symbolic_scope())


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
