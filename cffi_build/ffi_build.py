"""The cffi module: reads its declarations out of tunedconv.h, so that there is one statement of them."""

from pathlib import Path

from cffi import FFI

_HEADER = Path(__file__).parent / "include" / "tunedconv.h"
_DECLARATIONS = _HEADER.read_text().split("/* CFFI-BEGIN */")[1].split("/* CFFI-END */")[0]

ffibuilder = FFI()
ffibuilder.cdef(_DECLARATIONS)
ffibuilder.set_source("keras_tunedconv._core", '#include "tunedconv.h"', py_limited_api=True)
