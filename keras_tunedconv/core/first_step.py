"""How long the first step of a model's training took, and how much of that was measuring."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary


@dataclass(frozen=True)
class FirstStep:
    """The first step of a model's first `fit`.

    Args:
        seconds: Wall time of all of it: tracing, compiling, measuring, running.
        tuning_seconds: Seconds of measuring in it.
    """

    seconds: float
    tuning_seconds: float

    @property
    def other_seconds(self) -> float:
        """Seconds of everything but measuring."""
        return max(self.seconds - self.tuning_seconds, 0.0)


_of_model: WeakKeyDictionary[Any, FirstStep] = WeakKeyDictionary()
_last: FirstStep | None = None


def note(model: Any, step: FirstStep) -> None:
    """Keep a model's first step; later ones of the same model are none."""
    global _last
    if model not in _of_model:
        _of_model[model] = _last = step


def of(model: Any) -> FirstStep | None:
    """That of a model; `None` where no `TuningCallback` saw one."""
    return _of_model.get(model)


def last() -> FirstStep | None:
    """That of the model whose training began last; `None` where no `TuningCallback` saw one."""
    return _last


def forget() -> None:
    """Go back to none."""
    global _last
    _of_model.clear()
    _last = None
