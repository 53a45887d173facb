"""`keras-tunedconv bench peers`: single convolutions beside torch and XLA, in time of the device alone."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from keras_tunedconv.bench import machine, problem
from keras_tunedconv.bench.peers.result import PEERS
from keras_tunedconv.cli.bench_output import json_option, write_json
from keras_tunedconv.cli.parameters import Budget
from keras_tunedconv.core import engines
from keras_tunedconv.core.descriptor import DIRECTIONS, SUPPORTED_DTYPES
from keras_tunedconv.core.errors import TunedConvError

if TYPE_CHECKING:
    from keras_tunedconv.bench.peers.result import Row
    from keras_tunedconv.bench.peers.timer import PeerTimer

_DEFAULT_SETS = {"cpu": "baselines", "cuda": "baselines_gpu"}
# As the JAX bridge gives filters to each device's engine.
_FILTER_LAYOUTS = {"cpu": "hwio", "cuda": "ohwi"}


@click.command()
@click.argument("problems", nargs=-1)
@click.option("--device", type=click.Choice(tuple(engines.ENGINES)), default="cuda", show_default=True)
@click.option(
    "--direction", "directions", type=click.Choice(DIRECTIONS), multiple=True, help="Default: all three."
)
@click.option("--batch", type=click.IntRange(min=1), help="Batch size in place of the one written.")
@click.option(
    "--dtype", type=click.Choice(sorted(SUPPORTED_DTYPES)), help="Dtype in place of the one written."
)
@click.option(
    "--filter-layout",
    type=click.Choice(("ohwi", "hwio", "oihw")),
    help="Order of the filter that the package and XLA are given; torch takes its own. Default: as the JAX "
    "bridge gives it, ohwi on cuda and hwio on cpu.",
)
@click.option("--peer", "peers", type=click.Choice(PEERS), multiple=True, help="Default: all.")
@click.option(
    "--seconds-limit",
    type=Budget(zero_too=True),
    default=480.0,
    show_default=True,
    help="No further row is begun after this.",
)
@json_option
def peers(
    problems: Sequence[str],
    device: str,
    directions: Sequence[Any],
    batch: int | None,
    dtype: str | None,
    filter_layout: str | None,
    peers: Sequence[str],
    seconds_limit: float,
    json_file: str | None,
) -> None:
    """Time single convolutions beside torch and XLA, in one run, in microseconds of the device.

    PROBLEMS are as for `bench conv`; the set `baselines_gpu` is the default, `baselines` on cpu. Contenders:
    this package, tuned within the default budget; its library's own first choice; torch with cuDNN's
    heuristics; torch with cudnn.benchmark over all plans; XLA under JAX. All but XLA are timed in turn
    between events of a stream on which runs are queued beforehand, XLA by its profiler right after. float32
    is computed without TF32. torch pads as much before as after, so where padding is uneven it computes
    something else of the same size. For cuda torch is needed.
    """
    from keras_tunedconv.bench.peers.memory import memory_of
    from keras_tunedconv.bench.peers.own import host_seconds
    from keras_tunedconv.bench.peers.run import run
    from keras_tunedconv.bench.peers.timer import PeerTimer

    try:
        chosen = problem.select(problems or (_DEFAULT_SETS[device],), batch=batch, dtype=dtype)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="PROBLEMS") from error
    layout = filter_layout or _FILTER_LAYOUTS[device]
    try:
        memory = memory_of(device)
        timer = PeerTimer(memory, layout, peers or PEERS)
    except TunedConvError as error:
        raise click.ClickException(str(error)) from error
    report = _head(device, layout, timer)
    if device == "cuda":
        report["host_seconds"] = host_seconds(memory)  # before a profiler slows the host down
    rows: list[Row] = []

    def progress(row: Row) -> None:
        rows.append(row)
        click.echo(_progress_line(row), err=True)
        write_json(json_file, {**report, "rows": [row.to_dict() for row in rows]})

    try:
        run(chosen, directions or DIRECTIONS, timer, seconds_limit=seconds_limit, progress=progress)
    except RuntimeError as error:  # a device that is lost, or has not the memory
        _finish(report, rows, json_file)
        raise click.ClickException(f"broke off after {len(rows)} rows: {error}") from error
    _finish(report, rows, json_file)


def _head(device: str, layout: str, timer: PeerTimer) -> dict[str, Any]:
    """What ran where, printed and for JSON."""
    report = {
        "command": shlex.join(["keras-tunedconv", *sys.argv[1:]]),
        "device": device,
        "environment": engines.environment(device),
        "library": engines.describe(engines.ENGINES[device]),
        "filter_layout": layout,
        "absent": timer.absent,
    }
    click.echo(report["command"])
    click.echo(machine.describe_line())
    click.echo(f"{report['environment']}\n{report['library']}")
    for name, reason in timer.absent.items():
        click.echo(f"{name} left out: {reason}")
    return report


def _progress_line(row: Row) -> str:
    times = ", ".join(f"{name} {seconds * 1e6:.1f}" for name, seconds in row.seconds.items())
    return f"{row.problem} {row.direction}: {times or 'not measured'}"


def _finish(report: dict[str, Any], rows: Sequence[Row], json_file: str | None) -> None:
    from keras_tunedconv.bench.peers import text
    from keras_tunedconv.bench.peers.result import geometric_means

    device = report["device"]
    what = f"{', '.join(text.dtypes(rows))}, filter {report['filter_layout']}"
    click.echo(f"microseconds of the device for one run, {what}\n")
    click.echo(text.table(rows, device) + "\n")
    for line in text.summary(rows, device):
        click.echo(line)
    if "host_seconds" in report:
        click.echo(f"host's time for one call of the core: {report['host_seconds'] * 1e6:.1f} microseconds")
    means = geometric_means(rows)
    write_json(json_file, {**report, "rows": [row.to_dict() for row in rows], "geometric_means": means})
