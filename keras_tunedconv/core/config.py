"""Settings of the tuner, kept in the core so that compiled steps see them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from keras_tunedconv.core.errors import InvalidArgumentError, check
from keras_tunedconv.core.library import ffi, lib

MODES = ("search", "heuristic", "replay", "refresh")
BATCH_POLICIES = ("exact", "nearest")

# Name here -> name of the field in tc_config.
_FIELDS = {
    "mode": "mode",
    "verify": "verify",
    "resume": "resume",
    "minimum_runs": "minimum_runs",
    "key_budget": "key_budget_seconds",
    "process_budget": "process_budget_seconds",
    "margin": "margin",
    "drop_ratio": "drop_ratio",
    "workspace_limit": "workspace_limit_bytes",
    "batch_policy": "batch_policy",
    "copies_before_measuring": "copies_before_measuring",
    "maximum_sizes": "maximum_sizes",
    "record_candidates": "record_candidates",
}
# Settings that are one of several words -> those, at the position of their enumerator.
_CHOICES = {"mode": MODES, "batch_policy": BATCH_POLICIES}
_TYPES: dict[str, type] = {
    "verify": bool,
    "resume": bool,
    "minimum_runs": int,
    "key_budget": float,
    "process_budget": float,
    "margin": float,
    "drop_ratio": float,
    "workspace_limit": int,
    "copies_before_measuring": int,
    "maximum_sizes": int,
    "record_candidates": bool,
}


class Config:
    """Settings of the tuner, one set a process: `keras_tunedconv.config`.

    Each can also be set before start by an environment variable, `KERAS_TUNEDCONV_` and the name in
    capitals (`KERAS_TUNEDCONV_TUNE=0`, `KERAS_TUNEDCONV_KEY_BUDGET=0.5`).

    Attributes:
        tune: `False` measures nothing: stored entries are used, else the library's default.
            The same as `mode="heuristic"`.
        mode: `"search"` (use what is stored, measure what is not), `"heuristic"` (as `tune=False`),
            `"replay"` (a key that is not stored is an error) or `"refresh"` (measure again and keep the
            better).
        key_budget: Seconds after which measuring one key stops.
        process_budget: Seconds of measuring after which this process measures no more.
        margin: Share by which an algorithm must beat the default to be chosen, `0.03` for 3 %.
        drop_ratio: A candidate slower than this times the best so far is dropped after its first run.
        minimum_runs: Timed samples of each candidate that stays in the race.
        workspace_limit: Most bytes of workspace an algorithm may use.
        verify: Whether each candidate's output is compared with the default's before it may win.
        batch_policy: What happens to a batch or image size that is not stored where others of the same
            convolution are, in mode `"search"`. `"nearest"`: it takes the nearest one's algorithm, marked as
            copied, and is measured when it comes back often, so that a short last batch or a validation
            never waits. `"exact"`: each is measured at first sight.
        copies_before_measuring: Runs of a size with a copied algorithm before it is measured.
        maximum_sizes: How many image sizes of one convolution are measured at first sight, at least 1;
            further ones take the algorithm of the nearest by pixels.
        record_candidates: Whether every candidate of a search is kept, with its samples, workspace and why it
            was dropped (`keras_tunedconv.core.trials`); databases store it.
        resume: Whether keys whose stored search was cut short by a budget go on being measured.

    Example:

    ```python
    import keras_tunedconv

    keras_tunedconv.config.key_budget = 0.5
    with keras_tunedconv.config.override(tune=False):
        model.predict(x)
    ```
    """

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        if name == "tune":
            return self.mode not in ("heuristic", "replay")
        if name not in _FIELDS:
            raise AttributeError(f"There is no setting {name!r}. Settings: tune, {', '.join(_FIELDS)}.")
        value = getattr(_read(), _FIELDS[name])
        return _CHOICES[name][value] if name in _CHOICES else _TYPES[name](value)

    def __setattr__(self, name: str, value: Any) -> None:
        self.update(**{name: value})

    def update(self, **settings: Any) -> None:
        """Change several settings at once; all of them or none.

        Raises:
            AttributeError: there is no such setting; the message lists those there are.
            ValueError: a value is out of range; the message says what is allowed.
        """
        c = _read()
        for name, value in settings.items():
            if name == "tune":
                name, value = "mode", "search" if _converted(name, bool, value) else "heuristic"
            if name not in _FIELDS:
                raise AttributeError(f"There is no setting {name!r}. Settings: tune, {', '.join(_FIELDS)}.")
            if name in _CHOICES:
                if value not in _CHOICES[name]:
                    raise ValueError(f"{name} must be one of {_CHOICES[name]}. Received: {name}={value!r}")
                value = _CHOICES[name].index(value)
            else:
                value = _converted(name, _TYPES[name], value)
            try:
                setattr(c, _FIELDS[name], value)
            except OverflowError:
                raise ValueError(f"{name} is out of range. Received: {name}={value!r}") from None
        if lib is not None:
            _set(c)

    @contextmanager
    def override(self, **settings: Any) -> Iterator[None]:
        """Settings for the length of a `with` block, in every thread."""
        before = _read()
        self.update(**settings)
        try:
            yield
        finally:
            if lib is not None:
                check(lib.tc_set_config(before))

    def __dir__(self) -> list[str]:
        # Copying and saving code reads every name; only methods are offered to it.
        return ["override", "update"]

    def __repr__(self) -> str:
        if lib is None:
            return "<keras_tunedconv.config (no compiled core)>"
        settings = ", ".join(f"{name}={getattr(self, name)!r}" for name in _FIELDS)
        return f"<keras_tunedconv.config {settings}>"


class _Defaults:
    """What is read where there is no compiled core, so that scripts that set options still run."""

    mode = MODES.index("heuristic")
    verify, resume, minimum_runs = 1, 0, 5
    key_budget_seconds, process_budget_seconds = 2.0, 60.0
    margin, drop_ratio = 0.03, 2.0
    workspace_limit_bytes = 1 << 30
    record_candidates = 0
    batch_policy, copies_before_measuring, maximum_sizes = BATCH_POLICIES.index("nearest"), 20, 1


def _converted(name: str, wanted: type, value: Any) -> Any:
    """The value as a bool, int or float; what would only become one by chance ("no", 2.5) is refused."""
    try:
        converted = wanted(value)
        # Text comes out of the environment, whose words for bools are known by now.
        fits = wanted is not bool if isinstance(value, str) else wanted is float or converted == value
        if fits:
            return converted
    except (TypeError, ValueError, OverflowError):
        pass
    expected = {bool: "True or False", int: "an integer", float: "a number"}[wanted]
    raise ValueError(f"{name} must be {expected}. Received: {name}={value!r}")


def _set(c: Any) -> None:
    try:
        check(lib.tc_set_config(c))
    except InvalidArgumentError as error:
        field, _, rest = str(error).partition(" ")  # the core's name of the setting
        settings = {each: name for name, each in _FIELDS.items()}
        raise InvalidArgumentError(f"{settings.get(field, field)} {rest}") from None


def _read() -> Any:
    if lib is None:
        return _Defaults()
    c = ffi.new("tc_config *")
    lib.tc_get_config(c)
    return c


def _from_environment(settings: Config) -> None:
    for name in ("tune", *_FIELDS):
        text = os.environ.get("KERAS_TUNEDCONV_" + name.upper())
        if text is None:
            continue
        value: Any = text
        if name == "tune" or _TYPES.get(name) is bool:
            if text.lower() not in ("0", "1", "false", "true"):
                raise ValueError(f"KERAS_TUNEDCONV_{name.upper()} must be 0 or 1. Received: {text!r}")
            value = text.lower() in ("1", "true")
        settings.update(**{name: value})


config = Config()
_from_environment(config)
