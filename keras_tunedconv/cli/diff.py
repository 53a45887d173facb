"""`keras-tunedconv diff`: what two files say differently."""

from __future__ import annotations

import json
from pathlib import Path

import click
from rich.table import Table
from rich.text import Text

from keras_tunedconv.cli.files import read_entries
from keras_tunedconv.core.record import Record
from keras_tunedconv.tuning.describe import format_problem, format_seconds, stdout_console
from keras_tunedconv.tuning.merge import Identity

# A pair of entries of one identity; one is missing where only the other file has it.
Difference = tuple[Record | None, Record | None]


@click.command()
@click.argument("first", metavar="A", type=click.Path(path_type=Path))
@click.argument("second", metavar="B", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def diff(first: Path, second: Path, as_json: bool) -> None:
    """Compare the tuning entries of A and B, model files or databases.

    Listed are entries that only one of them has, and those whose algorithms differ; other times of one
    algorithm are no difference. The exit status is 0 without differences, 1 with some, 2 for a file that
    cannot be read.
    """
    found = differences(read_entries(first), read_entries(second))
    if as_json:
        click.echo(json.dumps(_as_dict(found), indent=2))
    else:
        _print(found)
    raise click.exceptions.Exit(1 if found else 0)


def differences(first: dict[Identity, Record], second: dict[Identity, Record]) -> list[Difference]:
    """Entries that only one side has or whose algorithms differ, in the order of environment and key."""
    pairs = [(first.get(key), second.get(key)) for key in sorted({*first, *second})]
    return [(a, b) for a, b in pairs if a is None or b is None or a.algorithm != b.algorithm]


def _as_dict(found: list[Difference]) -> dict[str, list[dict[str, object]]]:
    return {
        "only_in_a": [_identity(a) | _side("", a) for a, b in found if a is not None and b is None],
        "only_in_b": [_identity(b) | _side("", b) for a, b in found if a is None and b is not None],
        "different": [
            _identity(a) | _side("a_", a) | _side("b_", b)
            for a, b in found
            if a is not None and b is not None
        ],
    }


def _identity(record: Record) -> dict[str, object]:
    return {"environment": record.environment, "key": record.key}


def _side(prefix: str, record: Record) -> dict[str, object]:
    return {
        f"{prefix}algorithm": record.algorithm,
        f"{prefix}time_seconds": record.time_seconds,
        f"{prefix}provenance": record.provenance.name.lower(),
    }


def _print(found: list[Difference]) -> None:
    console = stdout_console()
    environments: dict[str, int] = {}
    table = Table()
    for name in ("env", "direction", "convolution", "A", "A time", "B", "B time"):
        table.add_column(name, justify="right" if name.endswith("time") else "left", overflow="fold")
    for a, b in found:
        record = a or b
        assert record is not None  # one side has it
        number = environments.setdefault(record.environment, len(environments) + 1)
        cells = (str(number), record.direction, format_problem(record.key), *_cells(a), *_cells(b))
        table.add_row(*map(Text, cells))
    if found:
        console.print(table)
    for environment, number in environments.items():
        console.print(Text(f"env {number}: {environment}"))
    only_a, only_b = sum(b is None for _, b in found), sum(a is None for a, _ in found)
    console.print(
        f"{only_a} only in A, {only_b} only in B, {len(found) - only_a - only_b} with other algorithms"
    )


def _cells(record: Record | None) -> tuple[str, str]:
    if record is None:
        return "", ""
    return record.algorithm, format_seconds(record.time_seconds) if record.time_seconds > 0 else ""
