"""A layer's entries: found by content, kept for every environment, told apart from what Keras tracks."""

import copy
import pickle
import threading
import warnings
from dataclasses import replace

import keras
import numpy as np
import pytest
from tuning_data import (
    ELSEWHERE,
    HERE,
    build,
    content,
    fill,
    make_keys,
    make_record,
    make_records,
    own_warnings,
    tuned_layers,
)

from keras_tunedconv.core import registry
from keras_tunedconv.core.errors import TuningWarning
from keras_tunedconv.layers.tuned_conv2d import TunedConv2D
from keras_tunedconv.tuning import environments, schema
from keras_tunedconv.tuning.cache import TuningCache

SHAPES = {"x_shape": (8, 16, 16, 3), "kernel_shape": (3, 3, 3, 4)}
CALL = {"dtype": "float32", "strides": (1, 1), "padding": "same", "data_format": "channels_last"}
KEYS = make_keys(*SHAPES.values(), padding="same")


@pytest.fixture(autouse=True)
def _environment(monkeypatch):
    monkeypatch.setattr(environments, "current", lambda: frozenset((HERE,)))


def traced(x_shape=SHAPES["x_shape"], **changes):
    cache = TuningCache("conv2d")
    cache.note(**{**SHAPES, **CALL, "dilation_rate": (1, 1), "x_shape": x_shape, **changes})
    return cache


def saved(cache):
    store = {}
    cache.save_own_variables(store)
    return store


def test_entries_are_found_by_what_they_are():
    for key in KEYS:
        registry.put(make_record(key))
    registry.put(make_record(make_keys((8, 16, 16, 3), (3, 3, 3, 4), padding="valid")[0]))
    registry.put(make_record(make_keys((8, 16, 16, 3), (3, 3, 3, 5), padding="same")[0]))
    cache = traced()
    assert cache.collect() == 3
    assert [record.key for record in cache.records()] == KEYS
    assert [list(part) for part in cache.values()] == [[key] for key in KEYS]
    assert cache.collect() == 0


def test_other_batch_sizes_are_found_too():
    registry.put(make_record(make_keys((3, 16, 16, 3), (3, 3, 3, 4), padding="same")[0]))
    cache = traced()
    assert cache.collect() == 1


def test_unknown_sizes_match_any():
    for size in (16, 20):
        registry.put(make_record(make_keys((8, size, 16, 3), (3, 3, 3, 4), padding="same")[0]))
    assert traced().collect() == 1
    assert traced((None, None, 16, 3)).collect() == 2
    assert traced((None, None, 17, 3)).collect() == 0


def test_dims_that_are_not_numbers_count_as_unknown():
    registry.put(make_record(KEYS[0]))
    assert traced((object(), np.float32(1), 16, 3)).collect() == 1


def test_a_call_traced_later_finds_earlier_entries():
    registry.put(make_record(make_keys((8, 20, 20, 3), (3, 3, 3, 4), padding="same")[0]))
    cache = traced()
    assert cache.collect() == 0
    cache.note(**{**SHAPES, **CALL, "dilation_rate": (1, 1), "x_shape": (8, 20, 20, 3)})
    assert cache.collect() == 1


def test_a_cache_that_traced_nothing_collects_nothing():
    registry.put(make_record())
    assert TuningCache().collect() == 0


def test_what_is_known_already_is_no_change():
    cache = traced()
    cache.load_own_variables(saved_of(make_record(KEYS[0])))
    assert len(registry.collect()[0]) == 1
    assert cache.collect() == 0


def test_what_the_process_runs_replaces_what_a_file_said():
    cache = traced()
    cache.load_own_variables(saved_of(make_record(KEYS[0], time_seconds=1e-12, created=1000)))
    registry.clear()
    registry.put(make_record(KEYS[0], algorithm="measured here", created=2000))
    assert cache.collect() == 1
    assert cache.forward[KEYS[0]].algorithm == "measured here"


def saved_of(*records):
    return dict(schema.encode(records).items())


def test_loading_gives_entries_to_the_cache_and_the_registry():
    cache = TuningCache()
    records = [make_record(key, environment=e) for key in KEYS for e in (HERE, ELSEWHERE)]
    cache.load_own_variables(saved_of(*records))
    assert content(cache.records()) == content(records)
    assert content(registry.collect()[0]) == content(records)


def test_loading_merges_and_never_wipes():
    cache = TuningCache()
    cache.load_own_variables(saved_of(make_record(KEYS[0], time_seconds=1.0)))
    cache.load_own_variables({})
    cache.load_own_variables(saved_of(make_record(KEYS[1])))
    cache.load_own_variables(saved_of(make_record(KEYS[0], time_seconds=2.0)))
    assert [r.key for r in cache.records()] == KEYS[:2]
    assert cache.forward[KEYS[0]].time_seconds == 1.0


def test_entries_of_other_environments_are_kept_as_they_came():
    there = make_record(KEYS[0], environment=ELSEWHERE, algorithm="engine=38")
    cache = TuningCache()
    cache.load_own_variables(saved_of(make_record(KEYS[0]), there))
    assert cache.forward[KEYS[0]].environment == HERE
    assert cache.foreign() == [there]
    again = TuningCache()
    again.load_own_variables(saved(cache))
    assert content(again.records()) == content(cache.records())


def test_a_part_shows_this_processs_entry_else_the_latest():
    old = make_record(KEYS[0], environment="engine=a", created=1000)
    new = replace(old, environment="engine=b", created=2000)
    cache = TuningCache()
    cache.load_own_variables(saved_of(new, old))
    assert cache.forward[KEYS[0]] == new
    cache.load_own_variables(saved_of(make_record(KEYS[0], created=500)))
    assert cache.forward[KEYS[0]].environment == HERE


def test_an_empty_cache_writes_nothing():
    assert saved(TuningCache()) == {}


def test_entries_that_nobody_can_store_do_not_stop_the_weights(monkeypatch):
    cache = TuningCache("conv")
    cache.load_own_variables(saved_of(make_record(KEYS[0])))
    monkeypatch.setattr(schema, "MAX_TEXT_BYTES", 10)
    with pytest.warns(TuningWarning, match=r"layer 'conv' .* were not saved"):
        assert saved(cache) == {}


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda s: s.pop("text"), "text missing"),
        (lambda s: s.update(text=s["text"][3:]), "do not begin"),
        (lambda s: s.update(text=s["text"].astype("float32")), "uint8"),
        (lambda s: s.update(numbers=s["numbers"][:, 1:]), "shape"),
        (lambda s: s.update(numbers=s["numbers"].astype("float32")), "float64"),
        (lambda s: s.update(text="not an array"), "shape"),
        (lambda s: s.update(numbers=s["numbers"] * np.nan), "include 1 of 1"),
    ],
)
def test_what_cannot_be_read_is_one_warning_with_the_layer(spoil, message):
    store = saved_of(make_record(KEYS[0]))
    spoil(store)
    cache = TuningCache("conv_7")
    with pytest.warns(TuningWarning, match="conv_7") as caught:
        cache.load_own_variables(store)
    assert len(own_warnings(caught)) == 1
    assert message in str(own_warnings(caught)[0].message)
    assert cache.records() == []
    assert registry.collect()[0] == []


def test_what_the_core_refuses_is_left_out_of_the_cache():
    known = make_record(KEYS[1])
    cache = TuningCache("conv")
    cache.load_own_variables(saved_of(known))
    bad = make_record(KEYS[0].replace("groups=1", "groups=7"))
    with pytest.warns(TuningWarning, match=r"include 1 of 2 .* groups"):
        cache.load_own_variables(saved_of(bad, make_record(KEYS[2])))
    assert [r.key for r in cache.records()] == [KEYS[1], KEYS[2]]


def test_it_reads_well():
    cache = TuningCache("conv2d_3")
    assert repr(cache) == "<TuningCache of 'conv2d_3': forward 0, backward_data 0, backward_filter 0>"
    record = make_record(KEYS[0], algorithm="<b>jit & co</b>")
    cache.load_own_variables(saved_of(record, make_record(KEYS[1], environment=ELSEWHERE)))
    assert "forward 1, backward_data 1" in repr(cache)
    assert "1 of other environments" in repr(cache)
    assert "2.00x" in repr(cache.forward)
    assert "125 us" in repr(cache.forward)
    html = cache._repr_html_()
    assert "&lt;b&gt;jit &amp; co&lt;/b&gt;" in html
    assert html.count("<table>") == html.count("</table>") == 3


def test_it_is_a_mapping_of_three_mappings():
    cache = traced()
    for key in KEYS:
        registry.put(make_record(key))
    cache.collect()
    assert list(cache) == list(cache.keys()) == ["forward", "backward_data", "backward_filter"]
    assert len(cache) == 3
    assert "forward" in cache
    assert dict(cache["forward"]) == dict(cache.forward) == {KEYS[0]: cache.records()[0]}
    assert [name for name, part in cache.items() if KEYS[2] in part] == ["backward_filter"]
    with pytest.raises(KeyError, match="parts are forward"):
        cache["sideways"]
    with pytest.raises(KeyError):
        cache.forward[KEYS[1]]


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda c: pickle.loads(pickle.dumps(c))])
def test_copies_have_the_entries_and_what_was_traced(duplicate):
    cache = traced()
    cache.load_own_variables(saved_of(make_record(KEYS[0], environment=ELSEWHERE)))
    twin = duplicate(cache)
    assert content(twin.records()) == content(cache.records())
    registry.put(make_record(KEYS[1]))
    assert twin.collect() >= 1
    assert len(twin.records()) == 2
    assert len(cache.records()) == 1


def test_keras_sees_no_layer_and_no_weight_in_it():
    model = build("functional", TunedConv2D)
    stock = build("functional", keras.layers.Conv2D)
    fill(model)
    assert [(w.name, w.shape) for w in model.weights] == [(w.name, w.shape) for w in stock.weights]
    assert len(model._flatten_layers()) == len(stock._flatten_layers())
    lines = []
    model.summary(print_fn=lines.append)
    assert f"Total params: {stock.count_params():,}" in "\n".join(lines)


def test_no_attribute_that_saving_reads_does_work(monkeypatch):
    cache = traced()
    registry.put(make_record(KEYS[0]))

    def work(*arguments):
        raise AssertionError("an attribute did work")

    monkeypatch.setattr(registry, "collect", work)
    monkeypatch.setattr(environments, "current", work)
    for name in dir(cache):
        if not name.startswith("__"):
            value = getattr(cache, name)
            assert not isinstance(value, (list, tuple, dict)), name


def test_threads_that_tune_and_save_at_once_tear_nothing():
    model = build("sequential", TunedConv2D)
    fill(model)
    layer = tuned_layers(model)[0]
    stop = threading.Event()
    problems = []

    def tune():
        for i in range(60):
            key = make_keys((i + 100, 16, 16, 3), (3, 3, 3, 4), padding="same")[i % 3]
            registry.put(make_record(key))
        stop.set()

    def save():
        while not stop.is_set():
            other = TuningCache()
            try:
                other.load_own_variables(saved(layer.tuning))
                assert len(other.records()) >= 3
            except Exception as error:
                problems.append(error)

    warnings.simplefilter("error")  # pytest restores the filters
    threads = [threading.Thread(target=work) for work in (save, save, tune)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    layer.tuning.collect()
    assert len(layer.tuning.records()) == 63


def test_more_entries_than_a_file_holds_are_refused_unread():
    store = saved_of(*make_records(2))
    store["numbers"] = np.zeros((schema.MAX_RECORDS + 1, schema.COLUMN_COUNT))
    with pytest.warns(TuningWarning, match="at most"):
        TuningCache().load_own_variables(store)
