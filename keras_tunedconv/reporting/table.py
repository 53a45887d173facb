"""What tuning chose and what it brought, as a table."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from keras_tunedconv.core import first_step, registry
from keras_tunedconv.core.descriptor import DIRECTIONS, ConvDescriptor
from keras_tunedconv.core.first_step import FirstStep
from keras_tunedconv.core.record import Record
from keras_tunedconv.tuning import environments
from keras_tunedconv.tuning.describe import (
    HEADINGS,
    NUMERIC,
    PIPE_WIDTH,
    cells,
    format_seconds,
    stdout_console,
)

FORMATS = (".html", ".png")


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
    """What tuning chose: prints as a table, shows as one in a notebook, and is saved as a page or a picture.

    Attributes:
        rows: The lines, each a `Row`.
        foreign: How many entries of other environments the layers carry besides.
        tuning_seconds: Seconds that were spent measuring these entries, in whichever process.
        saved_seconds: Seconds saved in each training step against the library's own choices: for every
            layer and direction the entry of the largest batch. A layer used several times counts once.
        first_step: How long the first step of the model's training took, a `FirstStep`; `None` where no
            `TuningCallback` saw one in this process.
        title: One line above the page and the picture.
    """

    headings = ("layer", "direction", *HEADINGS)

    def __init__(
        self,
        rows: list[Row],
        foreign: int = 0,
        *,
        first_step: FirstStep | None = None,
        title: str = "Tuned convolutions",
    ) -> None:
        self.rows = rows
        self.foreign = foreign
        self.first_step = first_step
        self.title = title
        self.stepped = _largest_batches(rows)
        self.tuning_seconds = sum({r.record.key: r.record.tuning_seconds for r in rows}.values())
        self.saved_seconds = sum(map(_saved, self.stepped))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the report as a file: time by layer and direction, tuned and not, and where the seconds went.

        Args:
            path: `*.html`, one page that needs nothing else, or `*.png`, which takes matplotlib
                (`pip install 'keras-tunedconv[report]'`) but no display.

        Raises:
            ValueError: the name ends in neither.
            ImportError: matplotlib is missing for a picture; the message says how to get it.
            OSError: the file cannot be written.

        Example:

        ```python
        keras_tunedconv.report(model, show=False).save("tuning.html")
        ```
        """
        file = Path(path)
        if file.suffix == ".html":
            from keras_tunedconv.reporting import html

            file.write_text(html.page(self), encoding="utf-8")
        elif file.suffix == ".png":
            from keras_tunedconv.reporting import figures

            figures.save_report(self, file)
        else:
            raise ValueError(f"A report is saved as one of {FORMATS}. Received: {path!r}")

    def environments(self) -> list[str]:
        """The environments of the lines."""
        return list(dict.fromkeys(row.record.environment for row in self.rows))

    def summary(self) -> str:
        """The totals in one line."""
        text = f"{format_seconds(self.tuning_seconds)} spent measuring, "
        text += f"{format_seconds(self.saved_seconds)} saved in each step beside the library's defaults"
        if self.first_step is not None:
            text += (
                f", first step {format_seconds(self.first_step.seconds)}, "
                f"{format_seconds(self.first_step.tuning_seconds)} of it measuring"
            )
        return f"{text}, {self.foreign} entries of other environments" if self.foreign else text

    def __str__(self) -> str:
        text = io.StringIO()
        Console(file=text, width=PIPE_WIDTH, color_system=None).print(self._table())
        return text.getvalue().rstrip("\n")

    def __repr__(self) -> str:
        return f"<Report of {len(self.rows)} entries: {self.summary()}>"

    def _repr_html_(self) -> str:
        from keras_tunedconv.reporting import html

        return html.fragment(self)

    def __rich__(self) -> Table:
        return self._table()

    def _table(self) -> Table:
        table = Table(caption=Text(self.summary()), caption_justify="left")
        for name in self.headings:
            table.add_column(name, justify="right" if name in NUMERIC else "left", overflow="fold")
        for row in self.rows:
            table.add_row(*map(Text, row.cells()))
        return table


def report(model: Any = None, *, show: bool = True) -> Report:
    """Print what tuning chose for a model, or for all convolutions of this process.

    Args:
        model: A Keras model or layer; `None` for every entry of the process's registry.
        show: Whether to print the table. In a notebook it is never printed, since the returned object
            shows itself there.

    Returns:
        A `Report` with the lines in `rows` and the totals; its `save` writes a page or a picture.

    Raises:
        TypeError: `model` is none.

    Example:

    ```python
    keras_tunedconv.report(model).save("tuning.html")
    ```
    """
    if model is not None and not hasattr(model, "weights"):
        raise TypeError(
            "model must be a Keras model or layer, or None; of a file `keras-tunedconv report FILE` tells. "
            f"Received: model={model!r}"
        )
    here = environments.current()
    found = [("", record) for record in registry.collect()[0]] if model is None else _of_model(model)
    shown = [(layer, record) for layer, record in found if record.environment in here]
    name = getattr(model, "name", "")
    made = Report(
        rows_of(shown),
        foreign=len(found) - len(shown),
        first_step=first_step.last() if model is None else first_step.of(model),
        title=f"Tuned convolutions of {name}" if name else "Tuned convolutions",
    )
    if show and "ipykernel" not in sys.modules:
        stdout_console().print(made)
    return made


def rows_of(found: Sequence[tuple[str, Record]]) -> list[Row]:
    """Lines of layers' names and entries: layers in their order, each by direction."""
    rows = [Row(layer, record, ConvDescriptor.from_key(record.key)) for layer, record in found]
    rows.sort(key=lambda row: DIRECTIONS.index(row.descriptor.direction))
    order = {layer: i for i, (layer, _) in reversed(list(enumerate(found)))}
    rows.sort(key=lambda row: order[row.layer])
    return rows


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


def _largest_batches(rows: Iterable[Row]) -> list[Row]:
    largest: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        if row.record.time_seconds <= 0:  # copied or predicted
            continue
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
