"""The databases in the package: whole, small, and about the devices they are named after."""

from __future__ import annotations

from pathlib import Path

import pytest

import keras_tunedconv
from keras_tunedconv.core import registry
from keras_tunedconv.core.descriptor import ConvDescriptor
from keras_tunedconv.core.record import Provenance
from keras_tunedconv.tuning import database, search_path

FOLDER = Path(keras_tunedconv.__file__).parent / "databases"
FILES = sorted(FOLDER.glob("*.h5"))


@pytest.fixture(scope="module", params=FILES, ids=lambda path: path.stem)
def decoded(request):
    return database.read(request.param)


def test_they_fit_into_a_wheel():
    assert FILES
    assert sum(path.stat().st_size for path in FILES) < 1 << 20


def test_each_entry_is_a_measured_convolution(decoded):
    assert decoded.malformed == 0
    for record in decoded.records:
        assert ConvDescriptor.from_key(record.key).key == record.key
        assert record.provenance is Provenance.MEASURED
        assert 0 < record.time_seconds <= record.default_seconds
    assert len({(r.key, r.environment) for r in decoded.records}) == len(decoded.records) > 0


def test_entries_of_a_gpu_are_offered_as_shipped_ones(decoded, monkeypatch):
    monkeypatch.setenv("KERAS_TUNEDCONV_SEARCH_PATH", "1")
    monkeypatch.setattr(search_path, "user_folder", lambda: FOLDER / "none")
    monkeypatch.delenv(search_path.FOLDERS_VARIABLE, raising=False)
    offered = []
    monkeypatch.setattr(search_path, "offer_all", lambda records: offered.extend(records) or [])
    search_path.offer("cuda")
    keys = {record.key for record in offered if record.provenance is Provenance.SHIPPED}
    assert {record.key for record in decoded.records if "engine=cudnn" in record.environment} <= keys


def test_the_core_takes_them(decoded):
    before = registry.collect(0)[1]
    for record in decoded.records[:50]:
        registry.put(record)
    kept = {record.key for record in registry.collect(before)[0]}
    assert {record.key for record in decoded.records[:50]} <= kept
    registry.clear()
