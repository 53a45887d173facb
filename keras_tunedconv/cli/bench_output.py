"""What the commands under `keras-tunedconv bench` share: how a model is trained, and results as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from keras_tunedconv.bench import machine

MODEL_NAMES = ("resnet50", "resnext50", "mobilenet_v3", "convnext_tiny", "efficientnet_b0", "unet")

json_option = click.option("--json", "json_file", type=click.Path(dir_okay=False), help="Write results here.")


_TRAINED_MODEL = (
    click.argument("name", metavar="MODEL", type=click.Choice(MODEL_NAMES)),
    click.option("--batch", type=click.IntRange(min=1), default=8, show_default=True),
    click.option(
        "--size", type=click.IntRange(min=32), default=224, show_default=True, help="Image height and width."
    ),
    click.option(
        "--backend-mode",
        "compile_mode",
        type=click.Choice(("auto", "graph", "xla", "eager")),
        default="auto",
        show_default=True,
        help="model.compile's jit_compile: auto, False, True; eager: run_eagerly.",
    ),
    click.option("--dtype-policy", default="float32", show_default=True, help="Keras dtype policy."),
)


def trained_model(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the model that it trains, and how: name, batch, size, compile_mode, dtype_policy."""
    for parameter in reversed(_TRAINED_MODEL):
        command = parameter(command)
    return command


def write_json(file: str | None, report: Any) -> None:
    """Write a report with the machine it was made on, where a file is named."""
    if file is not None:
        content = {"machine": machine.describe(), **report}
        Path(file).write_text(json.dumps(content, indent=2) + "\n")
