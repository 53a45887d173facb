"""The callback: when entries are gathered and written, and that it never stops training."""

import errno
import gc
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import filelock
import h5py
import keras
import numpy as np
import pytest
from tuning_data import build, content, entries, fill, make_keys, make_record, make_records

from keras_tunedconv import TunedConv2D, TuningCallback
from keras_tunedconv.core import engines, registry
from keras_tunedconv.core.descriptor import ConvDescriptor
from keras_tunedconv.core.errors import TuningWarning
from keras_tunedconv.layers import tuned_conv2d
from keras_tunedconv.tuning import database, flusher, replacing


@pytest.fixture(autouse=True)
def _stock_convolution(monkeypatch):
    """Entries come from the tests alone; no callback of an earlier one comes to its end in the middle."""
    gc.collect()
    monkeypatch.setattr(tuned_conv2d, "convolution", lambda *a, **k: None)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "tuning.h5"


X = np.ones((8, 16, 16, 3), "float32")


def compiled():
    model = build("sequential", TunedConv2D)
    model.compile("sgd", "mse")
    fill(model)
    return model, np.ones((8, model.output_shape[1]), "float32")


def late_records(model, batch):
    """Entries of another batch size for every layer of a model, as a short last batch makes them."""
    return [
        make_record(key.replace("8x", f"{batch}x"))
        for key in [record.key for records in entries(model) for record in records]
    ]


class Spy(keras.callbacks.Callback):
    """Calls a function at the moments of a run."""

    def __init__(self, **moments):
        super().__init__()
        for moment, function in moments.items():
            setattr(self, moment, lambda *_, function=function, **__: function())


def put_all(records):
    for record in records:
        registry.put(record)


# ---- into the layers -------------------------------------------------------------------------------


def test_entries_are_in_the_layers_after_the_first_epoch():
    model, y = compiled()
    records = late_records(model, 5)
    counts = []
    spy = Spy(
        on_train_batch_end=lambda: put_all(records),
        on_epoch_end=lambda: counts.append([len(r) for r in entries(model)]),
    )
    model.fit(X, y, epochs=2, verbose=0, callbacks=[TuningCallback(), spy])
    assert counts == [[6, 6], [6, 6]]


def test_entries_of_later_steps_follow():
    model, y = compiled()
    epochs = iter([late_records(model, 5), late_records(model, 6)])
    spy = Spy(on_epoch_begin=lambda: put_all(next(epochs)))
    model.fit(X, y, epochs=2, verbose=0, callbacks=[spy, TuningCallback()])
    assert [len(records) for records in entries(model)] == [9, 9]


@pytest.mark.parametrize("moment", ["on_train_end", "on_test_end", "on_predict_end"])
def test_entries_are_gathered_at_the_end_of_whatever_ran(moment):
    model, y = compiled()
    records = late_records(model, 5)
    callbacks = [Spy(**{moment: lambda: put_all(records)}), TuningCallback()]
    if moment == "on_train_end":
        model.fit(X, y, verbose=0, callbacks=callbacks)
    elif moment == "on_test_end":
        model.evaluate(X, y, verbose=0, callbacks=callbacks)
    else:
        model.predict(X, verbose=0, callbacks=callbacks)
    assert [len(r) for r in entries(model)] == [6, 6]


def test_layers_inside_models_and_wrappers_are_found():
    inner = keras.Sequential([keras.Input((16, 16, 3)), TunedConv2D(2, 3)])
    inputs = keras.Input((2, 16, 16, 3))
    outer = keras.Model(inputs, keras.layers.TimeDistributed(inner)(inputs))
    subclassed = build("subclassed", TunedConv2D)
    for model, count in ((outer, 1), (subclassed, 3)):
        registry.clear()
        fill(model)
        put_all(late_records(model, 5))
        callback = TuningCallback()
        callback.set_model(model)
        callback.on_epoch_end(0)
        assert [len(r) for r in entries(model)] == [6] * count


@pytest.mark.parametrize("first", [True, False])
def test_checkpoints_before_and_after_it_have_the_entries(first, tmp_path):
    model, y = compiled()
    checkpoint = keras.callbacks.ModelCheckpoint(tmp_path / "m.keras")
    callbacks = [TuningCallback(), checkpoint] if first else [checkpoint, TuningCallback()]
    spy = Spy(on_train_batch_end=lambda: put_all(late_records(model, 5)))
    model.fit(X, y, verbose=0, callbacks=[spy, *callbacks])
    assert entries(keras.models.load_model(tmp_path / "m.keras")) == entries(model)
    assert [len(r) for r in entries(model)] == [6, 6]


def test_warnings_of_the_core_are_shown():
    descriptor = ConvDescriptor.from_key(make_keys((2, 8, 8, 4), (3, 3, 4, 4))[0])
    wrong = make_record(descriptor.key, environment=engines.environment("cpu"), algorithm="no such algorithm")
    arrays = [np.ones(shape, "float32") for shape in ((2, 8, 8, 4), (3, 3, 4, 4), (2, 6, 6, 4))]

    def run():
        registry.put(wrong)
        engines.convolve(descriptor, *arrays)

    model, y = compiled()
    with pytest.warns(TuningWarning, match="no such algorithm"):
        model.fit(X, y, verbose=0, callbacks=[Spy(on_epoch_begin=run), TuningCallback()])


# ---- into a file -----------------------------------------------------------------------------------


def test_a_run_writes_what_it_measured(path):
    model, y = compiled()
    model.fit(X, y, verbose=0, callbacks=[TuningCallback(path)])
    assert content(database.read(path).records) == content(registry.collect()[0])


def test_the_next_run_knows_it(path):
    records = make_records(5)
    database.merge_into(path, records)
    model, y = compiled()
    model.fit(X, y, verbose=0, callbacks=[TuningCallback(str(path))])
    assert set(content(records)) <= set(content(registry.collect()[0]))


def test_a_run_that_learns_nothing_leaves_the_file_alone(path, monkeypatch):
    model, y = compiled()
    model.fit(X, y, verbose=0, callbacks=[TuningCallback(path)])
    registry.clear()
    monkeypatch.setattr(
        database, "merge_into", lambda *a, **k: pytest.fail("the file was opened for writing")
    )
    model.fit(X, y, epochs=2, verbose=0, callbacks=[TuningCallback(path)])
    assert content(registry.collect()[0]) == content(database.read(path).records)


@pytest.mark.parametrize("run", ["evaluate", "predict"])
def test_evaluation_and_prediction_read_and_write_it_too(run, path):
    database.merge_into(path, make_records(5, environment="engine=other"))
    model, y = compiled()
    arguments = (X, y) if run == "evaluate" else (X,)
    getattr(model, run)(*arguments, verbose=0, callbacks=[TuningCallback(path)])
    assert len(database.read(path).records) == 11


def test_entries_are_written_as_they_come_and_at_most_once_a_second(path, monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(flusher.time, "monotonic", lambda: clock[0])
    callback = TuningCallback(path)

    def step(seconds, *records):
        clock[0] += seconds
        put_all(records)
        callback.on_train_batch_end(0)
        return len(database.read(path).records) if path.exists() else 0

    first, second, third, fourth = make_records(4)
    assert step(0.0, first) == 1
    assert step(0.5, second) == 1
    assert step(0.6, third) == 3
    written = path.stat().st_ino
    assert step(5.0) == 3
    assert path.stat().st_ino == written
    assert step(1.1, fourth) == 4


def test_a_step_does_not_wait_for_another_writer(path, monkeypatch):
    monkeypatch.setattr(flusher, "_END_TIMEOUT_SECONDS", 1000.0)  # as the end of a run would
    callback = TuningCallback(path)
    put_all(make_records(1))
    with filelock.FileLock(f"{path}.lock"):
        begin = time.monotonic()
        callback.on_train_batch_end(0)
        assert time.monotonic() - begin < 200
    assert not path.exists()
    callback._flusher._next_time = 0.0
    callback.on_train_batch_end(0)
    assert len(database.read(path).records) == 1


def test_without_a_file_steps_do_nothing(monkeypatch):
    def forbidden(*arguments):
        raise AssertionError("the registry was read in a step")

    monkeypatch.setattr(registry, "collect", forbidden)
    callback = TuningCallback()
    callback.on_train_batch_end(0)
    callback.on_test_batch_end(0)
    callback.on_predict_batch_end(0)


def test_keras_need_not_wait_for_steps_on_its_account():
    assert TuningCallback.async_safe is True


def test_what_was_wrong_in_the_file_is_replaced_by_what_runs(path):
    wrong = make_record(algorithm="nonsense", time_seconds=1e-12, created=1000)
    database.merge_into(path, [wrong])
    model, y = compiled()
    measured = make_record(algorithm="measured", time_seconds=1.0)
    model.fit(
        X, y, verbose=0, callbacks=[TuningCallback(path), Spy(on_epoch_begin=lambda: put_all([measured]))]
    )
    assert "measured" in [record.algorithm for record in database.read(path).records]
    assert "nonsense" not in [record.algorithm for record in database.read(path).records]


# ---- trouble ---------------------------------------------------------------------------------------


def bad_paths(tmp_path):
    text = tmp_path / "text.h5"
    text.write_bytes(b"not a database")
    weights = tmp_path / "m.weights.h5"
    with h5py.File(weights, "w") as opened:
        opened["layers/dense/vars/0"] = [1.0]
    folder = tmp_path / "folder.h5"
    folder.mkdir()
    return {
        "missing folder": tmp_path / "no" / "t.h5",
        "text": text,
        "weights": weights,
        "folder": folder,
        "read-only": Path("/proc/t.h5"),
    }


@pytest.mark.parametrize("case", ["missing folder", "text", "weights", "folder", "read-only"])
def test_trouble_with_the_file_is_one_warning_and_training_goes_on(case, tmp_path):
    path = bad_paths(tmp_path)[case]
    before = path.read_bytes() if path.is_file() else None
    model, y = compiled()
    with pytest.warns(TuningWarning, match="Training goes on") as caught:
        history = model.fit(X, y, epochs=3, batch_size=2, verbose=0, callbacks=[TuningCallback(path)])
    told = [w for w in caught if issubclass(w.category, TuningWarning)]
    assert len(told) == 1
    assert str(path) in str(told[0].message)
    assert len(history.history["loss"]) == 3
    assert [len(r) for r in entries(model)] == [3, 3]
    assert (path.read_bytes() if path.is_file() else None) == before


def full_disk(monkeypatch):
    def fsync(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(replacing.os, "fsync", fsync)


def no_locks(monkeypatch):
    def acquire(*arguments, **options):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(filelock.FileLock, "acquire", acquire)


def read_only_folder(monkeypatch):
    def forbidden(path, *arguments, **options):
        if str(path).endswith(".lock"):
            raise PermissionError(errno.EROFS, "Read-only file system")
        return opened(path, *arguments, **options)

    opened = os.open
    monkeypatch.setattr(database.os, "open", forbidden)


@pytest.mark.parametrize("exists", [True, False])
@pytest.mark.parametrize("trouble", [full_disk, no_locks, read_only_folder])
def test_trouble_with_the_disk_is_one_warning_and_training_goes_on(trouble, exists, path, monkeypatch):
    if exists:
        database.merge_into(path, make_records(2, environment="engine=other"))
    before = path.read_bytes() if exists else None
    model, y = compiled()
    with monkeypatch.context() as patched:
        trouble(patched)
        with pytest.warns(TuningWarning, match="Training goes on") as caught:
            history = model.fit(X, y, epochs=3, batch_size=2, verbose=0, callbacks=[TuningCallback(path)])
    told = [w for w in caught if issubclass(w.category, TuningWarning)]
    assert len(told) == 1
    assert str(path) in str(told[0].message)
    assert len(history.history["loss"]) == 3
    assert (path.read_bytes() if path.exists() else None) == before
    assert [p.name for p in path.parent.iterdir() if p.suffix == ".tmp"] == []
    model.fit(X, y, verbose=0, callbacks=[TuningCallback(path)])  # all is well again
    assert len(database.read(path).records) == (2 if exists else 0) + 6


def test_a_folder_that_appears_later_is_used(tmp_path):
    path = tmp_path / "later" / "tuning.h5"
    model, y = compiled()
    with pytest.warns(TuningWarning, match="create it first"):
        model.fit(
            X,
            y,
            epochs=2,
            verbose=0,
            callbacks=[
                Spy(on_epoch_begin=lambda: None),
                TuningCallback(path),
                Spy(on_epoch_end=lambda: path.parent.mkdir(exist_ok=True)),
            ],
        )
    assert len(database.read(path).records) == 6


def test_malformed_entries_of_a_file_are_told_once(path):
    record = make_record(key=make_record().key.replace("groups=1", "groups=9"))
    database.merge_into(path, [record, *make_records(2)])
    model, y = compiled()
    with pytest.warns(TuningWarning, match=r"1 entries of .*tuning.h5 were ignored") as caught:
        model.fit(X, y, epochs=2, verbose=0, callbacks=[TuningCallback(path)])
    assert len([w for w in caught if issubclass(w.category, TuningWarning)]) == 1


def test_an_interrupt_loses_nothing(path, tmp_path):
    model, y = compiled()

    def interrupt():
        put_all(late_records(model, 5))
        raise KeyboardInterrupt

    callback = TuningCallback(path)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, y, verbose=0, callbacks=[callback, Spy(on_train_batch_begin=interrupt)])
    model.save_weights(tmp_path / "m.weights.h5")
    assert [len(r) for r in entries(model)] == [6, 6]
    del callback
    model = None
    gc.collect()
    assert len(database.read(path).records) == 12


SCRIPT = """
import os, signal, sys, time
import numpy as np, keras
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job inherits that it is ignored
sys.path.insert(0, {tests!r})
from tuning_data import build, fill, make_records
from keras_tunedconv import TunedConv2D, TuningCallback
from keras_tunedconv.core import registry
from keras_tunedconv.layers import tuned_conv2d
tuned_conv2d.convolution = lambda *a, **k: None

class During(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        if batch == 2:
            for record in make_records(5):
                registry.put(record)
            {during}

model = keras.Sequential([keras.Input((16, 16, 3)), TunedConv2D(2, 3), keras.layers.GlobalMaxPooling2D()])
model.compile("sgd", "mse")
model.fit(np.ones((400, 16, 16, 3)), np.ones((400, 2)), batch_size=2, epochs=1000, verbose=0,
          callbacks=[During(), TuningCallback({path!r})])
"""


def run_script(path, during):
    tests = str(Path(__file__).parent)
    code = textwrap.dedent(SCRIPT).format(tests=tests, path=str(path), during=during)
    return subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)


def test_leaving_python_in_the_middle_writes_what_is_left(path):
    process = run_script(path, "sys.exit(3)")
    _, error = process.communicate(timeout=200)
    assert process.returncode == 3, error
    assert len(database.read(path).records) == 5


def test_ctrl_c_in_fit_writes_what_is_left(path):
    process = run_script(path, "os.kill(os.getpid(), signal.SIGINT)")
    try:
        _, error = process.communicate(timeout=200)
    finally:
        process.kill()
    assert process.returncode != 0
    assert "KeyboardInterrupt" in error
    assert len(database.read(path).records) == 5


def test_a_killed_run_has_written_its_steps_of_a_second_ago(path):
    process = run_script(path, "pass")
    deadline = time.monotonic() + 200
    while time.monotonic() < deadline and not (path.exists() and len(database.read(path).records) == 5):
        time.sleep(0.2)
        assert process.poll() is None, process.stderr.read()
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert len(database.read(path).records) == 5


def test_a_forked_copy_of_the_process_writes_nothing_at_its_exit(path, monkeypatch):
    callback = TuningCallback(path)
    put_all(make_records(1))
    with monkeypatch.context() as child:
        child.setattr(flusher.os, "getpid", lambda: -1)
        callback._flusher.flush_at_exit()
    assert not path.exists()
    callback._flusher.flush_at_exit()
    assert len(database.read(path).records) == 1
