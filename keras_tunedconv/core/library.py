"""The compiled core, or the reason why it is not there.

`lib` is `None` where the extension was not built (a platform other than Linux x86-64) or cannot be
loaded; everything above then falls back to Keras's own convolution.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

_reason: str | None = None

try:
    from keras_tunedconv import _core
except ImportError as error:
    ffi: Any = None
    lib: Any = None
    _reason = (
        f"the compiled core keras_tunedconv._core could not be imported ({error}); "
        "it is built on Linux x86-64 by `pip install keras-tunedconv`"
    )
else:
    ffi = _core.ffi
    lib = _core.lib


def unavailable_reason() -> str | None:
    """Why the compiled core is missing, or `None` when it is there."""
    return _reason


def native_folder() -> Path:
    """The folder with the headers and the sources of bridges built at first use.

    It lies beside the extension, which in an editable install is not where the Python files are.

    Raises:
        RuntimeError: the compiled core is not there.
    """
    if lib is None:
        raise RuntimeError(_reason)
    return Path(_core.__file__).resolve().parent / "_native"


def text(buffer: Any) -> str:
    """A NUL-terminated C string as `str`."""
    return str(ffi.string(buffer).decode("utf-8", "replace"))
