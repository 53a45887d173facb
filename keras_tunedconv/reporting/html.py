"""A report as a page of its own: no script, no picture, nothing loaded from elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from keras_tunedconv.core.descriptor import DIRECTIONS
from keras_tunedconv.reporting.summary import LayerTimes, by_direction, by_layer
from keras_tunedconv.tuning.describe import NUMERIC, format_seconds

if TYPE_CHECKING:
    from keras_tunedconv.reporting.table import Report

# Read in light and dark, and told apart by those who see red and green alike.
_STYLE = """
:root { color-scheme: light dark; --text: #1c2733; --soft: #5d6b7a; --line: #d8dee6; --page: #fff;
  --forward: #3b76c4; --backward_data: #e0912f; --backward_filter: #4b9b8e; --measuring: #7a5ea8;
  --default: #aab4c0; }
@media (prefers-color-scheme: dark) { :root { --text: #e4e9ef; --soft: #9aa7b5; --line: #36414d;
  --page: #14191f; --default: #5a6673; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--text); background: var(--page);
  margin: 2rem auto; max-width: 72rem; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin-top: 2.2rem; }
.note { color: var(--soft); }
.tiles { display: flex; flex-wrap: wrap; gap: 1rem; }
.tile { border: 1px solid var(--line); border-radius: 6px; padding: .6rem 1rem; min-width: 9rem; }
.tile b { display: block; font-size: 1.3rem; }
.bars { display: grid; grid-template-columns: minmax(6rem, max-content) 1fr max-content; gap: .25rem .8rem;
  align-items: center; }
.bars .name { text-align: right; overflow-wrap: anywhere; }
.bars .value { font-variant-numeric: tabular-nums; color: var(--soft); }
.track { display: flex; flex-direction: column; gap: 2px; }
.bar { display: flex; height: .7rem; } .bar i { display: block; height: 100%; }
.bar.default { height: .3rem; }
.key { display: inline-block; width: .8rem; height: .8rem; margin: 0 .3rem 0 1rem; vertical-align: -1px; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .85rem; white-space: nowrap; }
th, td { text-align: left; padding: .25rem .7rem; border-bottom: 1px solid var(--line); }
.number { text-align: right; font-variant-numeric: tabular-nums; }
"""
_COLOURS = {name: f"var(--{name})" for name in (*DIRECTIONS, "measuring", "default")}


def page(report: Report) -> str:
    """The page of a report."""
    layers = by_layer(report.rows, report.stepped)
    timed = [layer for layer in layers if layer.total > 0]
    measured = [layer for layer in layers if layer.tuning_seconds > 0]
    sections = [
        _tiles(report, timed),
        _step(timed),
        _measuring(measured, report),
        f"<h2>All entries</h2><div class=scroll>{_table(report)}</div>",
    ]
    return (
        "<!doctype html><html lang=en><meta charset=utf-8>"
        '<meta name=viewport content="width=device-width">'
        f"<title>{escape(report.title)}</title><style>{_STYLE}</style>"
        f"<h1>{escape(report.title)}</h1>{_environments(report)}{''.join(sections)}</html>\n"
    )


def fragment(report: Report) -> str:
    """The table and the totals, for a notebook."""
    return f"{_table(report)}<p>{escape(report.summary())}</p>"


def _environments(report: Report) -> str:
    return "".join(f"<p class=note>{escape(text)}</p>" for text in report.environments())


def _tiles(report: Report, timed: Sequence[LayerTimes]) -> str:
    total, default = sum(layer.total for layer in timed), sum(layer.default_total for layer in timed)
    tiles = [
        ("convolutions of a step, tuned", format_seconds(total)),
        ("with the library's own choices", format_seconds(default)),
        ("times faster", f"{default / total:.2f}" if total > 0 else "-"),
        ("spent measuring", format_seconds(report.tuning_seconds)),
    ]
    made = "".join(f"<div class=tile><b>{escape(value)}</b>{escape(name)}</div>" for name, value in tiles)
    return f"<div class=tiles>{made}</div>"


def _step(timed: Sequence[LayerTimes]) -> str:
    if not timed:
        return "<p class=note>No entry has a measured time.</p>"
    keys = "".join(
        f"<span class=key style='background:{_COLOURS[name]}'></span>{label}"
        for name, label in [*((name, name) for name in DIRECTIONS), ("default", "the library's own choices")]
    )
    whole = [
        (direction, {direction: seconds}, default)
        for direction, seconds, default in by_direction(timed)
        if seconds > 0
    ]
    return (
        f"<h2>Time by direction</h2><p class=note>{keys}</p>{_bars(whole)}"
        "<h2>Time by layer</h2>"
        f"{_bars([(layer.label, layer.seconds, layer.default_total) for layer in timed])}"
    )


def _measuring(measured: Sequence[LayerTimes], report: Report) -> str:
    made = ""
    if report.first_step is not None:
        measuring, rest = report.first_step.tuning_seconds, report.first_step.other_seconds
        parts = [
            ("measuring", {"measuring": measuring}, 0.0),
            ("tracing, compiling, running", {"default": rest}, 0.0),
        ]
        made += f"<h2>The first step: {escape(format_seconds(measuring + rest))}</h2>{_bars(parts)}"
    if measured:
        bars = [(layer.label, {"measuring": layer.tuning_seconds}, 0.0) for layer in measured]
        made += (
            "<h2>Where the seconds of measuring went</h2>"
            "<p class=note>In whichever process; a convolution that layers share counts with the first.</p>"
            f"{_bars(bars)}"
        )
    return made


def _bars(lines: Sequence[tuple[str, dict[str, float], float]]) -> str:
    """Bars of one scale: a name, seconds by direction, and beneath them the default's if there are any."""
    longest = max((max(sum(parts.values()), default) for _, parts, default in lines), default=0.0) or 1.0
    made = []
    for name, parts, default in lines:
        total = sum(parts.values())
        pieces = "".join(
            f"<i style='width:{100 * parts[key] / longest:.2f}%;background:{_COLOURS[key]}' "
            f"title='{key}: {escape(format_seconds(parts[key]))}'></i>"
            for key in _COLOURS
            if parts.get(key)
        )
        track, value = f"<div class=bar>{pieces}</div>", format_seconds(total)
        if default > 0:
            width = 100 * default / longest
            track += (
                f"<div class='bar default'><i style='width:{width:.2f}%;background:{_COLOURS['default']}' "
                f"title='default: {escape(format_seconds(default))}'></i></div>"
            )
            value += f" of {format_seconds(default)}, {default / total:.2f}x"
        made.append(
            f"<div class=name>{escape(name)}</div><div class=track>{track}</div>"
            f"<div class=value>{escape(value)}</div>"
        )
    return f"<div class=bars>{''.join(made)}</div>"


def _table(report: Report) -> str:
    def cells(tag: str, texts: Sequence[str]) -> str:
        return "".join(
            f"<{tag}{' class=number' if heading in NUMERIC else ''}>{escape(text)}</{tag}>"
            for heading, text in zip(report.headings, texts, strict=True)
        )

    lines = "".join(f"<tr>{cells('td', row.cells())}</tr>" for row in report.rows)
    return f"<table><tr>{cells('th', report.headings)}</tr>{lines}</table>"
