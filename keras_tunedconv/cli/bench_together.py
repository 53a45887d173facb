"""`keras-tunedconv bench together`: stock and tuned models in one process, in turn."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from keras_tunedconv.bench import machine
from keras_tunedconv.cli.bench_output import json_option, trained_model, write_json
from keras_tunedconv.tuning import search_path

if TYPE_CHECKING:
    from keras_tunedconv.bench.together import TogetherReport


@click.command()
@trained_model
@click.option(
    "--steps",
    type=click.IntRange(min=1),
    default=40,
    show_default=True,
    help="Steps of a variant in a round.",
)
@click.option("--rounds", type=click.IntRange(min=1), default=8, show_default=True)
@click.option(
    "--warm-up-steps",
    type=click.IntRange(min=1),
    default=30,
    show_default=True,
    help="Steps between a variant's first one and the rounds.",
)
@click.option("--databases", is_flag=True, help="Use shared databases, the shipped ones among them.")
@json_option
def together(
    name: str,
    batch: int,
    size: int,
    compile_mode: str,
    dtype_policy: str,
    steps: int,
    rounds: int,
    warm_up_steps: int,
    databases: bool,
    json_file: str | None,
) -> None:
    """Train a whole Keras model, stock and tuned in one process, in turn, with the data on the device.

    Nothing differs between the two but the convolutions; `bench model` runs fresh processes. Steps are
    those of `fit` under JAX, and of `train_on_batch` under TensorFlow and torch.
    """
    from keras_tunedconv.bench import together as runner
    from keras_tunedconv.bench.model import Job

    if databases:
        os.environ[search_path.SWITCH_VARIABLE] = "1"
    job = Job(name, "stock", batch, size, compile_mode=compile_mode, dtype_policy=dtype_policy, steps=steps)
    click.echo(machine.describe_line())

    def progress(milliseconds: dict[str, float]) -> None:
        click.echo(", ".join(f"{v} {ms:.1f} ms" for v, ms in milliseconds.items()), err=True)

    try:
        report = runner.run(job, rounds=rounds, warm_up_steps=warm_up_steps, progress=progress)
    except (RuntimeError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    _print(report)
    write_json(json_file, report)


def _print(report: TogetherReport) -> None:
    from keras_tunedconv.bench import table

    job = report["job"]
    cells = [
        f"{report['backend']}, {job['model']}",
        *(f"{report['step_seconds'][variant] * 1e3:.1f}" for variant in ("stock", "tuned")),
        f"{report['median_ratio']:.2f}",
        *(f"{report['first_step_seconds'][variant]:.1f} s" for variant in ("stock", "tuned")),
        f"{report['measured']} in {report['tuning_seconds']:.1f} s",
    ]
    headers = ("", "step stock", "tuned", "median of ratios", "first step stock", "tuned", "keys measured")
    what = f"batch {job['batch']}, {job['size']}x{job['size']}, {job['dtype_policy']}"
    how = f"{report['method']} on {report['device']}, --backend-mode {job['compile_mode']}"
    click.echo(f"milliseconds of a step: {what}, {how}\n")
    click.echo(table.markdown(headers, [cells]))
