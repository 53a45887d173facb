"""`keras-tunedconv docs`: the longer texts, which come with the package."""

from __future__ import annotations

from pathlib import Path

import click

_FOLDER = Path(__file__).parents[1] / "docs"


@click.command()
@click.argument("topic", required=False)
def docs(topic: str | None) -> None:
    """Print the documentation of TOPIC; without one, list the topics."""
    texts = {path.stem: path for path in sorted(_FOLDER.glob("*.md"))}
    if topic is None:
        for name, path in texts.items():
            title = path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
            click.echo(f"{name:<12} {title}")
        click.echo(f"The texts are in {_FOLDER}.")
        return
    if topic not in texts:
        raise click.BadParameter(
            f"There is no topic {topic!r}; there are {', '.join(texts)}.", param_hint="TOPIC"
        )
    click.echo_via_pager(texts[topic].read_text(encoding="utf-8"))
