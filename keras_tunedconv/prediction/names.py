"""The parts of an algorithm's name, so that one that was rarely seen can be judged by others of its kind."""

from __future__ import annotations

import re
from collections.abc import Hashable
from dataclasses import dataclass
from functools import lru_cache

# Values of knobs are small; a longer number is taken as a word.
_KNOB = re.compile(r"(\w{1,32})=(\d{1,9})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Parts:
    """An algorithm's name taken apart; any text has parts.

    Args:
        engine: What computes, such as `cudnn:eng58`, `onednn:jit_dw` or `cuda:depthwise`.
        settings: What it is set to, such as `k2=3` or an instruction set.
        variants: How the convolution is put to it, such as `swapped` or `channels=16`.
    """

    engine: str
    settings: frozenset[str]
    variants: tuple[str, ...]

    @property
    def columns(self) -> dict[str, float]:
        """The name as named numbers: a knob's value by its name, and 1 for each other part."""
        columns = {f"engine {self.engine}": 1.0}
        for setting in sorted(self.settings):
            knob = _KNOB.fullmatch(setting)
            if knob:
                columns[f"knob {knob[1]}"] = float(knob[2])
            else:
                columns[f"setting {setting}"] = 1.0
        return columns | {f"variant {variant}": 1.0 for variant in self.variants}


@lru_cache(maxsize=8192)
def parts(name: str) -> Parts:
    """The parts of a name: `engine:settings/variant/variant`, as in `cudnn:eng1:k2=3,k4=5/swapped`."""
    head, *variants = name.split("/")
    library, engine, settings = (*head.split(":", 2), "", "")[:3]
    words = frozenset(filter(None, re.split(r"[,:#+]", settings)))
    return Parts(f"{library}:{engine.partition('#')[0]}", words, tuple(variants))


def kinds(name: str) -> tuple[Hashable, ...]:
    """What an algorithm is, from the broadest to itself: its engine, the engine's variant, its name."""
    found = parts(name)
    return ("engine", found.engine), ("variant", found.engine, found.variants), ("name", name)
