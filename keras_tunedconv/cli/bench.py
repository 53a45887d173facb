"""`keras-tunedconv bench`: tuned and stock side by side, in turn, in one run."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from keras_tunedconv.bench import machine, problem
from keras_tunedconv.cli import bench_peers, bench_practice, bench_together
from keras_tunedconv.cli.bench_output import MODEL_NAMES, json_option, trained_model, write_json
from keras_tunedconv.cli.parameters import Budget
from keras_tunedconv.core.descriptor import DIRECTIONS, SUPPORTED_DTYPES
from keras_tunedconv.core.engines import ENGINES
from keras_tunedconv.core.errors import TunedConvError
from keras_tunedconv.tuning import search_path

if TYPE_CHECKING:
    from keras_tunedconv.bench.conv import ConvResult
    from keras_tunedconv.bench.model import JobResult
    from keras_tunedconv.prediction.evaluation import Evaluation

_PARTS = ("import", "lookup", "call", "tuning", "cache")
_seconds_option = click.option(
    "--seconds",
    type=Budget(zero_too=True),
    default=3.0,
    show_default=True,
    help="Timed rounds of each case.",
)


@click.group()
def bench() -> None:
    """Time tuned and stock convolutions side by side, in turn (A B A B ...), in one run.

    KERAS_BACKEND chooses the framework. Nothing else should run on the machine meanwhile.
    """
    # What others measured would be found where a figure is about a process that knows nothing.
    os.environ[search_path.SWITCH_VARIABLE] = "0"


for _command in (
    bench_peers.peers,
    bench_together.together,
    bench_practice.sizes,
    bench_practice.warm_up,
    bench_practice.inspect,
):
    bench.add_command(_command)


@bench.command("list")
@click.argument("sets", nargs=-1)
def list_problems(sets: Sequence[str]) -> None:
    """Print the built-in sets, or the problems of those named."""
    for name in sets or problem.set_names():
        try:
            lines = [p.text for p in problem.load_set(name)]
        except ValueError as error:
            raise click.BadParameter(str(error)) from error
        click.echo("\n".join(lines) if sets else f"{name}: {len(lines)} problems")


@bench.command()
@click.argument("database", type=click.Path(dir_okay=False, path_type=Path))
@click.argument("problems", nargs=-1)
@click.option("--device", type=click.Choice(tuple(ENGINES)), default="cpu", show_default=True)
@click.option("--batch", type=click.IntRange(min=1), help="Batch size in place of the one written.")
@click.option(
    "--dtype", type=click.Choice(sorted(SUPPORTED_DTYPES)), help="Dtype in place of the one written."
)
@click.option(
    "--seconds", type=Budget(zero_too=True), default=480.0, show_default=True, help="Ends after this."
)
def record(
    database: Path,
    problems: Sequence[str],
    device: str,
    batch: int | None,
    dtype: str | None,
    seconds: float,
) -> None:
    """Measure every candidate of PROBLEMS into DATABASE, the data of the cost model.

    PROBLEMS are names of built-in sets, all models' by default. What DATABASE has is left out, so running the
    command again goes on. For cuda torch is needed.
    """
    from keras_tunedconv.bench import candidates

    try:
        chosen = problem.changed(candidates.in_turn(problems), batch=batch, dtype=dtype)
        measured, left = candidates.record(
            database, chosen, device=device, seconds=seconds, progress=lambda line: click.echo(line, err=True)
        )
    except (ValueError, TunedConvError) as error:
        raise click.ClickException(str(error)) from error
    click.echo(f"{measured} convolutions measured, {left} left; {database}")


@bench.command("cost-model")
@click.argument("databases", nargs=-1, required=True, metavar="DATABASE...", type=click.Path(path_type=Path))
@json_option
def cost_model(databases: Sequence[Path], json_file: str | None) -> None:
    """Evaluate the cost model on the recorded candidates of DATABASE (see `bench record`).

    Each model's convolutions are left out in turn. Figures are times of what was chosen over the fastest
    candidate's, geometric mean and worst: with nothing measured, and when candidates are measured in order
    for a fifth of the time that all take; last the part of that time until the mean is within 2 %.
    """
    from dataclasses import asdict

    from keras_tunedconv.bench import candidates
    from keras_tunedconv.cli.files import read_searches
    from keras_tunedconv.prediction import evaluation

    searches = [search for path in databases for search in read_searches(path)]
    found = evaluation.evaluate(searches, candidates.problems_of_models())
    if not found:
        raise click.ClickException(
            "There are no recorded candidates of two models; `keras-tunedconv bench record` makes some."
        )
    for each in found:
        _print_evaluation(each)
    write_json(json_file, {"evaluations": [asdict(each) for each in found]})


def _print_evaluation(evaluation: Evaluation) -> None:
    from keras_tunedconv.bench import table

    rows = [
        [
            name,
            f"{r.nothing:.3f} ({r.nothing_worst:.2f})",
            f"{r.fifth:.3f} ({r.fifth_worst:.2f}), {r.fifth_spent:.0%} spent",
            f"{r.spent:.0%}",
        ]
        for name, r in (("cost model", evaluation.predicted), ("library's order", evaluation.library))
    ]
    click.echo(f"{evaluation.environment}\n{evaluation.dtype}, {evaluation.predicted.cases} convolutions")
    click.echo(
        table.markdown(("order", "nothing measured", "a fifth of the time", "time to within 2 %"), rows)
    )
    for name, (predicted, library) in evaluation.models.items():
        click.echo(f"left out {name}: {predicted:.3f}, library's order {library:.3f}")


@bench.command()
@click.argument("problems", nargs=-1)
@click.option(
    "--direction", "directions", type=click.Choice(DIRECTIONS), multiple=True, help="Default: all three."
)
@click.option(
    "--mode",
    "modes",
    type=click.Choice(("graph", "xla", "eager", "engine")),
    multiple=True,
    help="How the framework runs it: graph (tf.function), xla (jit_compile; JAX), eager (torch; TensorFlow "
    "forward only). engine leaves the framework out. Default: the backend's own.",
)
@click.option("--batch", type=click.IntRange(min=1), help="Batch size in place of the one written.")
@click.option(
    "--dtype", type=click.Choice(sorted(SUPPORTED_DTYPES)), help="Dtype in place of the one written."
)
@_seconds_option
@json_option
def conv(
    problems: Sequence[str],
    directions: Sequence[Any],
    modes: Sequence[str],
    batch: int | None,
    dtype: str | None,
    seconds: float,
    json_file: str | None,
) -> None:
    """Time single convolutions: stock, tuned, and the engine's fastest algorithm called directly.

    PROBLEMS are built-in sets (`keras-tunedconv bench list`) or lines of the form
    N,Cin,HW,Cout,kernel,stride,groups[,dtype=...][,dilation=...][,padding=same|valid][,layout=...].
    Without any, the set `baselines` is run.
    """
    from keras_tunedconv.bench import conv as runner

    try:
        chosen = problem.select(problems or ("baselines",), batch=batch, dtype=dtype)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="PROBLEMS") from error
    modes = modes or _default_modes()
    click.echo(machine.describe_line())
    results: list[ConvResult] = []

    def progress(result: ConvResult) -> None:
        results.append(result)
        click.echo(f"{result.problem} {result.direction} {result.mode}", err=True)

    try:
        report = runner.run(chosen, directions or DIRECTIONS, modes, seconds=seconds, progress=progress)
    except (ValueError, RuntimeError) as error:
        raise click.ClickException(str(error)) from error
    _print_conv(results, report["geometric_means"])
    write_json(json_file, report)


def _default_modes() -> Sequence[str]:
    import keras

    from keras_tunedconv.bench import contenders

    modes = contenders.MODES.get(keras.backend.backend())
    if modes is None:
        raise click.ClickException(
            f"There is no tuned op for the Keras backend {keras.backend.backend()!r}. "
            f"Set KERAS_BACKEND to one of {', '.join(contenders.MODES)}, or pass --mode engine."
        )
    return modes[:1]


def _print_conv(results: list[ConvResult], means: dict[str, float]) -> None:
    from keras_tunedconv.bench import table

    headers, rows = table.drop_empty(table.HEADERS, [table.row(result) for result in results])
    click.echo(table.markdown(headers, rows))
    for name, value in means.items():
        click.echo(f"geometric mean of {name.replace('_over_', ' / ')}: {table.number(value)}")


@bench.command()
@trained_model
@click.option(
    "--steps", type=click.IntRange(min=1), default=10, show_default=True, help="Steps after the first."
)
@click.option(
    "--rounds", type=click.IntRange(min=1), default=2, show_default=True, help="Processes a variant."
)
@json_option
def model(
    name: str,
    batch: int,
    size: int,
    compile_mode: str,
    dtype_policy: str,
    steps: int,
    rounds: int,
    json_file: str | None,
) -> None:
    """Train and predict a whole Keras model, stock against tuned, each in a fresh process, in turn."""
    from keras_tunedconv.bench import model as runner

    job = runner.Job(
        name, "stock", batch, size, compile_mode=compile_mode, dtype_policy=dtype_policy, steps=steps
    )
    click.echo(machine.describe_line())

    def progress(variant: str, result: JobResult) -> None:
        click.echo(f"{variant}: {result.steady_seconds * 1e3:.1f} ms a step", err=True)

    try:
        report = runner.compare(job, rounds=rounds, progress=progress)
    except RuntimeError as error:
        raise click.ClickException(str(error)) from error
    _print_model(report)
    write_json(json_file, report)


def _print_model(report: Any) -> None:
    from keras_tunedconv.bench import table

    rows = []
    for variant in ("stock", "tuned"):
        r = report[variant]
        rows.append(
            [
                variant,
                f"{r['first_step_seconds']:.2f}",
                f"{r['step_seconds'] * 1e3:.1f}",
                f"{r['predict_seconds'] * 1e3:.1f}",
                f"{r['peak_step_bytes'] / 2**20:.0f}",
                f"{r['tuning_seconds']:.1f}",
            ]
        )
    headers = ("variant", "first step s", "step ms", "predict ms", "peak MiB", "tuning s")
    click.echo(table.markdown(headers, rows))
    click.echo(f"stock / tuned: step {report['step_speedup']:.2f}, predict {report['predict_speedup']:.2f}")


@bench.command()
@click.option(
    "--part",
    "parts",
    type=click.Choice(_PARTS),
    multiple=True,
    help="Default: all; cache under JAX only.",
)
@click.option("--model", "model_name", type=click.Choice(MODEL_NAMES), default="resnet50", show_default=True)
@click.option("--batch", type=click.IntRange(min=1), default=8, show_default=True)
@click.option("--rounds", type=click.IntRange(min=1), default=3, show_default=True)
@json_option
def overhead(parts: Sequence[str], model_name: str, batch: int, rounds: int, json_file: str | None) -> None:
    """What tuning costs: import, look-up, a call beyond the engine's run, a model's tuning and its file."""
    import keras

    from keras_tunedconv.bench import overhead as runner

    click.echo(machine.describe_line())
    backend = keras.backend.backend()
    parts = parts or [part for part in _PARTS if part != "cache" or backend == "jax"]
    report: dict[str, Any] = {"backend": backend}
    try:
        if "import" in parts:
            report["import_seconds"] = runner.import_seconds()
        if "lookup" in parts:
            report["lookup_seconds"] = runner.lookup_seconds()
        if "call" in parts:
            report["call"] = runner.call()
        if "tuning" in parts:
            report["tuning"] = runner.tuning(model_name, batch, rounds=rounds, backend=backend)
        if "cache" in parts:
            report["cache"] = runner.compilation_cache(model_name, batch, rounds=rounds)
    except RuntimeError as error:
        raise click.ClickException(str(error)) from error
    click.echo(json.dumps(report, indent=2))
    write_json(json_file, report)


@bench.command()
@click.option(
    "--backend",
    "backends",
    type=click.Choice(("tensorflow", "jax", "torch")),
    multiple=True,
    help="Default: all that are installed.",
)
@_seconds_option
@json_option
def figures(backends: Sequence[str], seconds: float, json_file: str | None) -> None:
    """Run everything the README's table of figures needs, and print the table with pass or fail.

    Takes about half an hour on two cores.
    """
    from keras_tunedconv.bench import figures as runner

    click.echo(machine.describe_line())
    try:
        reports = runner.measure(
            backends or runner.installed_backends(),
            seconds=seconds,
            progress=lambda line: click.echo(line, err=True),
        )
    except RuntimeError as error:
        raise click.ClickException(str(error)) from error
    table = runner.judge(reports)
    click.echo(runner.markdown(table))
    write_json(json_file, {"figures": [figure.__dict__ for figure in table], "reports": reports})
