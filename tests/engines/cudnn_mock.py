"""The mock driver and the mock cuDNN: building them, and telling them what to answer."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

_NATIVE = Path(__file__).resolve().parents[1] / "native"
_HEADERS = Path(__file__).resolve().parents[2] / "cffi_build" / "engines" / "cudnn"


def can_build() -> bool:
    """Whether the compilers are there."""
    return bool(shutil.which("cc") and shutil.which("c++"))


def build(folder: Path, flags: Sequence[str] = ()) -> None:
    """Compile the two libraries into a folder, under the names that the engine looks for."""
    common = ["-O1", "-g", "-shared", "-fPIC", f"-I{_HEADERS}", *flags]
    cuda, cudnn = folder / "libcuda.so.1", folder / "libcudnn.so.9"
    subprocess.run(
        ["c++", "-std=c++17", "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas", *common,
         "-Wl,-soname,libcuda.so.1", "-o", str(cuda), str(_NATIVE / "mock_cuda.cc")],
        check=True,
    )  # fmt: skip
    subprocess.run(
        ["cc", "-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", *common,
         "-Wl,-soname,libcudnn.so.9", "-o", str(cudnn), str(_NATIVE / "mock_cudnn.c"), str(cuda), "-lm"],
        check=True,
    )  # fmt: skip


class Mock:
    """Both libraries in this process, which found libcuda.so.1 through LD_LIBRARY_PATH."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)
        self.cudnn_path = self.folder / "libcudnn.so.9"
        self._cuda = ctypes.CDLL("libcuda.so.1")
        self._cudnn = ctypes.CDLL(str(self.cudnn_path))
        for function in (self._cudnn.mock_cudnn_count, self._cuda.mock_launches, self._cuda.mock_depth):
            function.restype = ctypes.c_long

    def reset(self) -> None:
        """Back to two devices, a good library, an open engine and an empty registry."""
        from keras_tunedconv.core import engines, registry
        from keras_tunedconv.core.errors import emit_pending_warnings
        from keras_tunedconv.core.library import lib

        if lib.tc_engine_is_open(b"cudnn"):
            lib.tc_engine_close(b"cudnn")
        registry.clear()
        self.set_cuda(reset=1)
        self.set_cudnn(version=92800, cudart=12090, fail_execute=0, fail_create=0, fail_plan=0)
        self.set_cudnn(silent_heuristics=0)
        for name in ("KERAS_TUNEDCONV_CUDNN", "CUDA_VISIBLE_DEVICES"):
            os.environ.pop(name, None)
        emit_pending_warnings()
        engines.open_engine("cudnn", [self.cudnn_path])

    def close(self) -> None:
        """Close the engine, for scenarios about opening it."""
        from keras_tunedconv.core.errors import check
        from keras_tunedconv.core.library import lib

        check(lib.tc_engine_close(b"cudnn"))

    def set_cuda(self, **settings: object) -> None:
        """Settings of mock_cuda.cc, for example `failing="cuLaunchKernel=700"`."""
        for name, value in settings.items():
            self._cuda.mock_set(name.encode(), str(value).encode())

    def set_cudnn(self, **settings: int) -> None:
        """Settings of mock_cudnn.c."""
        for name, value in settings.items():
            self._cudnn.mock_cudnn_set(name.encode(), ctypes.c_long(value))

    def count(self, what: str) -> int:
        """How many `"handles"` or `"plans"` live, or how many `"packs"` and `"executions"` there were."""
        return int(self._cudnn.mock_cudnn_count(what.encode()))

    @property
    def launches(self) -> int:
        """Kernels launched by the engine itself so far."""
        return int(self._cuda.mock_launches())

    @property
    def depth(self) -> int:
        """Contexts that this thread pushed and did not pop."""
        return int(self._cuda.mock_depth())
