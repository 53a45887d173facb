"""`keras-tunedconv merge`, `export`, `import` and `prune`: entries between models' files and databases."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import click

from keras_tunedconv.cli.files import UnreadableFile, check_there, read_entries, read_parts, read_searches
from keras_tunedconv.core.record import Record
from keras_tunedconv.core.trials import Search
from keras_tunedconv.tuning import database
from keras_tunedconv.tuning.archive import ArchiveError
from keras_tunedconv.tuning.describe import count
from keras_tunedconv.tuning.merge import Identity, identity, merge_into, merge_searches
from keras_tunedconv.tuning.model_file import add_entries

_FILE = click.Path(path_type=Path)
_ENVIRONMENT_HELP = "Part of an environment's text, such as 'engine=cudnn'; may be given several times."


@click.command()
@click.argument("out", type=_FILE)
@click.argument("sources", metavar="IN...", type=_FILE, nargs=-1, required=True)
def merge(out: Path, sources: tuple[Path, ...]) -> None:
    """Merge the tuning entries of IN, model files or databases, into the database OUT.

    OUT is made if it is missing; recorded candidates go with their entries. Of two entries for one
    convolution and environment an override stays above a measured one, that above one copied from another
    size, that above a predicted one; at equal rank the lower time wins, then the search that tried more, then
    the later one. Nothing is written when an input cannot be read.
    """
    entries: dict[Identity, Record] = {}
    searches: dict[Identity, Search] = {}
    for source in sources:
        merge_into(entries, read_entries(source).values())
        merge_searches(searches, read_searches(source))
    _add(out, entries.values(), searches.values())


@click.command()
@click.argument("file", type=_FILE)
@click.argument("database_file", metavar="DATABASE", type=_FILE)
@click.option("--environment", "environments", multiple=True, help=f"Only these. {_ENVIRONMENT_HELP}")
def export(file: Path, database_file: Path, environments: tuple[str, ...]) -> None:
    """Copy the tuning entries of FILE, a model or a database, into DATABASE, which is made if missing."""
    chosen = _chosen(file, environments)
    kept = {identity(record) for record in chosen}
    searches = [each for each in read_searches(file) if (each.environment, each.key) in kept]
    _add(database_file, chosen, searches)


@click.command("import")
@click.argument("database_file", metavar="DATABASE", type=_FILE)
@click.argument("model", type=_FILE)
@click.option("--environment", "environments", multiple=True, help=f"Only these. {_ENVIRONMENT_HELP}")
def import_entries(database_file: Path, model: Path, environments: tuple[str, ...]) -> None:
    """Add the entries of DATABASE to MODEL, a .keras or .weights.h5 file, each to the layers it is about.

    The weights stay byte for byte, and whoever reads MODEL meanwhile sees the old file or the new one. Where
    MODEL has an entry for the same convolution and environment, the better one stays, as in `merge`. No
    Keras backend is imported.
    """
    wanted = _chosen(database_file, environments)
    read_parts(model)
    try:
        added = add_entries(model, wanted)
    except ArchiveError as error:
        raise UnreadableFile(str(error)) from error
    entries, layers = count(added.entries, "entry", "entries"), count(added.layers, "layer")
    click.echo(f"{entries} new or changed in {layers} of {model}")


@click.command()
@click.argument("file", type=_FILE)
@click.option(
    "--environment", "environments", multiple=True, required=True, help=_ENVIRONMENT_HELP
)  # fmt: skip
@click.option("--keep", is_flag=True, help="Keep these and drop all others.")
def prune(file: Path, environments: tuple[str, ...], keep: bool) -> None:
    """Drop the entries of environments from the database FILE."""
    check_there(file)
    try:
        _check_environments(environments, database.read(file).records)
        left, dropped = database.keep_only(file, lambda record: _is_of(record, environments) == keep)
    except database.DatabaseError as error:
        raise UnreadableFile(str(error)) from error
    click.echo(f"{count(dropped, 'entry', 'entries')} dropped, {left} left in {file}")


def _chosen(file: Path, environments: tuple[str, ...]) -> list[Record]:
    """The entries of a file, of some environments where those are named."""
    entries = list(read_entries(file).values())
    _check_environments(environments, entries)
    return [record for record in entries if not environments or _is_of(record, environments)]


def _is_of(record: Record, environments: tuple[str, ...]) -> bool:
    return any(text in record.environment for text in environments)


def _check_environments(environments: tuple[str, ...], records: Iterable[Record]) -> None:
    known = sorted({record.environment for record in records})
    for text in environments:
        if not text or not any(text in environment for environment in known):
            listed = "".join(f"\n  {environment}" for environment in known) or " none"
            raise click.UsageError(f"No environment of the file has {text!r} in it. Environments:{listed}")


def _add(path: Path, records: Iterable[Record], searches: Iterable[Search]) -> None:
    try:
        before = set(database.read(path).records) if path.exists() else set()
        merged = database.merge_into(path, records, searches=list(searches))
    except (database.DatabaseError, ValueError) as error:
        raise UnreadableFile(str(error)) from error
    changed = len(set(merged.values()) - before)
    click.echo(f"{count(changed, 'entry', 'entries')} new or changed, {len(merged)} in {path}")
