"""Types of options that several commands have."""

from __future__ import annotations

import math
from typing import Any

import click


class Budget(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """A time that work is to be done in: a finite number of seconds above 0.

    Args:
        zero_too: Whether 0 is one, for nothing at all.
    """

    name = "seconds"

    def __init__(self, *, zero_too: bool = False) -> None:
        self._zero_too = zero_too

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number; anything else is an error of the command line."""
        try:
            seconds = float(value)
        except ValueError:
            seconds = math.nan
        if not (math.isfinite(seconds) and (seconds > 0 or (self._zero_too and seconds == 0))):
            least = "of at least 0" if self._zero_too else "above 0"
            self.fail(f"budget must be a finite number of seconds {least}. Received: {value!r}", param, ctx)
        return seconds
