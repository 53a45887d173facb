"""Reading the entries of files for commands that compare and combine them."""

from __future__ import annotations

from pathlib import Path

import click

from keras_tunedconv.core.record import Record
from keras_tunedconv.core.trials import Search
from keras_tunedconv.tuning import database
from keras_tunedconv.tuning.archive import ArchiveError, Found, entries_of
from keras_tunedconv.tuning.merge import Identity, merge_into

_SUFFIXES = (".keras", ".h5", ".json")
_MOST_NAMES = 20


class UnreadableFile(click.ClickException):
    """A file that cannot be read or written as asked; the exit status is 2, as for wrong arguments."""

    exit_code = 2


def read_searches(path: Path) -> list[Search]:
    """The candidates that a database has; a model's file has none.

    Malformed ones are left out, and said on standard error.

    Raises:
        UnreadableFile: the file, or its candidates, cannot be read.
    """
    try:
        if not any(part.place == "" for part in entries_of(path)):
            return []
        decoded = database.read_searches(path)
    except (ArchiveError, database.DatabaseError) as error:
        raise UnreadableFile(str(error)) from error
    if decoded.malformed:
        click.echo(
            f"{path}: {decoded.malformed} malformed candidates are left out: {decoded.problem}", err=True
        )
    return decoded.searches


def check_there(path: Path) -> None:
    """Say which files there are where one is missing.

    Raises:
        UnreadableFile: there is no such file, or it is a folder, a pipe or a device.
    """
    if path.is_file():
        return
    if path.exists():
        raise UnreadableFile(f"{path} is no regular file")
    if not path.parent.is_dir():
        raise UnreadableFile(f"{path} does not exist; there is no folder {path.parent}.")
    names = sorted(each.name for each in path.parent.iterdir() if each.suffix in _SUFFIXES)
    if not names:
        there = f"there is no .keras, .h5 or .weights.json file in {path.parent}"
    else:
        more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
        there = f"in {path.parent} there is {', '.join(names[:_MOST_NAMES])}{more}"
    raise UnreadableFile(f"{path} does not exist; {there}.")


def read_parts(path: Path) -> list[Found]:
    """What a model's file or a database has, layer by layer, also of layers whose entries cannot be read.

    Raises:
        UnreadableFile: the file cannot be read.
    """
    check_there(path)
    try:
        return entries_of(path)
    except ArchiveError as error:
        raise UnreadableFile(str(error)) from error


def read_entries(path: Path) -> dict[Identity, Record]:
    """All entries of a model's file or a database; where layers share a convolution, the preferred one.

    Malformed entries are left out, and said on standard error.

    Raises:
        UnreadableFile: the file, or a layer's entries in it, cannot be read.
    """
    entries: dict[Identity, Record] = {}
    for part in read_parts(path):
        place = f"{path}, {part.place}" if part.place else str(path)
        if part.problem:
            raise UnreadableFile(f"{place}: entries cannot be read: {part.problem}")
        if part.decoded.malformed:
            click.echo(
                f"{place}: {part.decoded.malformed} malformed entries are left out: {part.decoded.problem}",
                err=True,
            )
        merge_into(entries, part.decoded.records)
    return entries
