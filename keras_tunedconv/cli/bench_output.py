"""What the commands under `keras-tunedconv bench` share: writing results as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from keras_tunedconv.bench import machine

MODEL_NAMES = ("resnet50", "resnext50", "mobilenet_v3", "convnext_tiny", "efficientnet_b0", "unet")

json_option = click.option("--json", "json_file", type=click.Path(dir_okay=False), help="Write results here.")


def write_json(file: str | None, report: Any) -> None:
    """Write a report with the machine it was made on, where a file is named."""
    if file is not None:
        content = {"machine": machine.describe(), **report}
        Path(file).write_text(json.dumps(content, indent=2) + "\n")
