"""The command group: what it lists, and what it imports."""

import subprocess
import sys

import pytest
from click.testing import CliRunner

from keras_tunedconv import __version__
from keras_tunedconv.cli.main import COMMANDS, main


def modules_after(*arguments):
    """Names of the modules a command line has imported when it ends."""
    code = (
        "import sys\n"
        "from keras_tunedconv.cli.main import main\n"
        "try:\n    main(sys.argv[1:])\n"
        "except SystemExit as end:\n    assert end.code in (0, None), end.code\n"
        "print('MODULES', *sys.modules)"
    )
    output = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True
    ).stdout
    return set(output.splitlines()[-1].split()[1:])


def test_help_lists_every_command_and_imports_none():
    loaded = modules_after("--help")
    assert not {module for module, _, _ in COMMANDS.values()} & loaded
    assert not {"keras", "numpy", "tensorflow", "jax", "torch"} & loaded
    text = CliRunner().invoke(main, ["--help"]).output
    for name, (_, _, line) in COMMANDS.items():
        assert name in text
        assert line in text


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_explains_itself_without_importing_a_framework(command):
    loaded = modules_after(command, "--help")
    assert not {"keras", "tensorflow", "jax", "torch"} & loaded


def test_version():
    assert __version__ in CliRunner().invoke(main, ["--version"]).output


def test_an_unknown_command_is_an_error():
    result = CliRunner().invoke(main, ["tunes"])
    assert result.exit_code == 2
    assert "tunes" in result.output
