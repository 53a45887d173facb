"""First guesses for convolutions that nothing is known of, from recorded candidates, as layers are traced."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import replace

from keras_tunedconv.core import engines, registry
from keras_tunedconv.core.config import config
from keras_tunedconv.core.descriptor import ConvDescriptor
from keras_tunedconv.core.errors import TunedConvError, TuningWarning
from keras_tunedconv.core.record import Provenance, Record
from keras_tunedconv.core.trials import Search
from keras_tunedconv.prediction.model import CostModel
from keras_tunedconv.tuning import database


def use(path: str | os.PathLike[str]) -> Callable[[], None]:
    """Guess from now on, in this process, from the recorded candidates of a database.

    In mode `"search"` a convolution that is traced, of which nothing is known and the cost model has an
    opinion, runs the algorithm it predicts. The entry is marked as predicted and is measured as a copied one
    is: after `config.copies_before_measuring` runs, or at first sight where `config.batch_policy` is
    `"exact"`; the prediction is then tried first after the library's default.

    Args:
        path: A database with candidates (`config.record_candidates`) of this device.

    Returns:
        What ends it.

    Raises:
        DatabaseError: the database cannot be read.

    Example:

    ```python
    from keras_tunedconv.prediction import guessing

    guessing.use("candidates.h5")
    ```
    """
    return use_searches(database.read_searches(path).searches)


def use_searches(searches: Iterable[Search]) -> Callable[[], None]:
    """The same from searches, as `trials.collect` gives them."""
    return engines.when_traced(_Guesser(CostModel(searches)))


def guess(
    model: CostModel, descriptor: ConvDescriptor, device: str = "cpu", ordinal: int = 0
) -> Record | None:
    """The entry that a cost model suggests for a convolution; `None` where it has no opinion.

    Raises:
        UnavailableError: the device's engine cannot be opened.
        UnsupportedError: it has no algorithm for the convolution.
    """
    if device == "cpu":
        # The core knows convolutions on the CPU without these, since they make no difference there.
        descriptor = replace(descriptor, deterministic=False, allow_tf32=False)
    environment = engines.environment(device, ordinal)
    order = model.opinion(descriptor, environment, engines.candidates(descriptor, device, ordinal))
    if order is None:
        return None
    return Record(
        key=descriptor.key,
        environment=environment,
        algorithm=order[0],
        runner_up=order[1] if len(order) > 1 else "",
        created=int(time.time()),
        candidates_total=len(order),
        provenance=Provenance.PREDICTED,
        math_type=int(descriptor.allow_tf32),
        deterministic=False,
    )


class _Guesser:
    def __init__(self, model: CostModel) -> None:
        self._model = model
        self._seen: set[tuple[str, str, int]] = set()

    def __call__(self, descriptor: ConvDescriptor, device: str, ordinal: int) -> None:
        asked = (descriptor.key, device, ordinal)
        if config.mode != "search" or asked in self._seen:
            return
        self._seen.add(asked)
        try:
            record = guess(self._model, descriptor, device, ordinal)
            if record is not None:
                registry.put(record)  # what is known of the key stays
        except (TunedConvError, ValueError) as error:
            warnings.warn(f"Nothing is predicted for {descriptor.key}: {error}", TuningWarning, stacklevel=2)
