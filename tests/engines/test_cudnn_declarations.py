"""The engine's own declarations of cuDNN and CUDA against the real headers, where they are found."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

SOURCES = Path(__file__).resolve().parents[2] / "cffi_build" / "engines" / "cudnn"
_CUDNN_HEADERS = ("cudnn_graph.h", "cudnn_graph_v9.h")


def _wheel_folders() -> Iterator[Path]:
    for name in ("nvidia-cudnn-cu13", "nvidia-cudnn-cu12"):
        try:
            files = metadata.files(name) or []
        except metadata.PackageNotFoundError:
            continue
        for file in files:
            if file.name in _CUDNN_HEADERS:
                yield Path(str(file.locate())).resolve().parent


def _header(names: tuple[str, ...], variable: str, folders: list[Path]) -> str:
    explicit = os.environ.get(variable)
    for folder in [Path(explicit)] if explicit else folders:
        for name in names:
            if (folder / name).is_file():
                return (folder / name).read_text(errors="replace")
    pytest.skip(f"no {names[0]} here; {variable} may name a folder with it")


def without_comments(text: str) -> str:
    return re.sub(r"/\*.*?\*/|//[^\n]*", " ", text, flags=re.DOTALL)


@pytest.fixture(scope="module")
def cudnn_header() -> str:
    folders = [*_wheel_folders(), Path("/usr/include"), Path("/usr/include/x86_64-linux-gnu")]
    return without_comments(_header(_CUDNN_HEADERS, "KERAS_TUNEDCONV_CUDNN_INCLUDE_DIR", folders))


@pytest.fixture(scope="module")
def cuda_header() -> str:
    folder = Path("/usr/local/cuda/include")
    return without_comments(_header(("cuda.h",), "KERAS_TUNEDCONV_CUDA_INCLUDE_DIR", [folder]))


def own_enumerators(name: str) -> dict[str, int]:
    text = without_comments((SOURCES / name).read_text())
    return {key: int(value) for key, value in re.findall(r"\b(CU\w+) = (-?\d+)", text)}


def real_enumerators(text: str) -> dict[str, int]:
    """Values are numbers or names of earlier ones; between name and value a macro may stand."""
    values: dict[str, int] = {}
    for key, value in re.findall(r"\b(CU[A-Z0-9_a-z]+)\s*(?:\w+\s*)?=\s*(-?\w+)", text):
        if re.fullmatch(r"-?\d+|0x[0-9a-fA-F]+", value):
            values[key] = int(value, 0)
        elif value in values:
            values[key] = values[value]
    return values


def _parameter_type(parameter: str) -> str:
    """`const void *arrayOfElements` is `const void *`; `cudnnHandle_t handle` is `cudnnHandle_t`."""
    stars = "*" * parameter.count("*")
    words = re.findall(r"\w+", parameter)
    if words == ["void"] and not stars:
        return ""
    known = {"const", "unsigned", "int", "char", "void", "float", "size_t", "int64_t", "struct"}
    if len(words) > 1 and words[-1] not in known and not words[-1].endswith("_t"):
        follows_type = any(w not in {"const", "struct"} for w in words[:-1])
        words = words[:-1] if follows_type else words
    constant = ["const"] if "const" in words else []
    rest = [w for w in words if w not in {"const", "struct"}]
    return " ".join(constant + rest) + stars


def signature(result: str, parameters: str) -> tuple[str, ...]:
    """The types of a function, result first, without names and attributes."""
    kept = re.sub(r"\b(CUDAAPI|CUDNNWINAPI|CUDNN_DEPRECATED|extern)\b", " ", result)
    return (
        _parameter_type(kept + " _name"),
        *(kind for kind in (_parameter_type(p) for p in parameters.split(",")) if kind),
    )


def own_functions(name: str) -> dict[str, tuple[str, ...]]:
    text = (SOURCES / name).read_text().replace("\\\n", " ")
    found = re.findall(r"\bF\(([^,()]+), (\w+), \(([^()]*)\)\)", text)
    return {function: signature(result, parameters) for result, function, parameters in found}


def real_signatures(text: str, name: str) -> set[tuple[str, ...]]:
    """What stands before the name, back to the end of the declaration before, is the result's type."""
    found = set()
    for match in re.finditer(rf"\b{name}\s*\(([^()]*)\)\s*;", text):
        before = re.split(r"[;{}]|\n\s*#[^\n]*\n|\n\s*\n", text[max(0, match.start() - 200) : match.start()])
        found.add(signature(before[-1], match[1]))
    return found


def test_enumerators_of_cudnn(cudnn_header: str) -> None:
    own, real = own_enumerators("cudnn_api.h"), real_enumerators(cudnn_header)
    assert len(own) > 90
    # Written without a value, as the second of two.
    own.pop("CUDNN_CROSS_CORRELATION")
    assert re.search(r"CUDNN_CONVOLUTION\s*=\s*0\s*,\s*CUDNN_CROSS_CORRELATION\s*=\s*1", cudnn_header)
    assert {name: real.get(name) for name in own} == own


def test_functions_of_cudnn(cudnn_header: str) -> None:
    own = own_functions("cudnn_api.h")
    assert len(own) == 13
    assert {name: real_signatures(cudnn_header, name) for name in own} == {n: {s} for n, s in own.items()}


def test_enumerators_of_cuda(cuda_header: str) -> None:
    own, real = own_enumerators("cuda_api.h"), real_enumerators(cuda_header)
    assert len(own) > 20
    assert {name: real.get(name) for name in own} == own


def test_functions_of_cuda(cuda_header: str) -> None:
    own = own_functions("cuda_api.h")
    assert len(own) > 25
    for name, types in own.items():
        plain = name.removesuffix("_v2")
        assert types in real_signatures(cuda_header, plain), (name, types)
        renamed = re.search(rf"#define\s+{plain}\s+(?:__CUDA_API_PT[SD][SZ]\()?(\w+)", cuda_header)
        # CUDA 12.8's new name of this one is not in older drivers, and the old one does the same.
        if plain != "cuEventElapsedTime":
            assert name == (renamed[1] if renamed else plain)
