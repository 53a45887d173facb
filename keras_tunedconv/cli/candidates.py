"""Recorded candidates as tables or JSON, for `keras-tunedconv inspect --candidates`."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from keras_tunedconv.core.trials import Search, Trial
from keras_tunedconv.tuning.describe import count, format_problem, format_seconds, stdout_console

_NUMERIC = frozenset(("order", "time", "samples", "workspace", "plan", "screening"))
_COLUMNS = ("order", "algorithm", "state", "time", "samples", "workspace", "plan", "screening", "reason")


def show(searches: Sequence[Search], *, as_json: bool) -> None:
    """Print searches, the fastest candidate first."""
    if as_json:
        click.echo(json.dumps([_as_dict(search) for search in searches], indent=2))
        return
    console = stdout_console()
    for search in searches:
        _print(console, search)
    console.print(f"{count(len(searches), 'search', 'searches')} with recorded candidates")


def _as_dict(search: Search) -> dict[str, Any]:
    fields = dataclasses.asdict(search)
    for trial in fields["trials"]:
        trial["state"] = trial["state"].name.lower()
    return fields


def _print(console: Console, search: Search) -> None:
    console.print(Text(f"{search.key.partition('|')[0]} {format_problem(search.key)}"))
    console.print(Text(search.environment))
    table = Table()
    for name in _COLUMNS:
        table.add_column(name, justify="right" if name in _NUMERIC else "left", overflow="fold")
    for trial in sorted(search.trials, key=lambda trial: (not trial.usable, trial.seconds, trial.order)):
        table.add_row(*map(Text, _cells(trial)))
    console.print(table)


def _cells(trial: Trial) -> tuple[str, ...]:
    def seconds(value: float) -> str:
        return format_seconds(value) if value > 0 else ""

    return (
        str(trial.order),
        trial.algorithm,
        trial.state.name.lower().replace("_", " "),
        seconds(trial.seconds),
        str(len(trial.samples) or ""),
        str(trial.workspace_bytes),
        seconds(trial.plan_seconds),
        seconds(trial.screen_seconds),
        trial.reason,
    )
