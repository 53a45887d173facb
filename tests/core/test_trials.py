"""What became of each candidate, as Python sees it, with the real oneDNN."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from keras_tunedconv.core import engines, registry, trials
from keras_tunedconv.core.config import config
from keras_tunedconv.core.descriptor import ConvDescriptor, forward_descriptor
from keras_tunedconv.core.trials import Search, TrialState

DESCRIPTOR = forward_descriptor((2, 12, 12, 16), (3, 3, 16, 16), padding="same")


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    engines.ensure_open("cpu")
    registry.clear()
    yield
    registry.clear()


def run(descriptor: ConvDescriptor = DESCRIPTOR) -> None:
    rng = np.random.default_rng(0)
    x, w, y = (
        rng.standard_normal(np.prod(dims), dtype="float32")
        for dims in (descriptor.x_dims, descriptor.w_dims, descriptor.y_dims)
    )
    engines.convolve(descriptor, x, w, y)


def searched(**settings: object) -> Search:
    # Of so few runs every sample is kept, also where noise asks for as many again as there may be.
    patient = {"key_budget": 200.0, "process_budget": 250.0, "minimum_runs": 4}
    with config.override(record_candidates=True, **patient, **settings):
        run()
    (search,), _ = trials.collect()
    return search


def test_off_is_the_default() -> None:
    assert config.record_candidates is False
    run()
    assert registry.stats()["measured"] == 1
    assert trials.collect()[0] == []


def test_every_candidate_is_told_of() -> None:
    search = searched()
    (record,), _ = registry.collect()
    assert (search.key, search.environment) == (record.key, record.environment)
    names = engines.candidates(DESCRIPTOR)
    assert [trial.algorithm for trial in search.trials] == names[: len(search.trials)]
    assert len(search.trials) == record.candidates_total
    assert [trial.order for trial in search.trials] == list(range(len(search.trials)))
    (winner,) = (trial for trial in search.trials if trial.state is TrialState.WON)
    assert winner.algorithm == record.algorithm
    assert winner.seconds == winner.median_seconds == record.time_seconds
    assert winner.workspace_bytes == record.workspace_bytes
    assert np.median(winner.samples) == pytest.approx(winner.median_seconds)
    for trial in search.trials:
        assert trial.state is not TrialState.NOT_TRIED
        if trial.state in (TrialState.WON, TrialState.FINALIST, TrialState.SLOW):
            assert trial.seconds > 0
            assert trial.screen_seconds >= trial.plan_seconds > 0
            assert trial.reason == ""


def test_a_failure_has_its_reason() -> None:
    needed = {trial.algorithm: trial.workspace_bytes for trial in searched().trials}
    limit = min(needed.values())
    registry.clear()
    search = searched(workspace_limit=limit)
    failed = [trial for trial in search.trials if trial.state is TrialState.FAILED]
    assert {trial.algorithm for trial in failed} >= {
        name for name, size in needed.items() if size > limit + 65536
    }
    assert failed
    assert all("workspace" in trial.reason for trial in failed)


def test_collect_gives_each_search_once() -> None:
    searched()
    _, since = trials.collect()
    assert trials.collect(since) == ([], since)
    with config.override(record_candidates=True):
        run(forward_descriptor((3, 12, 12, 16), (1, 1, 16, 16)))
    # A batch size of a convolution that is known is copied, not searched; another kernel is not.
    (search,), _ = trials.collect(since)
    assert "1x1" in search.key
