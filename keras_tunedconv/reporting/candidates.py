"""What became of each candidate of one convolution, as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from keras_tunedconv.core.trials import Search, Trial, TrialState
from keras_tunedconv.reporting.figures import (
    TEXT,
    name_lines,
    new_figure,
    plain,
    write,
    write_at,
    write_heading,
)
from keras_tunedconv.tuning.describe import format_problem, format_seconds

# Told apart by those who see red and green alike; the markers tell besides.
_LOOKS = {
    TrialState.WON: ("#3b76c4", "o", "won"),
    TrialState.FINALIST: ("#4b9b8e", "s", "finalist"),
    TrialState.SLOW: ("#e0912f", "^", "dropped as slow"),
    TrialState.WRONG: ("#b0413e", "X", "wrong output"),
    TrialState.FAILED: ("#b0413e", "x", "failed"),
    TrialState.NOT_TRIED: ("#8d98a5", "_", "not tried"),
}
_LINE_HEIGHT = 0.26
_MEBIBYTE = 2**20
_MOST_DEFAULTS = 4.0
_ROOM_FOR_NOTES = 1.7


def save_candidates(search: Search, path: str | Path) -> None:
    """Draw the samples, times, workspace and fate of each candidate of a search.

    The finalists come first, then the others by time. Bars of those far slower than the default are cut.

    Args:
        search: From `keras_tunedconv.core.trials.collect()` or `tuning.database.read_searches`.
        path: The `.png` file.

    Raises:
        OSError: the file cannot be written.
    """
    trials = sorted(search.trials, key=_place)
    figure = new_figure(max(len(trials), 4) * _LINE_HEIGHT + 2.0)
    title = f"Candidates of {search.key.partition('|')[0].replace('_', ' ')} {format_problem(search.key)}"
    write_heading(figure, title, search.environment)
    axis = figure.subplots()
    _draw(axis, trials)
    name_lines(axis, [f"{trial.algorithm}{' (default)' if trial.order == 0 else ''}" for trial in trials])
    plain(
        axis, "Time of one run: samples, and as a bar the median or the first estimate; dashed: the default's"
    )
    write(figure, Path(path))


def _place(trial: Trial) -> tuple[bool, bool, float, int]:
    is_final = trial.state in (TrialState.WON, TrialState.FINALIST)
    return trial.seconds == 0, not is_final, trial.seconds, trial.order


def _draw(axis: Any, trials: Sequence[Trial]) -> None:
    default = next((trial.seconds for trial in trials if trial.order == 0), 0.0)
    longest = max((max((trial.seconds, *trial.samples)) for trial in trials), default=0.0) or 1.0
    edge = min(longest, _MOST_DEFAULTS * default) if default > 0 else longest
    for line, trial in enumerate(trials):
        colour, marker, fate = _LOOKS[trial.state]
        if trial.seconds > 0:
            axis.barh(line, min(trial.seconds, edge), height=0.6, color=colour, alpha=0.35)
            samples = [sample for sample in trial.samples or (trial.seconds,) if sample <= edge]
            axis.plot(samples, [line] * len(samples), marker, color=colour, markersize=4, alpha=0.8)
        write_at(axis, min(max((trial.seconds, *trial.samples)), edge), line, _note(trial, fate))
    if default > 0:
        axis.axvline(default, color=TEXT, linewidth=1.0, linestyle=(0, (4, 3)), zorder=0)
    axis.set_xlim(0, _ROOM_FOR_NOTES * edge)


def _note(trial: Trial, fate: str) -> str:
    parts = [format_seconds(trial.seconds)] if trial.seconds > 0 else []
    parts.append(f"{fate}: {trial.reason}" if trial.reason else fate)
    if trial.workspace_bytes:
        parts.append(f"{trial.workspace_bytes / _MEBIBYTE:.3g} MiB of workspace")
    return ", ".join(parts)
