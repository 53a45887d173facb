"""Statuses of the C core as exceptions, and its warnings as Python warnings."""

from __future__ import annotations

import warnings

from keras_tunedconv.core.library import ffi, lib, text


class TunedConvError(RuntimeError):
    """A call into the core failed; the message says what was expected, received, and how to go on."""


class InvalidArgumentError(TunedConvError, ValueError):
    """A malformed descriptor, key, record or option."""


class UnsupportedError(TunedConvError, NotImplementedError):
    """No engine has an algorithm for this convolution."""


class NotFoundError(TunedConvError, LookupError):
    """No such algorithm, engine or stored entry."""


class OutOfMemoryError(TunedConvError, MemoryError):
    """The workspace or a library's own memory could not be had."""


class EngineFailureError(TunedConvError):
    """The library under an engine reported an error."""


class DeviceFailureError(TunedConvError):
    """The device's context is lost; the process has to be restarted."""


class UnavailableError(TunedConvError):
    """A library is missing, too old or not opened."""


class TuningWarning(UserWarning):
    """Something about tuning was skipped or replaced; training and weights are not affected."""


_EXCEPTIONS: dict[str, type[TunedConvError]] = {
    "TC_INVALID_ARGUMENT": InvalidArgumentError,
    "TC_UNSUPPORTED": UnsupportedError,
    "TC_NOT_FOUND": NotFoundError,
    "TC_OUT_OF_MEMORY": OutOfMemoryError,
    "TC_ENGINE_FAILURE": EngineFailureError,
    "TC_DEVICE_FAILURE": DeviceFailureError,
    "TC_UNAVAILABLE": UnavailableError,
}


def check(status: int) -> None:
    """Raise the exception that belongs to a status of the core; the only place where codes are mapped."""
    if status == lib.TC_OK:
        return
    by_status = {getattr(lib, name): exception for name, exception in _EXCEPTIONS.items()}
    message = text(lib.tc_last_error()) or text(lib.tc_status_name(status))
    raise by_status.get(status, TunedConvError)(message)


def emit_pending_warnings(stacklevel: int = 2) -> None:
    """Turn what the core has queued since the last call into `TuningWarning`s."""
    if lib is None:
        return
    buffer = ffi.new("char[]", lib.TC_MESSAGE_SIZE)
    while lib.tc_take_warning(buffer, lib.TC_MESSAGE_SIZE):
        warnings.warn(text(buffer), TuningWarning, stacklevel=stacklevel + 1)
