"""`keras-tunedconv build`: the TensorFlow op compiled ahead, for images and CI."""

from __future__ import annotations

import click


@click.command()
@click.option("--force", is_flag=True, help="Compile even where a fitting library lies in the cache.")
def build(force: bool) -> None:
    """Compile the TensorFlow op for the installed TensorFlow, and print where it lies.

    Without this the op is compiled when a TunedConv2D first runs under TensorFlow. The library depends on
    TensorFlow's version, not on Python's. JAX and torch need nothing to be built.
    """
    try:
        from keras_tunedconv.bridges.tensorflow import build as op
    except ImportError as error:
        raise click.ClickException(
            f"The TensorFlow op needs TensorFlow, which cannot be imported ({error}). "
            "`pip install 'keras-tunedconv[tensorflow]'` brings it."
        ) from error
    try:
        path = op.build(force=force)
    except (RuntimeError, OSError) as error:
        raise click.ClickException(str(error)) from error
    click.echo(path)
