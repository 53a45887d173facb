"""Compile the CUDA sources beside this file to PTX and write it as C headers.

    python generate_ptx.py          # rewrite conversions_ptx.h (needs nvcc)
    python generate_ptx.py --check  # say which headers are out of date; exit status 1 if any

The headers are checked in, so that building the package needs no CUDA. The driver compiles PTX for the
GPU it finds; the version and target lines are lowered to the oldest that the kernels need, and ptxas
confirms that they suffice, so that drivers and GPUs older than the compiler are served too.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
_OLDEST_OF_COMPILER = 75  # compute capability that nvcc 13 still compiles for


class Source(NamedTuple):
    """A CUDA source, and the oldest PTX version and GPU that its kernels need.

    Each variant is a PTX text of its own, `tc_<name>_<variant>_ptx`, compiled with its macros: the driver
    compiles a whole text, so kernels that no convolution needs together are better apart.
    """

    ptx_version: str = "6.3"
    architecture: int = 70
    variants: tuple[tuple[str, tuple[str, ...]], ...] = (("", ()),)


_DTYPES = {"f16": "half_element", "bf16": "bfloat16_element"}
Variants = tuple[tuple[str, tuple[str, ...]], ...]


def _variant(name: str, prefix: str, **macros: object) -> tuple[str, tuple[str, ...]]:
    return name, tuple(f"TC_{prefix}{macro}={value}" for macro, value in macros.items())


def _grouped() -> Variants:
    """Window, step, classes and width of the kernels of grouped.cu."""
    shapes = [(3, 1, 1, 8), (3, 1, 1, 16), (3, 1, 1, 32), (5, 1, 1, 8), (7, 1, 1, 8)]
    shapes += [(3, 2, 1, 8), (3, 2, 1, 16), (3, 2, 1, 32), (5, 2, 1, 8), (7, 2, 1, 8)]
    shapes += [(2, 1, 2, 8), (2, 1, 2, 16), (2, 1, 2, 32), (3, 1, 2, 8), (4, 1, 2, 8)]
    return tuple(
        _variant(
            "_".join(map(str, (dtype, *shape))),
            "",
            NAME=dtype,
            ELEMENT=element,
            **dict(zip(("WINDOW", "STEP", "CLASSES", "WIDE"), shape, strict=True)),
        )
        for shape in shapes
        for dtype, element in _DTYPES.items()
    )


def _grouped_filter() -> Variants:
    """Size, stride and kind of groups of the kernels of grouped_filter.cu, with what adds the slices."""
    kinds = [(size, stride, 0) for size in (3, 5, 7) for stride in (1, 2)]
    kinds += [(3, stride, group) for stride in (1, 2) for group in (16, 32)]
    names = {kind: f"{kind[0]}_{kind[1]}" + (f"_{kind[2]}" if kind[2] else "") for kind in kinds}
    return tuple(
        _variant(
            f"{dtype}_{name}",
            "GROUPED_FILTER_",
            NAME=f"{dtype}_{name}",
            DTYPE=dtype,
            ELEMENT=element,
            SIZE=size,
            STRIDE=stride,
            OUTPUTS=group // 16,
        )
        for (size, stride, group), name in names.items()
        for dtype, element in _DTYPES.items()
    )


def _few_channels() -> Variants:
    """Sizes as in TC_FEW_CHANNELS_SIZES of few_channels_map.h."""
    sizes = re.findall(r"OF\((\d+), (\d+)\)", (HERE / "direct/few_channels_map.h").read_text())
    return tuple(
        _variant(
            f"{dtype}_{rows}_{units}",
            "VARIANT_",
            NAME=dtype,
            ELEMENT=element,
            ROWS=rows,
            UNITS=units,
        )
        for rows, units in sizes
        for dtype, element in _DTYPES.items()
    )


def _few_channels_filter() -> Variants:
    """Sizes as in TC_FEW_CHANNELS_FILTER_SIZES of few_channels_map.h."""
    text = (HERE / "direct/few_channels_map.h").read_text()
    return tuple(
        _variant(
            f"{dtype}_{units}_{rows}_{tiles}",
            "VARIANT_",
            NAME=dtype,
            ELEMENT=element,
            UNITS=units,
            ROWS=rows,
            TILES=tiles,
        )
        for units, rows, tiles in re.findall(r"WITH\((\d+), (\d+), (\d+)\)", text)
        for dtype, element in _DTYPES.items()
    )


SOURCES = {
    "conversions": Source(),
    "direct/depthwise": Source(),
    "direct/grouped": Source("7.0", 80, _grouped()),
    "direct/grouped_filter": Source("7.0", 80, _grouped_filter()),
    "direct/few_channels": Source("7.0", 80, _few_channels()),
    "direct/few_channels_filter": Source("7.0", 80, _few_channels_filter()),
}


def digest(name: str) -> str:
    """Hash of a source and of what it includes: the header carries that of the source it was made from."""
    pending, parts = [HERE / f"{name}.cu"], dict[Path, bytes]()
    while pending:
        file = pending.pop()
        if file not in parts:
            parts[file] = file.read_bytes()
            included = re.findall(r'#include "([^"]+)"', parts[file].decode())
            pending += [file.parent / other for other in included]
    return hashlib.sha256(b"".join(parts.values())).hexdigest()


def compiled(name: str, macros: tuple[str, ...]) -> str:
    """The PTX of a source, lowered, without comments."""
    source = SOURCES[name]
    with tempfile.TemporaryDirectory() as folder:
        ptx = Path(folder, "kernel.ptx")
        compiler = max(source.architecture, _OLDEST_OF_COMPILER)
        target = ("-ptx", f"-arch=compute_{compiler}", "-O3")
        command = ["nvcc", *target, "-o", str(ptx), str(HERE / f"{name}.cu")]
        subprocess.run([*command, *(f"-D{macro}" for macro in macros)], check=True)
        text = re.sub(r"//[^\n]*", "", ptx.read_text())
        text = re.sub(r"(?m)^\.version .*$", f".version {source.ptx_version}", text)
        text = re.sub(r"(?m)^\.target .*$", f".target sm_{source.architecture}", text)
        # A hint to newer assemblers, about vector loads of which not all is used.
        text = re.sub(r'(?m)^\s*\.pragma "used_bytes_mask [^"]*";$', "", text)
        text = "\n".join(line.strip() for line in text.splitlines() if line.strip())
        ptx.write_text(text + "\n")
        for architecture in (f"sm_{compiler}", "sm_90"):
            subprocess.run(["ptxas", f"-arch={architecture}", str(ptx), "-o", "/dev/null"], check=True)
    return text


def header(name: str) -> str:
    """The C header of a source."""
    stem = Path(name).name
    parts = [f"/* Generated by generate_ptx.py from {stem}.cu. Source: {digest(name)} */\n"]
    for variant, macros in SOURCES[name].variants:
        escaped = compiled(name, macros).replace('"', '\\"').splitlines()
        lines = "\n".join(f'    "{line}\\n"' for line in escaped)
        symbol = "_".join(part for part in ("tc", stem, variant, "ptx") if part)
        parts.append(f"static const char {symbol}[] =\n{lines};\n")
    return "".join(parts)


def is_current(name: str) -> bool:
    """Whether the header was made from the source as it is."""
    path = HERE / f"{name}_ptx.h"
    return path.exists() and f"Source: {digest(name)} " in path.read_text().partition("\n")[0]


def main() -> int:
    if "--check" in sys.argv[1:]:
        stale = [name for name in SOURCES if not is_current(name)]
        for name in stale:
            print(f"{name}_ptx.h is not made from {name}.cu as it is: run generate_ptx.py")
        return 1 if stale else 0
    for name in SOURCES:
        (HERE / f"{name}_ptx.h").write_text(header(name))
    return 0


if __name__ == "__main__":
    sys.exit(main())
