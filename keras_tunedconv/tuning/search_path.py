"""Databases that many models share: where they lie, and what of them this process takes in.

From the highest precedence to the lowest, after a model's own file: the user's folder, what
`KERAS_TUNEDCONV_DATABASES` names, and what is shipped with the package. They are read once for a device,
when its engine is opened, never at import and never in a step.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import platformdirs

from keras_tunedconv.core import engines
from keras_tunedconv.core.errors import TunedConvError, TuningWarning
from keras_tunedconv.core.record import Provenance, Record
from keras_tunedconv.tuning import database
from keras_tunedconv.tuning.environments import hard_part
from keras_tunedconv.tuning.intake import left_out, offer_all

FOLDERS_VARIABLE = "KERAS_TUNEDCONV_DATABASES"
SWITCH_VARIABLE = "KERAS_TUNEDCONV_SEARCH_PATH"
USER, NAMED, SHIPPED = "user", "named", "shipped"

_SUFFIX = ".h5"
_SHIPPED_FOLDER = Path(__file__).parents[1] / "databases"
_warned: set[str] = set()


@dataclass(frozen=True)
class Source:
    """A database of the search path.

    Args:
        path: The file; where `KERAS_TUNEDCONV_DATABASES` names something that is not there, that.
        origin: `"user"`, `"named"` (by `KERAS_TUNEDCONV_DATABASES`) or `"shipped"`.
    """

    path: Path
    origin: str


def is_on() -> bool:
    """Whether databases are looked for: unless `KERAS_TUNEDCONV_SEARCH_PATH` is 0."""
    return os.environ.get(SWITCH_VARIABLE, "1").lower() not in ("0", "false")


def user_folder() -> Path:
    """Where a user keeps databases for all models, `*.h5`; it need not exist."""
    return platformdirs.user_data_path("keras_tunedconv") / "databases"


def sources() -> list[Source]:
    """The databases there are, of the highest precedence first; none where the search path is off."""
    if not is_on():
        return []
    named = filter(None, os.environ.get(FOLDERS_VARIABLE, "").split(os.pathsep))
    return [
        *(Source(path, USER) for path in _databases_in(user_folder())),
        *(Source(path, NAMED) for place in named for path in _at(Path(place))),
        *(Source(path, SHIPPED) for path in _databases_in(_SHIPPED_FOLDER)),
    ]


def offer(device: str) -> None:
    """Offer the process's registry what the databases say about a device whose engine is open.

    A database that is missing or cannot be read is one `TuningWarning`; the others are used all the same.

    Args:
        device: `"cpu"` or `"cuda"`.
    """
    # Of two offers the registry keeps the later.
    for source in reversed(sources()):
        try:
            decoded = database.read(source.path)
        except database.DatabaseError as error:
            _warn(f"{error} It is left out.")
            continue
        refused = offer_all(_of_device(decoded.records, device, source.origin))
        malformed, problem = left_out(decoded, refused)
        if malformed:
            _warn(f"{malformed} entries of the tuning database {source.path} were ignored: {problem}.")


def _at(place: Path) -> list[Path]:
    """The databases that a name stands for: those of a folder, or one file."""
    return _databases_in(place) if place.is_dir() else [place]


def _databases_in(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.suffix == _SUFFIX and path.is_file())
    except OSError:
        return []


def _of_device(records: Sequence[Record], device: str, origin: str) -> list[Record]:
    """The entries that may be used on a device, marked with where they come from."""
    provenance = Provenance.SHIPPED if origin == SHIPPED else Provenance.IMPORTED
    return [
        replace(record, provenance=provenance) if record.provenance is Provenance.MEASURED else record
        for record in _of_environment(records, device)
    ]


def _of_environment(records: Sequence[Record], device: str) -> Iterator[Record]:
    if device != "cpu":
        # Asking a GPU for its name takes memory on it, and this process may be meant for another one.
        start = f"engine={engines.ENGINES[device]};"
        return (record for record in records if record.environment.startswith(start))
    try:
        here = hard_part(engines.environment(device))
    except TunedConvError:
        return iter(())
    return (record for record in records if hard_part(record.environment) == here)


def _warn(text: str) -> None:
    if text not in _warned:
        _warned.add(text)
        warnings.warn(text, TuningWarning, stacklevel=2)
