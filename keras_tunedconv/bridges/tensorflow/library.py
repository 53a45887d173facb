"""The op library in this process: found or compiled, loaded, and bound to the core."""

from __future__ import annotations

import ctypes
import threading
from pathlib import Path
from typing import Any

import tensorflow as tf

from keras_tunedconv.bridges.tensorflow.build import build, has_xla
from keras_tunedconv.bridges.tensorflow.compiler import BuildError
from keras_tunedconv.core.library import ffi, lib

_lock = threading.Lock()
_library: OpLibrary | None = None
_failure: BuildError | None = None


class OpLibrary:
    """The loaded library.

    Attributes:
        ops: The Python wrappers that TensorFlow makes of the ops.
        xla: Whether the ops can be compiled by XLA.
    """

    def __init__(self, path: Path) -> None:
        try:
            self.ops: Any = tf.load_op_library(str(path))
        except (tf.errors.OpError, RuntimeError, OSError) as error:
            raise BuildError(
                f"the op library {path} could not be loaded ({error})",
                "Build it again with `keras-tunedconv build --force`.",
            ) from error
        loaded = ctypes.CDLL(str(path))
        self.xla = has_xla(path)
        for name in ("tunedconv_tensorflow_bind", *(["tunedconv_tensorflow_bind_xla"] if self.xla else [])):
            bind = loaded[name]
            bind.argtypes, bind.restype = [ctypes.c_void_p], ctypes.c_char_p
            complaint = bind(int(ffi.cast("uintptr_t", lib.tc_get_api())))
            if complaint is not None:
                raise BuildError(
                    f"the op library {path} could not be bound ({complaint.decode()})",
                    "Build it again with `keras-tunedconv build --force`.",
                )


def op_library() -> OpLibrary:
    """The library of this process, compiled at the first call if need be.

    Raises:
        BuildError: it could not be compiled, loaded or bound. The answer is kept for the process.
    """
    global _library, _failure
    if _library is not None:
        return _library
    with _lock:
        if _library is None:
            if _failure is not None:
                raise _failure
            try:
                _library = OpLibrary(build())
            except BuildError as error:
                _failure = error
                raise
    return _library
