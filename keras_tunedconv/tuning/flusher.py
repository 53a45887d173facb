"""A database file on behalf of a run: read at its begin, added to as entries come."""

from __future__ import annotations

import os
import threading
import time
import warnings

from keras_tunedconv.core import peers, registry, trials
from keras_tunedconv.core.errors import TunedConvError, TuningWarning
from keras_tunedconv.core.record import Record
from keras_tunedconv.tuning import database
from keras_tunedconv.tuning.intake import left_out, put_all
from keras_tunedconv.tuning.merge import Identity, identity, stored_form

_INTERVAL_SECONDS = 1.0
# While a step waits, others' writing is not waited for: the entries go with the next flush.
_STEP_TIMEOUT_SECONDS = 0.2
_END_TIMEOUT_SECONDS = 10.0


class Flusher:
    """Carries entries between a database file and the registry. Whatever fails is one warning.

    Processes that have the same file agree on what runs, through another file beside it (`core.peers`).

    Args:
        path: The database file.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.fspath(path)
        self._lock = threading.Lock()
        self._known: dict[Identity, Record] = {}
        self._flushed_sequence = self._flushed_searches = 0
        self._next_time = 0.0
        self._process = os.getpid()
        self._failed = False
        self._peers_path: str | None = None

    def load(self) -> None:
        """Put what the file has, if there is one, into the registry."""
        self._process = os.getpid()
        # Before the file is read: what others decide from here on would else be missed.
        self._join_peers()
        if not os.path.exists(self._path):  # noqa: PTH110  (as the user spelled it)
            return
        try:
            decoded = database.read(self._path)
        except database.DatabaseError as error:
            self._fail(error)
            return
        refused = put_all(decoded.records)
        self._known = {identity(record): record for record in decoded.records}
        malformed, problem = left_out(decoded, refused)
        if malformed:
            self._warn(f"{malformed} entries of {self._path} were ignored: {problem}.")

    def flush_if_due(self) -> None:
        """Add new entries if there are any, at most once a second; made to be called after every step."""
        now = time.monotonic()
        if now < self._next_time or self._failed or not self._lock.acquire(blocking=False):
            return
        try:
            self._next_time = now + _INTERVAL_SECONDS
            peers.sync()
            self._flush(_STEP_TIMEOUT_SECONDS)
        except database.DatabaseBusyError:
            pass
        finally:
            self._lock.release()

    def flush(self) -> None:
        """Add new entries if there are any, waiting for other writers."""
        peers.sync()
        with self._lock:
            try:
                self._flush(_END_TIMEOUT_SECONDS)
            except database.DatabaseBusyError as error:
                self._fail(error)

    def flush_at_exit(self) -> None:
        """`flush`, unless this is a forked copy of the process the entries belong to."""
        if os.getpid() == self._process:
            self.flush()
            if self._peers_path is not None:
                peers.leave(self._peers_path)

    def _join_peers(self) -> None:
        path = os.path.realpath(self._path) + ".peers"
        try:
            peers.join(path)
            self._peers_path = path
        except (TunedConvError, OSError, ValueError) as error:
            # Where nothing can be written, the database's own warning is enough, once there is need to write.
            if os.path.lexists(path):
                self._warn(f"{error}. Each process measures on its own.")

    def _flush(self, timeout: float) -> None:
        collected, sequence = registry.collect(self._flushed_sequence)
        records = [record for record in map(stored_form, collected) if self._is_news(record)]
        searches, searched = trials.collect(self._flushed_searches)
        if not records and not searches:
            self._flushed_sequence = sequence
            return
        try:
            self._known = database.merge_into(
                self._path, records, searches=searches, known=self._known, timeout=timeout
            )
        except database.DatabaseBusyError:
            raise
        except (database.DatabaseError, ValueError) as error:
            self._fail(error)
            return
        self._flushed_sequence, self._flushed_searches = sequence, searched
        self._failed = False

    def _is_news(self, record: Record) -> bool:
        return self._known.get(identity(record)) != record

    def _fail(self, error: Exception) -> None:
        """Say so once; the next epoch's end tries again."""
        if not self._failed:
            self._warn(f"{error} Training goes on, and the model's own file is not affected.")
        self._failed = True

    def _warn(self, text: str) -> None:
        warnings.warn(text, TuningWarning, stacklevel=4)
