"""`keras-tunedconv inspect`: the entries of a file."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import click
from rich.table import Table
from rich.text import Text

from keras_tunedconv.cli import candidates
from keras_tunedconv.cli.files import check_there, read_parts, read_searches
from keras_tunedconv.core.record import Record
from keras_tunedconv.tuning.archive import Found
from keras_tunedconv.tuning.describe import HEADINGS, NUMERIC, cells, count, plain_table, stdout_console

_NOT_STORED = "sequence"
_MOST_WITH_BORDERS = 500


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@click.option(
    "--candidates",
    "key_part",
    metavar="KEYPART",
    help="List instead what became of each candidate, for keys with this in them; '' for all.",
)
def inspect(file: Path, as_json: bool, key_part: str | None) -> None:
    """List the tuning entries of FILE.

    FILE is a .keras or .weights.h5 file, the .weights.json index of sharded weights, or a tuning
    database. Databases have candidates where they were recorded (config.record_candidates). No Keras backend
    is imported.
    """
    if key_part is not None:
        check_there(file)
        candidates.show([each for each in read_searches(file) if key_part in each.key], as_json=as_json)
        return
    found = read_parts(file)
    if as_json:
        click.echo(json.dumps([_as_dict(part) for part in found], indent=2))
    else:
        _print(found)


def _as_dict(part: Found) -> dict[str, Any]:
    return {
        "layer": part.place,
        "name": part.name,
        "entries": [_fields(record) for record in part.decoded.records],
        "malformed": part.decoded.malformed,
        "problem": part.problem or part.decoded.problem,
    }


def _fields(record: Record) -> dict[str, Any]:
    fields = dataclasses.asdict(record)
    del fields[_NOT_STORED]
    fields["provenance"] = record.provenance.name.lower()
    return fields


def _print(found: list[Found]) -> None:
    records = [(part.name or part.place, record) for part in found for record in part.decoded.records]
    environments: dict[str, int] = {}
    for _, record in records:
        environments.setdefault(record.environment, len(environments) + 1)
    if records:
        _print_table(
            [
                (place, str(environments[record.environment]), record.direction, *cells(record))
                for place, record in records
            ]
        )
    for environment, number in environments.items():
        click.echo(f"env {number}: {environment}")
    for part in found:
        place = part.place or "the database"
        if part.problem:
            click.echo(f"{place}: entries cannot be read: {part.problem}")
        elif part.decoded.malformed:
            click.echo(f"{place}: {part.decoded.malformed} malformed entries: {part.decoded.problem}")
    click.echo(f"{count(len(records), 'entry', 'entries')} of {count(len(environments), 'environment')}")


def _print_table(rows: list[tuple[str, ...]]) -> None:
    headings = ("layer", "env", "direction", *HEADINGS)
    if not sys.stdout.isatty() or len(rows) > _MOST_WITH_BORDERS:
        click.echo(plain_table(headings, rows))
        return
    table = Table()
    for name in headings:
        table.add_column(name, justify="right" if name in NUMERIC else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    stdout_console().print(table)
