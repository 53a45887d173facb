"""What refusing a hostile file takes: bounded memory, and no time to speak of."""

import json
import os
import subprocess
import sys
from pathlib import Path

import hostile
import pytest

# Each load runs in a forked child of one process that has all imported; Keras's numpy backend may fork.
# Prints seconds and bytes of each, the latter as the kernel counts them.
LOAD_EACH = """
import json, os, resource, sys, time, warnings
from pathlib import Path
import h5py, keras
import hostile
from tuning_data import build, fill, make_records
from keras_tunedconv import TunedConv2D
from keras_tunedconv.core import registry
from keras_tunedconv.tuning import database, flusher

folder = Path(sys.argv[1])
model, twin = build("sequential", TunedConv2D), build("sequential", TunedConv2D)
fill(model)
registry.clear()

def model_file(path):
    model.save_weights(path)
    return "layers/conv2d/tuning/vars"

def database_file(path):
    database.merge_into(path, make_records(3))
    return "tuning"

def load_database(path):
    flusher.Flusher(path).load()

def measure(load, path):
    read, write = os.pipe()
    if os.fork() == 0:
        warnings.simplefilter("ignore")
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        begin = time.monotonic()
        load(path)
        seconds = time.monotonic() - begin
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        os.write(write, json.dumps([seconds, peak - pages * resource.getpagesize()]).encode())
        os._exit(0)
    assert os.wait()[1] == 0, path
    result = json.loads(os.read(read, 1000))
    os.close(read), os.close(write)
    return result

places = ("model", model_file, twin.load_weights), ("database", database_file, load_database)
for what, make, load in places:
    for kind in hostile.KINDS:
        path = folder / f"{what}.weights.h5"
        place = make(path)
        with h5py.File(path, "r+") as file:
            kind(file, place)
        print(json.dumps([what, kind.__name__, *measure(load, path)]), flush=True)
        path.unlink()
"""
LARGEST_BYTES = 100 * 2**20


@pytest.fixture(scope="module")
def costs(tmp_path_factory):
    """Seconds and bytes of each kind, in a model's file and in a database."""
    environment = {
        **os.environ,
        "KERAS_BACKEND": "numpy",
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]),
    }
    command = [sys.executable, "-c", LOAD_EACH, tmp_path_factory.mktemp("hostile")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr[-3000:]
    return {(what, kind): rest for what, kind, *rest in map(json.loads, done.stdout.splitlines())}


@pytest.mark.parametrize("what", ["model", "database"])
def test_memory_stays_bounded(what, costs):
    most = {kind: bytes_ for (where, kind), (_, bytes_) in costs.items() if where == what}
    assert set(most) == {kind.__name__ for kind in hostile.KINDS}
    assert max(most.values()) < LARGEST_BYTES, most


@pytest.mark.slow
@pytest.mark.parametrize("what", ["model", "database"])
def test_refusing_takes_no_time(what, costs):
    for (where, kind), (seconds, bytes_) in sorted(costs.items(), key=lambda item: -item[1][0]):
        if where == what:
            print(f"{what} {kind}: {seconds * 1000:.0f} ms, {bytes_ / 2**20:.0f} MiB")
            assert seconds < 200  # a hang; the figure is what is printed
