"""Times of XLA's modules from traces in Chrome's format."""

import gzip
import json

import pytest

from keras_tunedconv.bench.peers import profile


def thread(tid, name):
    return {"ph": "M", "name": "thread_name", "pid": 1, "tid": tid, "args": {"name": name}}


def kernel(module, start, duration, tid=1):
    return {"ph": "X", "pid": 1, "tid": tid, "ts": start, "dur": duration, "args": {"hlo_module": module}}


def test_kernels_are_summed_by_run_and_module():
    trace = {
        "traceEvents": [
            kernel("jit_b", 500.0, 7.0),
            *(kernel("jit_a(3)", 100.0 * run, 10.0 + run) for run in range(3)),
            *(kernel("jit_a(3)", 100.0 * run + 50, 2.0) for run in range(3)),
            {"ph": "X", "pid": 1, "tid": 9, "ts": 0.0, "dur": 99.0, "args": {}},
            {"ph": "X", "pid": 1, "tid": 9, "ts": 0.0, "dur": 99.0},
        ]
    }
    found = profile.run_seconds(trace, ["jit_a", "jit_c"], 3)
    assert found == {"jit_a": pytest.approx([12e-6, 13e-6, 14e-6])}


def test_kernels_that_are_not_so_many_a_run_give_a_mean():
    trace = {"traceEvents": [kernel("jit_a", 100.0 * i, 10.0) for i in range(3)]}
    assert profile.run_seconds(trace, ["jit_a"], 2) == {"jit_a": pytest.approx([15e-6])}


def test_what_overlaps_is_counted_once_and_what_touches_is_not_joined():
    events = [kernel("jit_a", 0.0, 10.0), kernel("jit_a", 2.0, 3.0, tid=2), kernel("jit_a", 10.0, 5.0)]
    found = profile.run_seconds({"traceEvents": events}, ["jit_a"], 2)
    assert found == {"jit_a": pytest.approx([10e-6, 5e-6])}


def test_of_a_gpu_only_the_streams_count():
    events = [
        thread(1, "Stream #20(Compute)"),
        thread(2, "XLA Modules"),
        kernel("jit_a", 0.0, 10.0, tid=1),
        kernel("jit_a", 0.0, 400.0, tid=2),
    ]
    assert profile.run_seconds({"traceEvents": events}, ["jit_a"], 1) == {"jit_a": pytest.approx([10e-6])}


def test_a_trace_is_found_wherever_the_profiler_put_it(tmp_path):
    with pytest.raises(RuntimeError, match=r"left no \*.trace.json.gz"):
        profile.read(tmp_path)
    folder = tmp_path / "plugins" / "profile" / "now"
    folder.mkdir(parents=True)
    (folder / "host.trace.json.gz").write_bytes(gzip.compress(json.dumps({"traceEvents": []}).encode()))
    assert profile.read(tmp_path) == {"traceEvents": []}
