"""Real files with a few bytes changed: no crash, no hang, and weights whose bytes are sound load."""

import random
import time
import warnings

import h5py
import numpy as np
import pytest
from tuning_data import build, make_records

from keras_tunedconv.core import registry
from keras_tunedconv.layers.tuned_conv2d import TunedConv2D
from keras_tunedconv.tuning import database
from keras_tunedconv.tuning.flusher import Flusher


@pytest.fixture
def database_file(tmp_path):
    path = tmp_path / "tuning.h5"
    database.merge_into(path, make_records(30))
    return path


class Damage:
    """Damaged copies of a file, the same each time; notes how long the slowest took.

    Args:
        path: The file.
        places: Ranges of bytes that may be changed; all of them, and the length, when none are given.
    """

    def __init__(self, path, places=()):
        self._original = path.read_bytes()
        self._bytes = [at for part in places for at in part] or range(len(self._original))
        self._whole = not places
        self._chance = random.Random(0)
        self._changed = path.with_name(f"changed-{path.name}")
        self.longest_seconds = 0.0

    def copies(self, count):
        for _ in range(count):
            self._changed.write_bytes(self._damaged())
            registry.clear()
            begin = time.monotonic()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                yield self._changed
            seconds = time.monotonic() - begin
            assert seconds < 200  # a hang, not a figure
            self.longest_seconds = max(self.longest_seconds, seconds)

    def _damaged(self):
        data, chance = bytearray(self._original), self._chance
        for _ in range(chance.choice((1, 1, 2, 8))):
            at = chance.choice(self._bytes)
            data[at] = chance.choice((0, 255, data[at] ^ 1 << chance.randrange(8), chance.randrange(256)))
        if self._whole and chance.randrange(8) == 0:
            del data[chance.randrange(len(data)) :]
        elif self._whole and chance.randrange(8) == 0:
            at, other = chance.randrange(len(data)), chance.randrange(len(data))
            data[at : at + 64] = data[other : other + 64]
        return data


def ranges_of_entries(path):
    """Where entries and the groups they are in lie in a file."""
    found = []

    def visit(name, item):
        if "/tuning" not in name:
            return
        header = h5py.h5o.get_info(item.id)
        found.append(range(header.addr, header.addr + header.hdr.space.total))
        if isinstance(item, h5py.Dataset):
            found.append(range(item.id.get_offset(), item.id.get_offset() + item.id.get_storage_size()))

    with h5py.File(path) as opened:
        opened.visititems(visit)
    return found


def assert_sound(records):
    for record in records:
        assert record.time_seconds >= 0
        assert record.key.isprintable()


def load_with_damaged_entries(saved, count):
    model, path = saved
    twin, damage = build("sequential", TunedConv2D), Damage(path, ranges_of_entries(path))
    expected = model.get_weights()
    for changed in damage.copies(count):
        for weight in twin.weights:
            weight.assign(np.zeros(weight.shape, "float32"))
        twin.load_weights(changed)
        for one, other in zip(expected, twin.get_weights(), strict=True):
            np.testing.assert_array_equal(one, other)
        assert_sound(registry.collect()[0])
    return damage.longest_seconds


def load_damaged_files(saved, count):
    twin, damage = build("sequential", TunedConv2D), Damage(saved[1])
    for changed in damage.copies(count):
        try:
            twin.load_weights(changed)
        except (MemoryError, SystemError):
            raise
        except Exception:  # Keras refuses the file, in whatever way HDF5 made it
            continue
    return damage.longest_seconds


def load_damaged_databases(path, count):
    damage = Damage(path)
    for changed in damage.copies(count):
        before = changed.read_bytes()
        flusher = Flusher(changed)
        flusher.load()
        assert_sound(registry.collect()[0])
        flusher.flush()
        assert changed.read_bytes() == before  # nothing was learnt, so nothing is written
    return damage.longest_seconds


def test_damaged_entries_leave_the_weights(saved):
    load_with_damaged_entries(saved, 150)


def test_damaged_files_load_or_are_refused(saved):
    load_damaged_files(saved, 100)


def test_damaged_databases_load_or_are_refused(database_file):
    load_damaged_databases(database_file, 200)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_ten_thousand_damaged_files(saved, database_file):
    longest = max(
        load_with_damaged_entries(saved, 6000),
        load_damaged_files(saved, 2000),
        load_damaged_databases(database_file, 2000),
    )
    print(f"\n10,000 mutated files: no crash, weights loaded, the slowest took {longest:.2f} s")
