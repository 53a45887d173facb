"""What a `.keras` file's configuration says of its tuned layers, read without Keras."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from keras_tunedconv.core.descriptor import SUPPORTED_DTYPES, ConvDescriptor, ConvPattern

_TUNED = "keras_tunedconv>TunedConv2D"
_MAX_CONFIG_BYTES = 64 * 2**20


@dataclass(frozen=True)
class LayerConfig:
    """Arguments of a tuned layer, as far as they tell its convolutions from others.

    Args:
        name: The layer's name.
        x_shape: Shape of its input, `None` where unknown or more than one.
        dtype: What it computes in; `""` where the file does not tell.
        arguments: `strides`, `padding`, `data_format` and `dilation_rate`.
    """

    name: str
    x_shape: tuple[int | None, ...]
    dtype: str
    arguments: dict[str, Any]

    def matches(self, descriptor: ConvDescriptor, kernel_shape: tuple[int, ...]) -> bool:
        """Whether a convolution can be the layer's.

        Args:
            descriptor: One direction of the convolution.
            kernel_shape: Shape of the layer's kernel, `(height, width, channels / groups, filters)`.
        """
        dtype = self.dtype or descriptor.x_dtype
        return ConvPattern.from_shapes(self.x_shape, kernel_shape, dtype, **self.arguments).matches(
            descriptor
        )


def read(text: bytes) -> tuple[list[LayerConfig], bool]:
    """The tuned layers that a `config.json` describes, nested ones too.

    Returns:
        The layers, and whether the configuration names layers at all: that of a subclassed model does not.

    Raises:
        ValueError: it is not a configuration that Keras writes.
    """
    if len(text) > _MAX_CONFIG_BYTES:
        raise ValueError(f"its config.json has over {_MAX_CONFIG_BYTES} bytes")
    try:
        whole = json.loads(text)
        found = [_layer(config) for config in _dicts(whole) if config.get("registered_name") == _TUNED]
        return found, isinstance(whole["config"].get("layers"), list)
    except (AttributeError, KeyError, TypeError, RecursionError, json.JSONDecodeError) as error:
        raise ValueError(f"its config.json cannot be read: {error!r}") from error


def _dicts(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
        for inner in value.values():
            yield from _dicts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _dicts(inner)


def _layer(serialized: dict[str, Any]) -> LayerConfig:
    config = serialized["config"]
    shape = (serialized.get("build_config") or {}).get("input_shape")
    channels_last = config["data_format"] == "channels_last"
    if not isinstance(shape, list) or len(shape) != 4:
        raise KeyError("build_config")
    if len(serialized.get("inbound_nodes") or ()) > 1:  # a shared layer may meet several sizes
        shape = [None, None, None, shape[-1]] if channels_last else [None, shape[1], None, None]
    names = ("strides", "dilation_rate")
    return LayerConfig(
        name=str(config["name"]),
        x_shape=tuple(dim if type(dim) is int else None for dim in shape),
        dtype=_compute_dtype(config.get("dtype")),
        arguments={
            **{name: tuple(int(each) for each in config[name]) for name in names},
            "padding": str(config["padding"]),
            "data_format": str(config["data_format"]),
        },
    )


def _compute_dtype(policy: Any) -> str:
    name = policy.get("config", {}).get("name") if isinstance(policy, dict) else policy
    dtype = str(name).removeprefix("mixed_")
    return dtype if dtype in SUPPORTED_DTYPES else ""
