"""`keras-tunedconv doctor`: what is there, what is missing, and the command that brings it."""

from __future__ import annotations

import json
import sys
from typing import Any

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from keras_tunedconv.cli import facts
from keras_tunedconv.tuning.describe import count

_OK, _NO = "[green]yes[/]", "[red]no[/]"


@click.command()
@click.option("--check", is_flag=True, help="Run a convolution under each installed backend (seconds each).")
@click.option("--json", "as_json", is_flag=True, help="Print plain data instead of tables.")
def doctor(check: bool, as_json: bool) -> None:
    """Say which engines, libraries, compilers and bridges are there, and how to get what is missing.

    Frameworks and libraries are opened in processes of their own, so that one which crashes is reported
    instead of ending this command.
    """
    found = facts.gather(check=check)
    if as_json:
        click.echo(json.dumps(found, indent=2, default=str))
    else:
        # Where the output goes into a file or a pipe, paths stay whole.
        _print(found, Console(soft_wrap=True, width=None if sys.stdout.isatty() else 160))


def _print(found: dict[str, Any], console: Console) -> None:
    package, machine = found["package"], found["machine"]
    console.print(
        f"[bold]keras-tunedconv {package['version']}[/] in {escape(package['folder'])}, "
        f"Keras {package['keras'] or 'not installed'}, Python {escape(package['python'])}"
    )
    console.print(f"{escape(machine['cpu'])}: {machine['instruction_set']}, {machine['cpus']} CPUs")
    console.print(f"NVIDIA GPUs: {escape(', '.join(machine['gpus'])) or 'none'}\n")
    console.print(_core(found["core"]))
    console.print(_engines(found["engines"]))
    console.print(_backends(found["backends"], found["active_backend"]))
    console.print(_compilers(found["compilers"]))
    for what, folder in found["folders"].items():
        state = f"{folder['bytes'] / 2**20:.1f} MiB" if folder["exists"] else "not there yet"
        console.print(
            f"{what} folder: {escape(folder['path'])} ({state}{'' if folder['writable'] else ', read-only'})"
        )
    _print_search_path(found["search_path"], console)
    for name, value in found["settings"].items():
        console.print(f"{name}={escape(value)}")
    _print_missing(found["missing"], console)


def _core(core: dict[str, Any]) -> str:
    if "problem" in core:
        return f"compiled core: {_NO}, {escape(core['problem'])}"
    handler = "with" if core["xla_handler"] else "without"
    return f"compiled core: {_OK}, {escape(core['file'])}, {handler} XLA handler"


def _table(title: str, *columns: str) -> Table:
    table = Table(title=escape(title), title_justify="left")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _engines(engines: list[dict[str, Any]]) -> Table:
    table = _table("Engines", "engine", "device", "opens", "library or problem", "why this one")
    for one in engines:
        opens = _OK if "library" in one else _NO
        text = one.get("library") or one.get("problem", "")
        if "environment" in one:
            text += "\n" + one["environment"]
        table.add_row(one["name"], one["device"], opens, escape(text), escape(one.get("why", "")))
    return table


def _backends(backends: list[dict[str, Any]], active: str) -> Table:
    title = f"Keras backends (a new process takes {active})"
    table = _table(title, "backend", "version", "bridge")
    for one in backends:
        table.add_row(one["name"], one["version"] or _NO, escape(_bridge(one)))
    return table


def _bridge(one: dict[str, Any]) -> str:
    if one["version"] is None:
        return f"pip install 'keras-tunedconv[{one['name']}]' brings it"
    if "problem" in one:
        return str(one["problem"])
    lines = []
    if op := one.get("op"):
        lines.append(f"op built: {op['path']}" if op.get("built") else f"op not built: {op['problem']}")
    if check := one.get("check"):
        algorithms = ", ".join(check.get("algorithms", ())) or "the library's default"
        lines.append(f"a convolution ran tuned: {algorithms}" if check.get("tuned") else check["problem"])
        lines += check.get("libraries", [])
    return "\n".join(lines) or "needs no building; --check runs it"


def _compilers(compilers: list[dict[str, Any]]) -> str:
    if not compilers:
        return f"C++ compiler: {_NO}"
    return "C++ compiler: " + "; ".join(escape(f"{one['path']} ({one['version']})") for one in compilers)


def _print_search_path(found: dict[str, Any], console: Console) -> None:
    if not found["on"]:
        console.print(f"databases for all models: {_NO}, KERAS_TUNEDCONV_SEARCH_PATH switches them off")
        return
    console.print(f"databases for all models, first to last (yours go into {escape(found['user_folder'])}):")
    for one in found["databases"]:
        what = one.get("problem") or (
            f"{count(one['entries'], 'entry', 'entries')} of {count(one['environments'], 'environment')}"
        )
        console.print(f"- {one['origin']}: {escape(one['path'])}: {escape(what)}")
    if not found["databases"]:
        console.print("- none")


def _print_missing(missing: list[dict[str, str]], console: Console) -> None:
    if not missing:
        console.print("\n[green]Nothing is missing.[/]")
        return
    console.print("\n[bold]Missing:[/]")
    for one in missing:
        console.print(f"- {escape(one['what'])}\n    {escape(one['command'])}")
