"""`keras-tunedconv tune`: measuring a saved model's convolutions without data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from keras_tunedconv.cli.files import check_there
from keras_tunedconv.cli.parameters import Budget

# As in core.descriptor, which is not imported for the sake of a fast `--help`.
_DIRECTIONS = ("forward", "backward_data", "backward_filter")
_INTERRUPTED = 130


@click.command()
@click.argument("model", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--batch-size", "batch_sizes", type=click.IntRange(min=1), multiple=True, required=True,
    help="Batch size; give the option once for each.",
)  # fmt: skip
@click.option(
    "--direction", "directions", type=click.Choice(_DIRECTIONS), multiple=True,
    help="Direction; give the option once for each. All by default; for inference only forward.",
)  # fmt: skip
@click.option("--budget", type=Budget(), help="Seconds for everything together.")
@click.option(
    "--output", type=click.Path(dir_okay=False, path_type=Path),
    help="The .keras file to write; MODEL itself by default.",
)  # fmt: skip
def tune(
    model: Path,
    batch_sizes: tuple[int, ...],
    directions: tuple[Any, ...],
    budget: float | None,
    output: Path | None,
) -> None:
    """Measure the convolutions of MODEL, a .keras file, and save the model with the entries.

    Ctrl-C saves what was measured until then. The Keras backend is the one of KERAS_BACKEND.
    """
    check_there(model)
    import keras

    from keras_tunedconv.ahead import warm_up
    from keras_tunedconv.saving import save_model

    target = output or model
    if target.suffix != ".keras":
        raise click.UsageError(f"The file to write must be named *.keras. Received: {target}")
    try:
        loaded = keras.saving.load_model(model)
    except Exception as error:  # whatever Keras came upon
        raise click.UsageError(f"{model} cannot be loaded: {error}") from error
    try:
        done = warm_up(loaded, batch_sizes, directions=directions or _DIRECTIONS, budget=budget)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    except KeyboardInterrupt:
        save_model(loaded, target)
        click.echo(f"Interrupted; {target} holds what was measured until then.", err=True)
        raise click.exceptions.Exit(_INTERRUPTED) from None
    save_model(loaded, target)
    click.echo(
        f"{done.measured} measured, {done.known} known, {done.left} left by the budget, "
        f"{done.unsupported} unsupported in {done.seconds:.1f} s; saved to {target}"
    )
