"""A report as a picture, drawn without a display. Takes matplotlib, which only this module imports."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from keras_tunedconv.core.descriptor import DIRECTIONS
from keras_tunedconv.reporting.summary import LayerTimes, by_direction, by_layer, largest
from keras_tunedconv.tuning.describe import format_seconds

if TYPE_CHECKING:
    from keras_tunedconv.reporting.table import Report

try:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, MaxNLocator
except ImportError as error:
    raise ImportError(
        f"Pictures need matplotlib ({error}): pip install 'keras-tunedconv[report]', or save an .html file."
    ) from error

# Told apart by those who see red and green alike, and in print.
COLOURS = {"forward": "#3b76c4", "backward_data": "#e0912f", "backward_filter": "#4b9b8e"}
MEASURING = "#7a5ea8"
TEXT, SOFT, DEFAULT = "#1c2733", "#5d6b7a", "#8d98a5"
_MOST_LAYERS = 60
_DPI = 150
_WIDTH = 11.0
_LINE_HEIGHT = 0.24


def save_report(report: Report, path: Path) -> None:
    """Draw time by layer and direction, tuned and not, and where the seconds of measuring went.

    Args:
        report: The report.
        path: The `.png` file.
    """
    layers = by_layer(report.rows, report.stepped)
    timed, measured = (
        [each for each in layers if each.total > 0],
        [each for each in layers if each.tuning_seconds > 0],
    )
    figure, axes = _panels(report, min(max(len(timed), len(measured), 4), _MOST_LAYERS))
    _draw_directions(axes["directions"], timed)
    _draw_layers(axes["layers"], *largest(timed, _MOST_LAYERS, lambda each: each.default_total))
    _draw_first_step(axes["first"], report)
    _draw_measuring(axes["measuring"], *largest(measured, _MOST_LAYERS, lambda each: each.tuning_seconds))
    write(figure, path)


def new_figure(height: float) -> Any:
    """An empty figure of the width of all pictures, in inches."""
    figure = Figure(figsize=(_WIDTH, height), dpi=_DPI, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def write(figure: Any, path: Path) -> None:
    """Write a figure as PNG."""
    figure.savefig(path, format="png", facecolor="white")


def plain(axis: Any, title: str) -> None:
    """Give an axis its title, and seconds along its horizontal side."""
    axis.set_title(title, loc="left", fontsize=10, color=TEXT, fontweight="bold")
    axis.xaxis.set_major_locator(MaxNLocator(6))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda seconds, _: format_seconds(seconds)))
    axis.tick_params(labelsize=8, colors=SOFT, length=0)
    axis.set_axisbelow(True)
    axis.grid(axis="x", color="#e4e8ed", linewidth=0.8)
    for side in ("top", "right", "left"):
        axis.spines[side].set_visible(False)
    axis.spines["bottom"].set_color("#c4ccd5")


def write_heading(figure: Any, title: str, environment: str) -> None:
    """A title at the left, and beneath it where it was measured."""
    heading = f"{title}\n\n"  # the lines beneath are the environment's
    figure.suptitle(heading, x=0.01, ha="left", fontsize=13, color=TEXT, fontweight="bold")
    top = 1 - 0.42 / figure.get_figheight()
    figure.text(0.01, top, environment, fontsize=7.5, color=SOFT, va="top")


def _panels(report: Report, lines: int) -> tuple[Any, dict[str, Any]]:
    heights = [3.4 * _LINE_HEIGHT + 0.5, (lines + 1.5) * _LINE_HEIGHT + 0.5]
    figure = new_figure(sum(heights) + 1.2)
    write_heading(figure, report.title, "".join(report.environments()[:1]))
    axes: dict[str, Any] = figure.subplot_mosaic(
        [["directions", "first"], ["layers", "measuring"]], height_ratios=heights, width_ratios=[1.35, 1]
    )
    return figure, axes


def _draw_directions(axis: Any, timed: Sequence[LayerTimes]) -> None:
    rows = [row for row in by_direction(timed) if row[1] > 0]
    for i, (direction, seconds, default) in enumerate(rows):
        axis.barh(i, seconds, height=0.62, color=COLOURS[direction])
        _mark_default(axis, i, default)
        write_at(
            axis, max(seconds, default), i, f"{format_seconds(seconds)}, {default / seconds:.2f}x faster"
        )
    name_lines(axis, [direction.replace("_", " ") for direction, _, _ in rows])
    plain(axis, "Convolutions of one step, by direction  ( | the library's own choice)")


def _draw_layers(axis: Any, timed: Sequence[LayerTimes], others: float) -> None:
    for i, layer in enumerate(timed):
        left = 0.0
        for direction in DIRECTIONS:
            seconds = layer.seconds.get(direction, 0.0)
            axis.barh(i, seconds, left=left, height=0.62, color=COLOURS[direction])
            left += seconds
        _mark_default(axis, i, layer.default_total)
        write_at(axis, max(left, layer.default_total), i, f"{layer.default_total / left:.2f}x")
    name_lines(axis, [layer.label for layer in timed])
    plain(axis, f"The same by layer{_left_out(others)}")


def _draw_first_step(axis: Any, report: Report) -> None:
    step = report.first_step
    if step is None:
        axis.set_axis_off()
        axis.set_title("First step: not seen in this process", loc="left", fontsize=10, color=SOFT)
        return
    rest = step.other_seconds
    axis.barh(0, step.tuning_seconds, height=0.62, color=MEASURING, label="measuring")
    axis.barh(
        0, rest, left=step.tuning_seconds, height=0.62, color=DEFAULT, label="tracing, compiling, running"
    )
    name_lines(axis, ["first step"])
    axis.set_ylim(2.6, -0.6)
    axis.legend(loc="lower left", fontsize=8, frameon=False, ncols=2, labelcolor=SOFT)
    plain(
        axis,
        f"The first step: {format_seconds(step.seconds)}, "
        f"{format_seconds(step.tuning_seconds)} of it measuring",
    )


def _draw_measuring(axis: Any, measured: Sequence[LayerTimes], others: float) -> None:
    for i, layer in enumerate(measured):
        axis.barh(i, layer.tuning_seconds, height=0.62, color=MEASURING)
        write_at(axis, layer.tuning_seconds, i, format_seconds(layer.tuning_seconds))
    name_lines(axis, [layer.label for layer in measured])
    total = format_seconds(sum(layer.tuning_seconds for layer in measured) + others)
    plain(axis, f"Where {total} of measuring went{_left_out(others)}")


def _left_out(others: float) -> str:
    return f"; {format_seconds(others)} of small ones not shown" if others > 0 else ""


def _mark_default(axis: Any, line: int, seconds: float) -> None:
    axis.plot(
        [seconds, seconds], [line - 0.42, line + 0.42], color=TEXT, linewidth=1.6, solid_capstyle="butt"
    )


def write_at(axis: Any, x: float, line: int, text: str) -> None:
    """Write a few words at the end of a line's bar."""
    axis.annotate(
        text, (x, line), xytext=(5, 0), textcoords="offset points", va="center", fontsize=7.5, color=SOFT,
        annotation_clip=False,
    )  # fmt: skip


def name_lines(axis: Any, names: Sequence[str]) -> None:
    """Names from top to bottom, with room at the right for what is written at the bars' ends."""
    axis.set_yticks(range(len(names)), [shortened(name) for name in names])
    axis.set_ylim(max(len(names), 1) - 0.4, -0.6)
    if axis.get_autoscalex_on():
        axis.margins(x=0.16)
        axis.set_xlim(left=0)


def shortened(name: str, most: int = 46) -> str:
    """A name that leaves room for the bars."""
    return name if len(name) <= most else f"{name[: most - 1]}…"
