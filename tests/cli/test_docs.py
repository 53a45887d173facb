"""`keras-tunedconv docs`: the texts are there, and say what is so."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import keras_tunedconv
from keras_tunedconv.cli.main import main
from keras_tunedconv.core.config import config
from keras_tunedconv.core.descriptor import ConvDescriptor
from keras_tunedconv.core.record import Provenance
from keras_tunedconv.tuning import schema, trial_schema

FOLDER = Path(keras_tunedconv.__file__).parent / "docs"
TOPICS = ("engines", "file-format", "key", "policies")


def run(*arguments):
    return CliRunner().invoke(main, ["docs", *arguments])


def test_topics_are_listed_with_their_titles():
    output = run().output
    assert [line.split()[0] for line in output.splitlines()[:-1]] == list(TOPICS)
    assert "Adding an engine" in output
    assert str(FOLDER) in output


@pytest.mark.parametrize("topic", TOPICS)
def test_a_topic_is_printed(topic):
    result = run(topic)
    assert result.exit_code == 0
    assert result.output.strip() == (FOLDER / f"{topic}.md").read_text().strip()
    mentioned = re.findall(r"keras-tunedconv docs ([\w-]+)", result.output)
    assert set(mentioned) <= set(TOPICS)


def test_an_unknown_topic_is_an_error_that_lists_those_there_are():
    result = run("sequels")
    assert result.exit_code == 2
    for topic in TOPICS:
        assert topic in result.output


def test_the_columns_are_those_of_the_schema():
    text = (FOLDER / "file-format.md").read_text()
    rows = [line for line in text.splitlines() if re.match(r"\| \d+ \|", line)]
    assert len(rows) == schema.COLUMN_COUNT
    assert f"{schema.COLUMN_COUNT} columns" in text
    assert f"{trial_schema.COLUMN_COUNT} columns" in text
    assert f"`keras_tunedconv tuning {schema.VERSION}`" in text
    assert f"`keras_tunedconv candidates {trial_schema.VERSION}`" in text
    assert f"{schema.MAX_RECORDS:,} entries" in text
    for provenance in Provenance:
        if provenance is not Provenance.DEFAULT:
            assert f"{int(provenance)} {provenance.name.lower()}" in text


def test_the_example_of_a_key_is_one():
    text = (FOLDER / "key.md").read_text()
    key = "".join(re.search(r"    (forward\|.*\n)    (stride.*\n)", text).groups()).replace("\n", "")
    assert ConvDescriptor.from_key(key).key == key


def test_the_numbers_of_the_policies_are_the_defaults():
    text = (FOLDER / "policies.md").read_text()
    assert f"come back {config.copies_before_measuring} times" in text
    assert config.maximum_sizes == 1
    assert "40 image sizes measure no more than one" in text


def test_no_backend_is_imported():
    code = (
        "import sys; from keras_tunedconv.cli.main import main; main(['docs'], standalone_mode=False); "
        "print(sorted({'keras', 'tensorflow', 'jax', 'torch'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
