"""The database: whole at every moment, shared by many, never somebody else's file."""

import gc
import os
import resource
import subprocess
import sys
import threading
import time
import warnings
from dataclasses import replace
from pathlib import Path

import filelock
import h5py
import hostile
import pytest
from tuning_data import ELSEWHERE, content, make_record, make_records

from keras_tunedconv.core import registry
from keras_tunedconv.core.errors import TunedConvError, TuningWarning
from keras_tunedconv.tuning import database, flusher, schema
from keras_tunedconv.tuning.database import DatabaseBusyError, DatabaseError, merge_into, read
from keras_tunedconv.tuning.flusher import Flusher
from keras_tunedconv.tuning.merge import identity


@pytest.fixture
def path(tmp_path):
    return tmp_path / "tuning.h5"


def test_entries_come_back(path):
    records = [*make_records(5), *make_records(5, environment=ELSEWHERE)]
    merge_into(path, records)
    assert content(read(path).records) == content(records)


def test_merging_keeps_what_others_wrote(path):
    records = make_records(9)
    merge_into(path, records[:5])
    merged = merge_into(str(path), records[5:])
    assert content(merged.values()) == content(records)
    assert content(read(path).records) == content(records)


def test_the_better_of_two_entries_stays(path):
    slow, fast = make_record(time_seconds=2.0), make_record(time_seconds=1.0)
    merge_into(path, [slow])
    merge_into(path, [fast])
    merge_into(path, [slow])
    assert read(path).records == [fast]


def test_an_entry_that_was_known_and_not_kept_is_replaced(path):
    bogus = make_record(time_seconds=1e-12)
    merge_into(path, [bogus])
    measured = make_record(time_seconds=1.0, created=int(time.time()))
    merge_into(path, [measured])
    assert read(path).records == [bogus]
    merge_into(path, [measured], known={identity(bogus): bogus})
    assert read(path).records == [measured]


def test_nothing_is_written_when_nothing_changed(path):
    merge_into(path, make_records(3))
    before = path.stat()
    merge_into(path, make_records(3, time_seconds=9.0))
    assert path.stat().st_ino == before.st_ino


def test_a_replaced_file_keeps_its_permissions_and_links(path, tmp_path):
    merge_into(path, make_records(1))
    path.chmod(0o640)
    link = tmp_path / "link.h5"
    link.symlink_to(path.name)
    merge_into(link, make_records(2))
    assert link.is_symlink()
    assert path.stat().st_mode & 0o777 == 0o640
    assert len(read(path).records) == 2


def test_when_one_file_cannot_hold_all_the_oldest_give_way(path, monkeypatch):
    monkeypatch.setattr(schema, "MAX_RECORDS", 5)
    monkeypatch.setattr(database, "MAX_RECORDS", 5)
    records = [replace(r, created=1000 + i) for i, r in enumerate(make_records(8))]
    merge_into(path, records)
    assert content(read(path).records) == content(records[3:])
    monkeypatch.setattr(schema, "MAX_TEXT_BYTES", 700)
    merge_into(path, [make_record(environment=ELSEWHERE, created=2000)])
    kept = read(path).records
    assert 0 < len(kept) < 5
    assert max(record.created for record in kept) == 2000


def test_a_missing_file_is_said_to_be_missing(path):
    with pytest.raises(DatabaseError, match="There is no tuning database"):
        read(path)


@pytest.mark.parametrize("contents", [b"", b"text", b"\x89HDF\r\n\x1a\n" + bytes(500)])
def test_a_file_of_something_else_is_neither_read_nor_replaced(path, contents):
    path.write_bytes(contents)
    with pytest.raises(DatabaseError, match="cannot be read as a tuning database"):
        read(path)
    with pytest.raises(DatabaseError, match="cannot be read as a tuning database"):
        merge_into(path, make_records(1))
    assert path.read_bytes() == contents


def test_weights_are_never_replaced(path):
    with h5py.File(path, "w") as opened:
        opened["layers/conv2d/vars/0"] = [1.0, 2.0]
    before = path.read_bytes()
    with pytest.raises(DatabaseError, match="'tuning' is missing"):
        merge_into(path, make_records(1))
    assert path.read_bytes() == before


def test_a_later_version_is_neither_read_nor_replaced(path, monkeypatch):
    monkeypatch.setattr(schema, "VERSION", 2)
    merge_into(path, make_records(1))
    monkeypatch.undo()
    with pytest.raises(DatabaseError, match="upgrade"):
        merge_into(path, make_records(2))


@pytest.mark.parametrize("kind", ["folder", "pipe"])
def test_what_is_no_file_is_not_opened(path, kind):
    path.mkdir() if kind == "folder" else os.mkfifo(path)
    with pytest.raises(DatabaseError, match="not a regular file"):
        read(path)


def test_a_file_too_large_is_not_read(path):
    with path.open("wb") as opened:
        opened.truncate(database.MAX_FILE_BYTES + 1)
    with pytest.raises(DatabaseError, match="at most"):
        read(path)


def test_a_missing_folder_is_an_error_that_names_it(tmp_path):
    with pytest.raises(DatabaseError, match="create it first"):
        merge_into(tmp_path / "missing" / "tuning.h5", make_records(1))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["loop.h5", "nul\0.h5", "x" * 300])
def test_paths_that_name_no_file_are_errors(name, tmp_path):
    (tmp_path / "loop.h5").symlink_to("loop.h5")
    with pytest.raises(DatabaseError):
        merge_into(tmp_path / name, make_records(1))
    with pytest.raises(DatabaseError):
        read(tmp_path / name)


def test_a_folder_that_cannot_be_written_is_an_error():
    with pytest.raises(DatabaseError, match="cannot be locked"):
        merge_into("/proc/tuning.h5", make_records(1))


def test_a_full_disk_leaves_the_old_file(path):
    merge_into(path, make_records(3))
    before = path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(DatabaseError, match="cannot be written"):
            merge_into(path, make_records(300))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir() if p.suffix == ".tmp"] == []


@pytest.mark.parametrize("error", [NotImplementedError("no flock"), OSError(37, "No locks available")])
def test_a_file_system_without_locks_is_an_error(path, monkeypatch, error):
    def acquire(*arguments, **options):
        raise error

    monkeypatch.setattr(filelock.FileLock, "acquire", acquire)
    with pytest.raises(DatabaseError, match="cannot be locked"):
        merge_into(path, make_records(1))


def test_a_lock_held_too_long_is_told_apart(path):
    with filelock.FileLock(f"{path}.lock"), pytest.raises(DatabaseBusyError, match="stayed locked"):
        merge_into(path, make_records(1), timeout=0.05)


def test_every_error_is_one_of_the_package():
    assert issubclass(DatabaseBusyError, DatabaseError)
    assert issubclass(DatabaseError, TunedConvError)


@pytest.mark.parametrize("kind", hostile.KINDS, ids=lambda kind: kind.__name__)
def test_hostile_contents_are_one_warning_and_nothing_else(kind, path, monkeypatch):
    records = make_records(3)
    merge_into(path, records)
    with h5py.File(path, "r+") as opened:
        kind(opened, database.GROUP)
    before = path.read_bytes()
    registry.clear()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        Flusher(path).load()
    told = [str(w.message) for w in caught if issubclass(w.category, TuningWarning)]
    assert len(told) == 1
    assert str(path) in told[0]
    assert registry.collect()[0] == []
    assert path.read_bytes() == before


@pytest.mark.parametrize("link", [h5py.SoftLink("/elsewhere"), h5py.ExternalLink("secret", "/"), None])
def test_a_link_for_the_group_is_refused(link, path):
    merge_into(path, make_records(3))
    with h5py.File(path, "r+") as opened:
        opened.move("tuning", "elsewhere")
        opened["tuning"] = opened["/"] if link is None else link
    with pytest.raises(DatabaseError, match="cannot be read as a tuning database"):
        read(path)


def test_a_malformed_record_is_not_written(path):
    with pytest.raises(ValueError, match="cannot be stored"):
        merge_into(path, [make_record(algorithm="")])
    assert not path.exists()


def test_nothing_stays_open(path):
    gc.collect()  # what earlier tests left may close its files now
    before = set(Path("/proc/self/fd").iterdir())
    merge_into(path, make_records(3))
    merge_into(path, make_records(6))
    read(path)
    assert set(Path("/proc/self/fd").iterdir()) == before
    with filelock.FileLock(f"{path}.lock", timeout=0):
        pass


def test_what_killed_writers_left_is_removed(path):
    left = path.parent / f".{path.name}.123.abc.tmp"
    left.write_bytes(b"half a file")
    other = path.parent / ".other.h5.123.abc.tmp"
    other.write_bytes(b"somebody else's")
    merge_into(path, make_records(1))
    assert not left.exists()
    assert other.exists()


def start(code, *arguments):
    """A process that runs code which uses the tests' helpers."""
    tests = str(Path(__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([tests, os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, env=environment)


# Each of several forked children writes, so that one interpreter's start serves them all.
WRITE_AT_ONCE = """
import os, sys
from tuning_data import make_records
from keras_tunedconv.tuning.database import merge_into

path, writers, count, parts = sys.argv[1], *map(int, sys.argv[2:])
merge_into(path, [])
for writer in range(writers):
    if os.fork() == 0:
        records = make_records(count, environment=f"engine=test;writer={writer}")
        for part in range(parts):
            merge_into(path, records[part::parts], timeout=200.0)
        os._exit(0)
for _ in range(writers):
    assert os.wait()[1] == 0
"""


def write_at_once(path, writers, count, parts):
    with start(WRITE_AT_ONCE, path, writers, count, parts) as process:
        assert process.wait(timeout=250) == 0
    assert len(read(path).records) == writers * count


def test_writers_at_once_lose_nothing(path):
    write_at_once(path, writers=8, count=25, parts=5)


@pytest.mark.slow
def test_eight_writers_with_five_hundred_entries_each(path):
    begin = time.monotonic()
    write_at_once(path, writers=8, count=500, parts=10)
    print(f"\n8 writers x 500 entries in {time.monotonic() - begin:.1f} s, starting Python included")


# Fresh interpreters that share nothing but the file, as jobs of a cluster do.
SPAWN_WRITER = """
import sys
from tuning_data import make_records
from keras_tunedconv.core import registry
from keras_tunedconv.tuning import flusher as module

module._END_TIMEOUT_SECONDS = 200.0  # however slow the disk
path, writer = sys.argv[1:]
flusher = module.Flusher(path)
flusher.load()
for record in make_records(20, environment=f"engine=test;writer={writer}"):
    registry.put(record)
    flusher.flush()
"""


def test_fresh_interpreters_at_once_lose_nothing(path):
    writers = [start(SPAWN_WRITER, path, writer) for writer in range(3)]
    for writer in writers:
        with writer:
            assert writer.wait(timeout=250) == 0
    assert len(read(path).records) == 3 * 20


def test_a_fork_in_the_middle_of_flushes_leaves_both_working(path, monkeypatch):
    monkeypatch.setattr(flusher, "_END_TIMEOUT_SECONDS", 200.0)
    writer, stop = Flusher(path), threading.Event()

    def flush():
        while not stop.is_set():
            for record in make_records(6, created=int(time.time())):
                registry.put(record)
            writer.flush()

    thread = threading.Thread(target=flush)
    thread.start()
    try:
        for child in range(5):
            process = os.fork()
            if process == 0:
                try:
                    registry.put(make_record(environment=f"engine=test;child={child}"))
                    Flusher(path).flush()
                    os._exit(0)
                finally:
                    os._exit(1)
            deadline = time.monotonic() + 200
            while (ended := os.waitpid(process, os.WNOHANG)) == (0, 0):
                assert time.monotonic() < deadline, "the child hangs"
                time.sleep(0.01)
            assert ended[1] == 0
    finally:
        stop.set()
        thread.join()
    writer.flush()
    assert len(read(path).records) == 6 + 5


# Children write without end and are killed at a random moment; after each the file is looked at.
KILL_WRITERS = """
import itertools, os, random, sys
from killing import killed_at_random
from tuning_data import make_records
from keras_tunedconv.tuning.database import merge_into, read

path, kills = sys.argv[1], int(sys.argv[2])
merge_into(path, make_records(60))

def writer():
    turns = itertools.count(1)
    def write():
        environment = f"engine=test;writer={os.getpid()};turn={next(turns) % 9}"
        merge_into(path, make_records(60, environment=environment))
    return write

for _ in killed_at_random(kills, random.Random(1), writer):
    decoded = read(path)
    assert decoded.malformed == 0
    assert len(decoded.records) % 60 == 0
assert len(read(path).records) > 60
"""


def kill_writers(path, kills):
    with start(KILL_WRITERS, path, kills) as process:
        assert process.wait(timeout=1000) == 0
    merge_into(path, make_records(1, environment="engine=last"), timeout=1.0)
    assert [p.name for p in path.parent.iterdir() if p.suffix == ".tmp"] == []


def test_a_killed_writer_leaves_a_whole_file_and_no_lock(path):
    kill_writers(path, 10)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_two_hundred_killed_writers_leave_a_whole_file(path):
    kill_writers(path, 200)
