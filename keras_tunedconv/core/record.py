"""A record: what is known of one key in one environment."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from keras_tunedconv.core.library import ffi, text


class Provenance(IntEnum):
    """Where a record came from. The numbers are `tc_provenance` in tunedconv.h and stand in files."""

    DEFAULT = 0
    MEASURED = 1
    SHIPPED = 2
    IMPORTED = 3
    COPIED = 4
    OVERRIDE = 5
    PREDICTED = 6


@dataclass(frozen=True, slots=True)
class Record:
    """One entry of a tuning cache.

    Args:
        key: Canonical text of the convolution (see `ConvDescriptor.key`).
        environment: Canonical text of the device and the library.
        algorithm: Name of the algorithm to run, as the engine gave it.
        runner_up: Name of the next best algorithm, or `""`.
        workspace_bytes: Workspace the algorithm needs, in bytes.
        created: Unix time of the measurement, in seconds.
        time_seconds: Median time of one run, in seconds; 0 when it was not measured.
        default_seconds: The same for the library's default algorithm.
        spread: Interquartile range over median of the winner's samples.
        tuning_seconds: Time spent on this key, building plans included.
        candidates_tried: How many candidates were measured or dropped.
        candidates_total: How many there are; more than tried when a budget cut the search short.
        provenance: Where the record came from.
        math_type: 0 for strict arithmetic, 1 where TF32 was allowed.
        deterministic: Whether the algorithm gives the same bits each run.
        sequence: Grows with each change in this process's registry; not stored.
    """

    key: str
    environment: str
    algorithm: str
    runner_up: str = ""
    workspace_bytes: int = 0
    created: int = 0
    time_seconds: float = 0.0
    default_seconds: float = 0.0
    spread: float = 0.0
    tuning_seconds: float = 0.0
    candidates_tried: int = 0
    candidates_total: int = 0
    provenance: Provenance = Provenance.MEASURED
    math_type: int = 0
    deterministic: bool = True
    sequence: int = 0

    @property
    def direction(self) -> str:
        """`"forward"`, `"backward_data"` or `"backward_filter"`."""
        return self.key.partition("|")[0]

    @property
    def gain(self) -> float:
        """How many times faster than the library's default; 1.0 when it was not measured."""
        return self.default_seconds / self.time_seconds if self.time_seconds > 0 else 1.0

    @property
    def complete(self) -> bool:
        """Whether every candidate was tried."""
        return self.candidates_tried >= self.candidates_total

    def to_c(self) -> Any:
        """A new `tc_record *`.

        Raises:
            ValueError: a text is too long for its field or holds a NUL.
        """
        c = ffi.new("tc_record *")
        for name in _TEXTS:
            value = getattr(self, name).encode()
            field = getattr(c, name)
            if len(value) >= ffi.sizeof(field) or b"\0" in value:
                raise ValueError(
                    f"A record's {name} holds at most {ffi.sizeof(field) - 1} bytes and no NUL. "
                    f"Received {len(value)} bytes: {getattr(self, name)[:80]!r}"
                )
            ffi.memmove(field, value, len(value))
        for name in _NUMBERS:
            setattr(c, name, getattr(self, name))
        return c

    @classmethod
    def from_c(cls, c: Any) -> Record:
        """The record in a `tc_record`."""
        fields: dict[str, Any] = {name: text(getattr(c, name)) for name in _TEXTS}
        fields |= {name: getattr(c, name) for name in _NUMBERS}
        fields["provenance"] = Provenance(fields["provenance"])
        fields["deterministic"] = bool(fields["deterministic"])
        return cls(**fields, sequence=c.sequence)


_TEXTS = ("key", "environment", "algorithm", "runner_up")
_NUMBERS = (
    "workspace_bytes",
    "created",
    "time_seconds",
    "default_seconds",
    "spread",
    "tuning_seconds",
    "candidates_tried",
    "candidates_total",
    "provenance",
    "math_type",
    "deterministic",
)
