"""The cffi extension, as the type checker sees it; its functions are described in tunedconv.h."""

from typing import Any

ffi: Any
lib: Any
