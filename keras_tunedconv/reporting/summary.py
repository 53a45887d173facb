"""The lines of a report added up by layer, for bars."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from keras_tunedconv.core.descriptor import DIRECTIONS
from keras_tunedconv.tuning.describe import format_problem

if TYPE_CHECKING:
    from keras_tunedconv.reporting.table import Row


@dataclass
class LayerTimes:
    """Seconds of one layer in a training step, and what measuring it took.

    Args:
        label: The layer's name, or its convolution where the report names no layers.
        seconds: Time of one run in each direction that was measured.
        default_seconds: The same of the library's own choice.
        tuning_seconds: Spent measuring, all batch sizes together.
    """

    label: str
    seconds: dict[str, float] = field(default_factory=dict)
    default_seconds: dict[str, float] = field(default_factory=dict)
    tuning_seconds: float = 0.0

    @property
    def total(self) -> float:
        """Seconds of all directions."""
        return sum(self.seconds.values())

    @property
    def default_total(self) -> float:
        """Seconds of all directions with the library's own choices."""
        return sum(self.default_seconds.values())


def by_layer(rows: Sequence[Row], stepped: Sequence[Row]) -> list[LayerTimes]:
    """The layers of a report in its order.

    Args:
        rows: All lines.
        stepped: Those that make up one training step: an entry for each layer and direction.
    """
    layers: dict[str, LayerTimes] = {}
    counted: set[str] = set()
    for row in rows:
        layer = layers.setdefault(_label(row), LayerTimes(_label(row)))
        if row.record.key not in counted:  # layers that share a convolution share its measuring
            counted.add(row.record.key)
            layer.tuning_seconds += row.record.tuning_seconds
    for row in stepped:
        record = row.record
        if record.time_seconds > 0:
            layer, direction = layers[_label(row)], record.direction
            layer.seconds[direction] = layer.seconds.get(direction, 0.0) + record.time_seconds
            default = record.default_seconds or record.time_seconds
            layer.default_seconds[direction] = layer.default_seconds.get(direction, 0.0) + default
    return list(layers.values())


def largest(
    layers: Sequence[LayerTimes], count: int, worth: Callable[[LayerTimes], float]
) -> tuple[list[LayerTimes], float]:
    """The `count` layers that are worth most, in their order, and what the others are worth together."""
    chosen = {id(layer) for layer in sorted(layers, key=worth, reverse=True)[:count]}
    others = sum(worth(layer) for layer in layers if id(layer) not in chosen)
    return [layer for layer in layers if id(layer) in chosen], others


def by_direction(layers: Sequence[LayerTimes]) -> list[tuple[str, float, float]]:
    """Direction, seconds, and seconds with the library's own choices, of all layers together."""
    return [
        (
            direction,
            sum(layer.seconds.get(direction, 0.0) for layer in layers),
            sum(layer.default_seconds.get(direction, 0.0) for layer in layers),
        )
        for direction in DIRECTIONS
    ]


def _label(row: Row) -> str:
    return row.layer or format_problem(row.record.key)
