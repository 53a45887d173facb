"""What tuning chose and what it brought, as a table."""

from __future__ import annotations

import io
import sys
from dataclasses import dataclass
from html import escape
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from keras_tunedconv.core import registry
from keras_tunedconv.core.descriptor import DIRECTIONS, ConvDescriptor
from keras_tunedconv.core.record import Record
from keras_tunedconv.tuning import environments
from keras_tunedconv.tuning.describe import HEADINGS, NUMERIC, cells, format_seconds, stdout_console

_HEADINGS = ("layer", "direction", *HEADINGS)
_WIDTH = 160


@dataclass(frozen=True)
class Row:
    """One line of a report.

    Args:
        layer: Name of the layer; `""` in a report on the process.
        record: The entry.
        descriptor: What the entry's key stands for.
    """

    layer: str
    record: Record
    descriptor: ConvDescriptor

    def cells(self) -> tuple[str, ...]:
        """Texts under the table's headings."""
        return self.layer, self.record.direction, *cells(self.record)


class Report:
    """What tuning chose: prints as a table, shows as one in a notebook.

    Attributes:
        rows: The lines, each a `Row`.
        foreign: How many entries of other environments the layers carry besides.
        tuning_seconds: Seconds that were spent measuring these entries, in whichever process.
        saved_seconds: Seconds saved in each training step against the library's own choices: for every
            layer and direction the entry of the largest batch. A layer used several times counts once.
    """

    def __init__(self, rows: list[Row], foreign: int = 0) -> None:
        self.rows = rows
        self.foreign = foreign
        self.tuning_seconds = sum({r.record.key: r.record.tuning_seconds for r in rows}.values())
        self.saved_seconds = sum(map(_saved, _largest_batches(rows)))

    def __str__(self) -> str:
        text = io.StringIO()
        Console(file=text, width=_WIDTH, color_system=None).print(self._table())
        return text.getvalue().rstrip("\n")

    def __repr__(self) -> str:
        return f"<Report of {len(self.rows)} entries: {self._summary()}>"

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{name}</th>" for name in _HEADINGS)
        lines = (
            "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row.cells()) + "</tr>"
            for row in self.rows
        )
        return f"<table><tr>{head}</tr>{''.join(lines)}</table><p>{escape(self._summary())}</p>"

    def __rich__(self) -> Table:
        return self._table()

    def _table(self) -> Table:
        table = Table(caption=Text(self._summary()), caption_justify="left")
        for name in _HEADINGS:
            table.add_column(name, justify="right" if name in NUMERIC else "left", overflow="fold")
        for row in self.rows:
            table.add_row(*map(Text, row.cells()))
        return table

    def _summary(self) -> str:
        text = f"{format_seconds(self.tuning_seconds)} spent measuring, "
        text += f"{format_seconds(self.saved_seconds)} saved in each step"
        return f"{text}, {self.foreign} entries of other environments" if self.foreign else text


def report(model: Any = None, *, show: bool = True) -> Report:
    """Print what tuning chose for a model, or for all convolutions of this process.

    Args:
        model: A Keras model or layer; `None` for every entry of the process's registry.
        show: Whether to print the table. In a notebook it is never printed, since the returned object
            shows itself there.

    Returns:
        A `Report` with the lines in `rows` and the totals.

    Example:

    ```python
    keras_tunedconv.report(model)
    ```
    """
    here = environments.current()
    found = [("", record) for record in registry.collect()[0]] if model is None else _of_model(model)
    rows = [
        Row(layer, record, ConvDescriptor.from_key(record.key))
        for layer, record in found
        if record.environment in here
    ]
    rows.sort(key=lambda row: DIRECTIONS.index(row.descriptor.direction))
    order = {layer: i for i, (layer, _) in reversed(list(enumerate(found)))}
    rows.sort(key=lambda row: order[row.layer])
    made = Report(rows, foreign=len(found) - len(rows))
    if show and "ipykernel" not in sys.modules:
        stdout_console().print(made)
    return made


def _of_model(model: Any) -> list[tuple[str, Record]]:
    from keras_tunedconv.layers.keras_internals import flatten_layers
    from keras_tunedconv.tuning.cache import TuningCache

    found: list[tuple[str, Record]] = []
    for layer in flatten_layers(model):
        cache = getattr(layer, "tuning", None)
        if isinstance(cache, TuningCache):
            cache.collect()
            found.extend((layer.name, record) for record in cache.records())
    return found


def _largest_batches(rows: list[Row]) -> list[Row]:
    largest: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        d = row.descriptor
        # Without layers, whatever differs in the batch only is taken for one.
        place = row.layer or (
            d.x_dims[1:],
            d.w_dims,
            d.pad_before,
            d.pad_after,
            d.stride,
            d.dilation,
            d.x_dtype,
        )
        key = (place, d.direction)
        if key not in largest or row.descriptor.x_dims[0] > largest[key].descriptor.x_dims[0]:
            largest[key] = row
    return list(largest.values())


def _saved(row: Row) -> float:
    record = row.record
    compared = record.time_seconds > 0 and record.default_seconds > 0
    return record.default_seconds - record.time_seconds if compared else 0.0
