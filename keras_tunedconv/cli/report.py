"""`keras-tunedconv report`: what tuning brought, as a table, a page or a picture."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import click

from keras_tunedconv.cli.files import UnreadableFile, check_there, read_parts, read_searches
from keras_tunedconv.core.library import lib, unavailable_reason
from keras_tunedconv.core.record import Record

_OUT = click.Path(dir_okay=False, path_type=Path)


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--html", type=_OUT, help="Write a page that needs nothing else.")
@click.option("--png", type=_OUT, help="Write a picture; takes matplotlib.")
@click.option(
    "--environment",
    help="Part of the environment's text, such as 'engine=cudnn'; by default the one with most entries.",
)
@click.option(
    "--candidates",
    metavar="TEXT",
    help="With --png: the candidates of the one recorded search whose key has TEXT in it.",
)
def report(
    file: Path, html: Path | None, png: Path | None, environment: str | None, candidates: str | None
) -> None:
    """Report what tuning chose in FILE, a model's file or a database, for one environment.

    Time by layer and direction, tuned and with the library's own choices, and where the seconds of measuring
    went: as a table, or with --html or --png in files. No Keras backend is imported.
    """
    if lib is None:
        raise UnreadableFile(f"A report needs the compiled core: {unavailable_reason()}")
    for out, suffix in ((html, ".html"), (png, ".png")):
        if out is not None and out.suffix != suffix:
            raise click.UsageError(f"The file must be named *{suffix}. Received: {out}")
    if candidates is not None:
        _draw_candidates(file, candidates, environment, png)
        return
    from keras_tunedconv.reporting.table import Report, rows_of
    from keras_tunedconv.tuning.describe import stdout_console

    found = _entries(file)
    chosen = _environment([record for _, record in found], environment)
    shown = [(layer, record) for layer, record in found if record.environment == chosen]
    made = Report(rows_of(shown), len(found) - len(shown), title=f"Tuned convolutions of {file.name}")
    if html is None and png is None:
        stdout_console().print(made)
    for out in filter(None, (html, png)):
        _write(out, made.save)


def _draw_candidates(file: Path, key_part: str, environment: str | None, png: Path | None) -> None:
    if png is None:
        raise click.UsageError("--candidates draws a picture: name its file with --png.")
    check_there(file)
    searches = [
        each for each in read_searches(file) if environment is None or environment in each.environment
    ]
    found = [search for search in searches if key_part in search.key]
    if len(found) != 1:
        listed = "".join(f"\n  {search.key}\n    {search.environment}" for search in found or searches)
        raise click.UsageError(
            f"{len(found)} recorded searches have {key_part!r} in their key; name one."
            f" Searches:{listed or ' none, since config.record_candidates was not set'}"
        )

    def draw(path: Path) -> None:
        from keras_tunedconv.reporting.candidates import save_candidates

        save_candidates(found[0], path)

    _write(png, draw)


def _write(out: Path, save: Callable[[Path], None]) -> None:
    try:
        save(out)
    except (ImportError, OSError) as error:
        raise UnreadableFile(str(error)) from error
    click.echo(f"{out} written")


def _entries(file: Path) -> list[tuple[str, Record]]:
    parts = read_parts(file)
    for part in parts:
        if part.problem:
            raise UnreadableFile(f"{file}, {part.place}: entries cannot be read: {part.problem}")
    return [(part.name or part.place, record) for part in parts for record in part.decoded.records]


def _environment(records: Sequence[Record], wanted: str | None) -> str:
    """The environment to report on: the one asked for, or that of most entries."""
    counts = Counter(record.environment for record in records)
    if not counts:
        raise UnreadableFile("The file has no entries.")
    fitting = [text for text, _ in counts.most_common() if wanted is None or wanted in text]
    if not fitting:
        listed = "".join(f"\n  {text}" for text in sorted(counts))
        raise click.UsageError(f"No environment of the file has {wanted!r} in it. Environments:{listed}")
    return fitting[0]
