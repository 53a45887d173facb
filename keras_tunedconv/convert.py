"""Twins of a model, with tuned convolutions or with Keras's own."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

from keras_tunedconv.layers.tuned_conv2d import TunedConv2D


def to_tuned(model: Any) -> Any:
    """A copy of a model in which every `keras.layers.Conv2D` is a `TunedConv2D`.

    Args:
        model: A built Sequential or Functional model, with models inside it to any depth, shared layers,
            and wrappers such as `TimeDistributed`; or a single layer. Layers of classes derived from
            `Conv2D` stay as they are, and so do layers that a subclass makes in its own code.

    Returns:
        A new model with the same layers' names and copies of the weights, not compiled. The model given
        is not changed.

    Raises:
        ValueError: the model is not built, or is a subclassed one, whose layers only its own code knows:
            use `TunedConv2D` there.

    Example:

    ```python
    model = keras_tunedconv.to_tuned(keras.applications.ResNet50())
    ```
    """
    return _twin(model, keras.layers.Conv2D, TunedConv2D)


def to_stock(model: Any) -> Any:
    """A copy of a model in which every `TunedConv2D` is a `keras.layers.Conv2D`.

    Its file can be opened where this package is not installed. Weights alone need no conversion: a
    weights file of a tuned model loads into the stock one.

    Args:
        model: As for `to_tuned`.

    Returns:
        A new model with the same layers' names and copies of the weights, not compiled and without
        tuning entries.

    Raises:
        ValueError: as for `to_tuned`.

    Example:

    ```python
    keras_tunedconv.to_stock(model).save("plain.keras")
    ```
    """
    return _twin(model, TunedConv2D, keras.layers.Conv2D)


def _twin(model: Any, old: type[Any], new: type[Any]) -> Any:
    if not model.built:
        raise ValueError(
            f"Expected a model with weights. Received: {model}, which is not built: call it on data or "
            "`build` it first."
        )
    if isinstance(model, keras.Model) and not _is_graph(model):
        raise ValueError(
            f"Expected a Sequential or Functional model. Received: {model}, a subclassed model, whose layers "
            f"only its own code knows: make them {new.__qualname__} there."
        )

    def clone(layer: Any) -> Any:
        kind = new if type(layer) is old else type(layer)
        config = _replace(layer.get_config(), old, new)
        copy = kind.from_config(config if kind is type(layer) else _arguments(config, new))
        # A graph's nodes may also be operations, which have no weights to build.
        if isinstance(layer, keras.Layer) and not copy.built and layer.built and layer.get_build_config():
            copy.build_from_config(layer.get_build_config())
        return copy

    if _is_graph(model):
        twin = keras.models.clone_model(model, clone_function=clone, recursive=True)
    else:
        twin = clone(model)
    if not twin.built:
        twin.build_from_config(model.get_build_config())
    _copy_weights(model, twin)
    return twin


def _is_graph(model: Any) -> bool:
    return isinstance(model, keras.Sequential) or (
        isinstance(model, keras.Model) and hasattr(model, "operations")
    )


def _copy_weights(source: Any, target: Any) -> None:
    before, after = source.weights, target.weights
    if [tuple(w.shape) for w in before] != [tuple(w.shape) for w in after]:
        raise ValueError(
            f"The twin of {source} has other weights than the model, so a layer's `get_config` does not "
            "give back the layer. Convert that layer by hand."
        )
    for given, made in zip(before, after, strict=True):
        # A copy: JAX would share the array, and a training step of one model would use up the other's.
        made.assign(np.array(keras.ops.convert_to_numpy(given)))


def _replace(config: Any, old: type[Any], new: type[Any]) -> Any:
    """A layer's config with the layers serialized inside it (of wrappers, of models) replaced."""
    if isinstance(config, list | tuple):
        return type(config)(_replace(item, old, new) for item in config)
    if not isinstance(config, dict):
        return config
    replaced = {key: _replace(value, old, new) for key, value in config.items()}
    if _names(config) == _identifiers(old):
        replaced.update(_identifiers(new))
        replaced["config"] = _arguments(replaced["config"], new)
    return replaced


def _arguments(config: dict[str, Any], layer_class: type[Any]) -> dict[str, Any]:
    """Those of a layer's arguments that the other kind of layer has too."""
    dropped = () if layer_class is TunedConv2D else ("algorithm",)
    return {name: value for name, value in config.items() if name not in dropped}


def _names(config: dict[str, Any]) -> dict[str, Any]:
    return {key: config.get(key) for key in ("module", "class_name", "registered_name")}


def _identifiers(layer_class: type[Any]) -> dict[str, Any]:
    """How Keras names a class in a serialized config."""
    if layer_class is keras.layers.Conv2D:
        return {"module": "keras.layers", "class_name": "Conv2D", "registered_name": None}
    return {
        "module": layer_class.__module__,
        "class_name": layer_class.__name__,
        "registered_name": keras.saving.get_registered_name(layer_class),
    }
