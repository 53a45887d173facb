"""Results as text: milliseconds and ratios in aligned columns or in Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from keras_tunedconv.bench.conv import ConvResult

_CONTENDERS = ("stock", "framework", "tuned", "engine", "engine_default")
_RATIOS = ("stock_over_tuned", "framework_over_tuned", "tuned_over_engine")
HEADERS = (
    "problem",
    "direction",
    "mode",
    *(f"{name} ms" for name in _CONTENDERS),
    "stock/tuned",
    "framework/tuned",
    "tuned/engine",
    "difference",
    "engine's algorithm",
)


def number(value: float | None) -> str:
    """Three significant digits; `-` for what was not measured."""
    if value is None:
        return "-"
    if value >= 1000:
        return f"{value:.0f}"
    return f"{value:#.3g}".rstrip(".")


def row(result: ConvResult) -> list[str]:
    """One result as cells under `HEADERS`."""
    return [
        result.problem,
        result.direction,
        result.mode,
        *(number(result.milliseconds.get(name)) for name in _CONTENDERS),
        *(number(getattr(result, name)) for name in _RATIOS),
        "-" if result.difference is None else f"{result.difference:.1e}",
        result.algorithm or "-",
    ]


def markdown(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table whose columns are aligned in the source too."""
    cells = [[str(cell).replace("|", "\\|") for cell in line] for line in (headers, *rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(headers))]
    padded = [[cell.ljust(width) for cell, width in zip(line, widths, strict=True)] for line in cells]
    ruler = ["-" * width for width in widths]
    return "\n".join("| " + " | ".join(line) + " |" for line in [padded[0], ruler, *padded[1:]])


def drop_empty(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> tuple[list[str], list[list[str]]]:
    """The table without columns in which no row has a value."""
    kept = [i for i in range(len(headers)) if any(line[i] != "-" for line in rows)]
    return [headers[i] for i in kept], [[line[i] for i in kept] for line in rows]
