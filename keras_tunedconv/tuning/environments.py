"""Which environments this process runs in, to tell its own entries from those of other machines."""

from __future__ import annotations

from keras_tunedconv.core import engines
from keras_tunedconv.core.errors import TunedConvError
from keras_tunedconv.core.library import lib

_MOST_DEVICES = 64


def current() -> frozenset[str]:
    """Texts of the devices whose engines are open; those of the CPU's engine if none is and it can be.

    A GPU's engine is never opened for this: it would take memory on every device.
    """
    found = frozenset().union(*(_of_device(device) for device in engines.ENGINES if _is_open(device)))
    if found:
        return found
    try:
        return frozenset((engines.environment("cpu"),))
    except TunedConvError:
        return frozenset()


def _is_open(device: str) -> bool:
    return lib is not None and bool(lib.tc_engine_is_open(engines.ENGINES[device].encode()))


def _of_device(device: str) -> frozenset[str]:
    texts: list[str] = []
    for ordinal in range(_MOST_DEVICES if device != "cpu" else 1):
        try:
            texts.append(engines.environment(device, ordinal))
        except TunedConvError:
            break
    return frozenset(texts)


def hard_part(environment: str) -> str:
    """What two environments must have in common for one to use what is stored of the other.

    The soft fields, whose names begin with `~` and which stand last, are those that may differ.
    """
    return environment.partition(";~")[0]
