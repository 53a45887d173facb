"""`keras-tunedconv bench sizes`, `warm-up` and `inspect`: what tuning is like in daily use."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from keras_tunedconv.bench import machine
from keras_tunedconv.cli.bench_output import MODEL_NAMES, json_option, write_json
from keras_tunedconv.cli.parameters import Budget

if TYPE_CHECKING:
    from keras_tunedconv.bench.sizes import Round


@click.command()
@click.option("--batch", type=click.IntRange(min=1), default=8, show_default=True)
@click.option("--rounds", type=click.IntRange(min=1), default=3, show_default=True)
@click.option(
    "--backend-mode",
    "compile_mode",
    type=click.Choice(("auto", "graph", "xla", "eager")),
    help="model.compile's jit_compile; by default a graph under TensorFlow, else the backend's own.",
)
@json_option
def sizes(batch: int, rounds: int, compile_mode: str | None, json_file: str | None) -> None:
    """Train on 40 batches of 40 image sizes, then on the same again: stock and tuned in turn."""
    from keras_tunedconv.bench import sizes as runner
    from keras_tunedconv.bench import table

    click.echo(machine.describe_line())

    def progress(one: Round) -> None:
        click.echo(f"{one.measured} measured, {one.copied} copied, {one.tuning_seconds:.1f} s", err=True)

    report = runner.run(batch=batch, rounds=rounds, compile_mode=compile_mode or "", progress=progress)
    rows = [
        [name, *(f"{report['seconds'][name][v]:.2f}" for v in ("stock", "tuned")), f"{ratio:.2f}"]
        for name, ratio in (("first", report["first_pass_ratio"]), ("second", report["second_pass_ratio"]))
    ]
    click.echo(table.markdown(("pass", "stock s", "tuned s", "tuned / stock"), rows))
    click.echo(f"{report['measured']} keys measured in {report['tuning_seconds']:.1f} s")
    write_json(json_file, report)


@click.command("warm-up")
@click.argument("name", metavar="MODEL", type=click.Choice(MODEL_NAMES), default="resnet50")
@click.option(
    "--batch", "batches", type=click.IntRange(min=1), multiple=True, default=(8, 16), show_default=True
)
@click.option("--budget", type=Budget(), default=60.0, show_default=True, help="Seconds for everything.")
@json_option
def warm_up(name: str, batches: tuple[int, ...], budget: float, json_file: str | None) -> None:
    """Warm a model up at some batch sizes within a budget, in a fresh process."""
    from keras_tunedconv.bench import tools

    click.echo(machine.describe_line())
    try:
        report = tools.warm_up(name, batches, budget=budget)
    except RuntimeError as error:
        raise click.ClickException(str(error)) from error
    what = f"{report['measured']} keys measured, {report['left']} left"
    click.echo(f"{report['seconds']:.1f} s of {budget:g} s, {what}")
    write_json(json_file, report)


@click.command()
@click.option("--entries", type=click.IntRange(min=1, max=16_384), default=10_000, show_default=True)
@click.option("--rounds", type=click.IntRange(min=1), default=5, show_default=True)
@json_option
def inspect(entries: int, rounds: int, json_file: str | None) -> None:
    """List a database of many entries with `keras-tunedconv inspect`, in fresh processes."""
    from keras_tunedconv.bench import tools

    click.echo(machine.describe_line())
    try:
        report = tools.inspect(entries, rounds=rounds)
    except RuntimeError as error:
        raise click.ClickException(str(error)) from error
    click.echo(f"{report['seconds']:.2f} s for {entries} entries in {report['bytes'] / 1024:.0f} KiB")
    write_json(json_file, report)
