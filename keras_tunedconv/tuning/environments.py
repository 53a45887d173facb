"""Which environments this process runs in, to tell its own entries from those of other machines."""

from __future__ import annotations

from keras_tunedconv.core import engines
from keras_tunedconv.core.errors import TunedConvError

_MOST_DEVICES = 64


def current() -> frozenset[str]:
    """Texts of the devices whose engines are open; those of the CPU's engine if none is and it can be.

    A GPU's engine is never opened for this: it would take memory on every device.
    """
    found = frozenset().union(*map(_of_engine, engines.opened()))
    if found:
        return found
    try:
        return frozenset((engines.environment("cpu"),))
    except TunedConvError:
        return frozenset()


def _of_engine(name: str) -> frozenset[str]:
    texts: list[str] = []
    for ordinal in range(1 if name == engines.ENGINES["cpu"] else _MOST_DEVICES):
        try:
            texts.append(engines.environment_of(name, ordinal))
        except TunedConvError:
            break
    return frozenset(texts)


def hard_part(environment: str) -> str:
    """What two environments must have in common for one to use what is stored of the other.

    The soft fields, whose names begin with `~` and which stand last, are those that may differ.
    """
    return environment.partition(";~")[0]
