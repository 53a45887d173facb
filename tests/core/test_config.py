"""Settings: what is allowed, what is refused, and that all or nothing changes."""

from __future__ import annotations

import copy
import math
import os
import subprocess
import sys

import pytest

from keras_tunedconv.core.config import config


@pytest.fixture(autouse=True)
def restored():
    with config.override():
        yield


def test_defaults():
    assert config.tune is True
    assert config.mode == "search"
    assert config.verify is True
    assert config.key_budget == 2.0
    assert config.process_budget == 60.0
    assert config.margin == 0.03
    assert config.workspace_limit == 1 << 30
    assert (config.batch_policy, config.copies_before_measuring, config.maximum_sizes) == ("nearest", 20, 1)


def test_tune_is_the_heuristic_mode():
    config.tune = False
    assert config.mode == "heuristic"
    config.tune = True
    assert config.mode == "search"


def test_override_restores():
    with config.override(tune=False, key_budget=0.25):
        assert (config.tune, config.key_budget) == (False, 0.25)
    assert (config.tune, config.key_budget) == (True, 2.0)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("key_budget", 0),
        ("key_budget", -1.0),
        ("key_budget", math.nan),
        ("process_budget", 0.0),
        ("process_budget", math.nan),
        ("margin", -0.1),
        ("margin", math.nan),
        ("drop_ratio", 0.5),
        ("minimum_runs", 0),
        ("minimum_runs", 2**40),
        ("workspace_limit", -1),
        ("mode", "fastest"),
        ("batch_policy", "closest"),
        ("copies_before_measuring", 0),
        ("maximum_sizes", 0),
        ("maximum_sizes", 1025),
        ("key_budget", "soon"),
    ],
)
def test_nonsense_is_refused_and_changes_nothing(name, value):
    before = repr(config)
    with pytest.raises(ValueError) as error:
        setattr(config, name, value)
    assert len(str(error.value)) > 20
    assert repr(config) == before


def test_all_or_nothing():
    with pytest.raises(ValueError):
        config.update(key_budget=0.5, margin=-1.0)
    assert config.key_budget == 2.0


def test_an_unknown_setting_lists_the_known():
    with pytest.raises(AttributeError, match="process_budget"):
        config.budget = 3
    with pytest.raises(AttributeError, match="process_budget"):
        _ = config.budget


def test_copying_code_sees_no_settings():
    assert copy.copy(config).mode == config.mode
    assert dir(config) == ["override", "update"]


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_environment_variables():
    code = "from keras_tunedconv.core.config import config as c; print(c.mode, c.key_budget)"
    assert run(code, KERAS_TUNEDCONV_TUNE="0", KERAS_TUNEDCONV_KEY_BUDGET="0.5").stdout == "heuristic 0.5\n"
    failed = run(code, KERAS_TUNEDCONV_TUNE="perhaps")
    assert failed.returncode != 0
    assert "KERAS_TUNEDCONV_TUNE must be 0 or 1" in failed.stderr


@pytest.mark.parametrize("name", ["KEY_BUDGET", "PROCESS_BUDGET"])
@pytest.mark.parametrize("budget", ["0", "-1", "nan"])
def test_budgets_in_the_environment_are_refused_as_elsewhere(name, budget):
    failed = run("import keras_tunedconv.core.config", **{f"KERAS_TUNEDCONV_{name}": budget})
    assert failed.returncode != 0
    assert f"{name.lower()} must be above 0" in failed.stderr


@pytest.mark.parametrize(
    "settings",
    [{"tune": "no"}, {"tune": 2}, {"verify": "off"}, {"record_candidates": "yes"}, {"minimum_runs": 2.5}],
)
def test_what_would_only_become_a_value_by_chance_is_refused(settings):
    (name,) = settings
    before = getattr(config, name)
    with pytest.raises(ValueError, match=f"{name} must be (True or False|an integer)"):
        config.update(**settings)
    assert getattr(config, name) == before


def test_messages_name_the_setting():
    with pytest.raises(ValueError, match=r"^key_budget must be above 0"):
        config.key_budget = -1
    with pytest.raises(ValueError, match=r"^workspace_limit must be"):
        config.workspace_limit = -5
