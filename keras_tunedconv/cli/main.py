"""The entry point. A command's module is imported when the command is used, and not before.

So `keras-tunedconv inspect` reads a file without importing Keras, and `keras-tunedconv doctor` works
where Keras does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click

from keras_tunedconv import __version__

# Command -> module, its click command, and the line of help shown in the list.
COMMANDS: dict[str, tuple[str, str, str]] = {
    "bench": ("keras_tunedconv.cli.bench", "bench", "Time tuned and stock side by side."),
    "build": ("keras_tunedconv.cli.build", "build", "Compile the TensorFlow op ahead of its first use."),
    "doctor": ("keras_tunedconv.cli.doctor", "doctor", "Say what is there, what is missing, how to get it."),
    "diff": ("keras_tunedconv.cli.diff", "diff", "Compare the tuning entries of two files."),
    "docs": (
        "keras_tunedconv.cli.docs",
        "docs",
        "Print the documentation of files, keys, policies, engines.",
    ),
    "export": (
        "keras_tunedconv.cli.exchange",
        "export",
        "Copy the tuning entries of a file into a database.",
    ),
    "import": (
        "keras_tunedconv.cli.exchange",
        "import_entries",
        "Add the tuning entries of a database to a model's file.",
    ),
    "inspect": ("keras_tunedconv.cli.inspect", "inspect", "List the tuning entries of a file."),
    "merge": ("keras_tunedconv.cli.exchange", "merge", "Merge the tuning entries of files into a database."),
    "prune": ("keras_tunedconv.cli.exchange", "prune", "Drop entries of environments from a database."),
    "report": (
        "keras_tunedconv.cli.report",
        "report",
        "Report what tuning brought, as table, page or picture.",
    ),
    "tune": ("keras_tunedconv.cli.tune", "tune", "Measure a model's convolutions without data."),
}


class LazyGroup(click.Group):
    """A group whose commands are named in a table and imported on use."""

    def __init__(self, *args: Any, table: Mapping[str, tuple[str, str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._table = table

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of all commands."""
        return sorted(self._table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a name; `None` where there is no such name."""
        if cmd_name not in self._table:
            return None
        module, attribute, _ = self._table[cmd_name]
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands, without importing any of them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, self._table[name][2]) for name in self.list_commands(ctx)])


@click.group(cls=LazyGroup, table=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, package_name="keras-tunedconv")
def main() -> None:
    """Tuned convolutions for Keras 3."""


if __name__ == "__main__":
    main(prog_name="keras-tunedconv")
