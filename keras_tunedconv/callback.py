"""The callback that gathers a run's entries."""

from __future__ import annotations

import os
import time
import weakref
from collections import deque
from contextlib import suppress
from typing import Any

import keras

from keras_tunedconv.core import first_step, registry
from keras_tunedconv.core.errors import emit_pending_warnings
from keras_tunedconv.core.first_step import FirstStep
from keras_tunedconv.layers.keras_internals import flatten_layers
from keras_tunedconv.tuning.cache import TuningCache
from keras_tunedconv.tuning.flusher import Flusher


class TuningCallback(keras.callbacks.Callback):  # type: ignore[misc, unused-ignore]
    """Gathers what is measured during `fit`, `evaluate` and `predict` into the model's layers.

    After each epoch and at the end the new entries are put into `layer.tuning` of every tuned layer, and
    warnings of the core are shown. Saving a model takes in the entries there are by itself, so the
    callback may stand before or after others such as `ModelCheckpoint`.

    With `filepath` the entries are also kept in a database file for other models and other runs: it is
    read at the begin of a run and added to as entries come, after a step at most once a second, so a
    killed run loses next to nothing. Several processes may use one file; those that do at the same time
    agree on what runs, one measuring a key and the others taking its choice. A file that cannot be read
    or written is one `keras_tunedconv.TuningWarning`, and training goes on.

    Args:
        filepath: The database file, made when it is missing; its folder must exist. `None` keeps entries
            in the model only.

    Example:

    ```python
    model.fit(x, y, callbacks=[TuningCallback("tuning.h5")])
    ```
    """

    # Batch ends only look at a clock and at the registry, from any thread, and at the logs of the first step
    # only: Keras then does not wait for each step's results on their account.
    async_safe = True

    def __init__(self, filepath: str | os.PathLike[str] | None = None) -> None:
        super().__init__()
        self.filepath = filepath
        self._flusher = None if filepath is None else Flusher(filepath)
        self._loaded = False
        self._tuned: Any = None
        # At most one clock a run. Keras may tell of the ends of several steps at once, in threads of its own:
        # one of them takes the start out.
        self._clock_started = False
        self._step_start: deque[tuple[float, float]] = deque()
        if self._flusher is not None:
            # An interrupted fit calls no end under JAX; this runs when the callback goes or Python exits.
            weakref.finalize(self, self._flusher.flush_at_exit)

    def set_model(self, model: Any) -> None:
        """Remember the model; called by Keras."""
        super().set_model(model)
        # Not through `self.model`, which makes JAX copy the state of a step back into the model.
        self._tuned = model if isinstance(model, keras.Model) else getattr(model, "module", model)

    def on_train_begin(self, logs: Any = None) -> None:
        """Read the database."""
        self._clock_started = False
        self._step_start.clear()
        self._load(again=True)

    def on_test_begin(self, logs: Any = None) -> None:
        """Read the database, unless it was for the `fit` around."""
        self._load()

    def on_predict_begin(self, logs: Any = None) -> None:
        """Read the database."""
        self._load()

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Start the clock of a model's first step."""
        if not self._clock_started and first_step.of(self._tuned) is None:
            self._clock_started = True
            self._step_start.append((time.monotonic(), registry.stats()["tuning_seconds"]))

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Write new entries, at most once a second, and stop the clock of a first step."""
        if self._step_start:
            self._note_first_step(logs)
        self._flush_if_due()

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        """Write new entries, at most once a second."""
        self._flush_if_due()

    def on_predict_batch_end(self, batch: int, logs: Any = None) -> None:
        """Write new entries, at most once a second."""
        self._flush_if_due()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Gather new entries."""
        self._gather()

    def on_train_end(self, logs: Any = None) -> None:
        """Gather the last entries."""
        self._gather()

    def on_test_end(self, logs: Any = None) -> None:
        """Gather the entries of an evaluation."""
        self._gather()

    def on_predict_end(self, logs: Any = None) -> None:
        """Gather the entries of a prediction."""
        self._gather()

    def _note_first_step(self, logs: Any) -> None:
        for value in (logs or {}).values():
            with suppress(TypeError, ValueError):
                float(value)  # the step may still be running
        try:
            start, tuned_before = self._step_start.pop()
        except IndexError:  # the end of another step stopped it meanwhile
            return
        tuning_seconds = registry.stats()["tuning_seconds"] - tuned_before
        first_step.note(self._tuned, FirstStep(time.monotonic() - start, tuning_seconds))

    def _load(self, again: bool = False) -> None:
        if self._flusher is not None and (again or not self._loaded):
            self._flusher.load()
            self._loaded = True
        emit_pending_warnings()

    def _flush_if_due(self) -> None:
        if self._flusher is not None:
            self._flusher.flush_if_due()

    def _gather(self) -> None:
        for layer in flatten_layers(self._tuned):
            cache = getattr(layer, "tuning", None)
            if isinstance(cache, TuningCache):
                cache.collect()
        if self._flusher is not None:
            self._flusher.flush()
        emit_pending_warnings()
