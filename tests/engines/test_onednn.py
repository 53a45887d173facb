"""The oneDNN engine's algorithms: each one it offers, in each direction, against a float64 reference."""

from __future__ import annotations

import re
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import reference
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from keras_tunedconv.core import engines
from keras_tunedconv.core.descriptor import DIRECTIONS, ConvDescriptor, Direction, forward_descriptor
from keras_tunedconv.core.errors import NotFoundError, UnavailableError, UnsupportedError
from keras_tunedconv.core.library import lib

try:
    engines.ensure_open("cpu")
except UnavailableError as error:
    pytest.skip(str(error), allow_module_level=True)

# Input shape, kernel shape, and the other arguments of forward_descriptor.
CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "valid": ((2, 12, 11, 8), (3, 3, 8, 16), {}),
    "same, even kernel": ((2, 9, 10, 16), (4, 2, 16, 8), {"padding": "same"}),
    "pointwise": ((3, 7, 9, 24), (1, 1, 24, 40), {}),
    "pointwise, strided": ((2, 8, 7, 16), (1, 1, 16, 32), {"strides": 2}),
    "stem": ((2, 29, 31, 3), (7, 7, 3, 16), {"strides": 2, "padding": "same"}),
    "stride 3": ((2, 16, 14, 16), (3, 3, 16, 16), {"strides": 3, "padding": "same"}),
    "uneven": ((1, 13, 10, 5), (5, 3, 5, 7), {"strides": (1, 2), "padding": [(4, 1), (0, 2)]}),
    "dilated": ((2, 15, 16, 16), (3, 3, 16, 16), {"dilation_rate": (2, 3), "padding": "same"}),
    "grouped": ((2, 9, 9, 32), (3, 3, 8, 64), {"padding": "same"}),
    "grouped, odd channels": ((2, 8, 9, 15), (3, 3, 5, 9), {}),
    "depthwise": ((2, 10, 9, 48), (3, 3, 1, 48), {"padding": "same"}),
    "depthwise, strided, multiplier 2": ((2, 11, 9, 16), (5, 5, 1, 32), {"padding": "same", "strides": 2}),
    "channels first": ((2, 16, 9, 10), (3, 3, 16, 16), {"data_format": "channels_first", "padding": "same"}),
    "channels first, grouped": ((2, 12, 9, 10), (3, 3, 4, 6), {"data_format": "channels_first"}),
    "one spatial axis": ((3, 21, 8), (5, 8, 16), {"padding": "same", "strides": 2}),
    "three spatial axes": ((1, 6, 7, 8, 8), (3, 3, 3, 8, 16), {"padding": "same"}),
    "three spatial axes, grouped": ((1, 5, 6, 7, 8), (2, 3, 1, 4, 8), {"strides": (2, 1, 2)}),
    "tap in the padding": ((2, 4, 1, 8), (3, 3, 8, 16), {"strides": (1, 2), "padding": "same"}),
    "one pixel": ((1, 1, 1, 7), (1, 1, 7, 5), {}),
    "kernel as large as the input": ((4, 7, 7, 16), (7, 7, 16, 10), {}),
    "position in the padding": (
        (5, 8, 2, 8, 7),
        (3, 3, 3, 7, 1),
        {"strides": 2, "dilation_rate": 3, "padding": [(0, 4), (1, 4), (1, 2)]},
    ),
}
GUARD = 4096  # bytes on both sides of the output that nobody may write


def make_descriptor(case: str, dtype: str = "float32", direction: Direction = "forward") -> ConvDescriptor:
    x_shape, kernel_shape, arguments = CASES[case]
    return forward_descriptor(x_shape, kernel_shape, dtype, **arguments).with_direction(direction)


def run_guarded(
    descriptor: ConvDescriptor, operands: tuple[np.ndarray, np.ndarray, np.ndarray], algorithm: str
) -> np.ndarray:
    """The output of one run, written into memory full of NaN between guards."""
    arrays = dict(zip(reference.OPERANDS, operands, strict=True))
    name = reference.OUTPUTS[descriptor.direction]
    template = arrays[name]
    memory = np.full(template.nbytes + 2 * GUARD, 0xA5, np.uint8)
    inside = memory[GUARD : GUARD + template.nbytes]
    inside[...] = 0xFF
    arrays[name] = inside.view(template.dtype).reshape(template.shape)
    engines.run_algorithm(descriptor, **arrays, algorithm=algorithm)
    assert (memory[:GUARD] == 0xA5).all(), "written before the output"
    assert (memory[GUARD + template.nbytes :] == 0xA5).all(), "written behind the output"
    return arrays[name]


def check_all_candidates(descriptor: ConvDescriptor) -> None:
    operands = reference.random_operands(descriptor)
    expected = reference.expect(descriptor, *operands)
    for algorithm in engines.candidates(descriptor):
        try:
            expected.check(run_guarded(descriptor, operands, algorithm))
        except AssertionError as error:
            raise AssertionError(f"{algorithm} for {descriptor.key}: {error}") from error


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("case", CASES)
def test_candidates_agree_with_reference(case, dtype, direction):
    descriptor = make_descriptor(case, dtype, direction)
    if dtype != "float32" and not engines.supported(descriptor):
        pytest.skip(f"oneDNN has no {dtype} algorithm for this on this processor")
    check_all_candidates(descriptor)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("groups", [1, 4])
@pytest.mark.parametrize("w_layout", ["hwio", "oihw", "ohwi"])
@pytest.mark.parametrize(
    "layouts", [("channels_last", "channels_first"), ("channels_first", "channels_last")]
)
def test_every_combination_of_layouts(layouts, w_layout, groups, direction):
    descriptor = forward_descriptor((2, 9, 8, 16), (3, 3, 16 // groups, 24), padding="same")
    x_layout, y_layout = layouts
    check_all_candidates(
        replace(descriptor, direction=direction, x_layout=x_layout, y_layout=y_layout, w_layout=w_layout)
    )


def test_half_precision_input_with_float32_result():
    forward = make_descriptor("grouped", "bfloat16")
    forward = replace(forward, y_dtype="float32")
    gradient = replace(make_descriptor("valid", "bfloat16", "backward_filter"), w_dtype="float32")
    for descriptor in (forward, gradient):
        if not engines.supported(descriptor):
            pytest.skip("oneDNN has no bfloat16 for this processor")
        check_all_candidates(descriptor)


@st.composite
def descriptors(draw: st.DrawFn) -> ConvDescriptor:
    rank = draw(st.integers(1, 3))

    def per_axis(values: st.SearchStrategy[int]) -> list[int]:
        return draw(st.lists(values, min_size=rank, max_size=rank))

    groups = draw(st.sampled_from([1, 1, 2, 3, 8, 16]))
    channels, filters = draw(st.integers(1, 20)), draw(st.integers(1, 20))
    kernel = per_axis(st.integers(1, 5))
    pads = st.tuples(st.integers(0, 4), st.integers(0, 4))
    padding = draw(st.sampled_from(["same", "valid"]) | st.lists(pads, min_size=rank, max_size=rank))
    data_format = draw(st.sampled_from(["channels_last", "channels_first"]))
    spatial = per_axis(st.integers(1, 12))
    batch = draw(st.integers(1, 3))
    channels_last = data_format == "channels_last"
    x_shape = (batch, *spatial, channels * groups) if channels_last else (batch, channels * groups, *spatial)
    try:
        descriptor = forward_descriptor(
            x_shape,
            (*kernel, channels, filters * groups),
            draw(st.sampled_from(["float32", "bfloat16", "float16"])),
            strides=per_axis(st.integers(1, 3)),
            padding=padding,
            data_format=data_format,
            dilation_rate=per_axis(st.integers(1, 3)),
        )
    except ValueError:  # the kernel does not fit into the input
        assume(False)
    return replace(
        descriptor,
        direction=draw(st.sampled_from(DIRECTIONS)),
        w_layout=draw(st.sampled_from(["hwio", "oihw", "ohwi"])),
    )


def check_drawn(descriptor: ConvDescriptor) -> None:
    assume(engines.supported(descriptor))
    check_all_candidates(descriptor)


relaxed = {"deadline": None, "suppress_health_check": list(HealthCheck)}


@settings(max_examples=40, **relaxed)
@given(descriptors())
def test_any_convolution_agrees_with_reference(descriptor):
    check_drawn(descriptor)


@pytest.mark.slow
@settings(max_examples=1500, **relaxed)
@given(descriptors())
@pytest.mark.timeout(3600)
def test_many_convolutions_agree_with_reference(descriptor):
    check_drawn(descriptor)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize(
    ("x_shape", "kernel_shape"),
    [((4, 28, 28, 64), (3, 3, 64, 64)), ((8, 14, 14, 96), (3, 3, 1, 96)), ((2, 56, 56, 3), (7, 7, 3, 32))],
    ids=["ordinary", "depthwise", "stem"],
)
def test_same_bits_every_run(x_shape, kernel_shape, direction):
    descriptor = replace(
        forward_descriptor(x_shape, kernel_shape, padding="same"), direction=direction, deterministic=True
    )
    operands = reference.random_operands(descriptor)
    for algorithm in engines.candidates(descriptor):
        if ":ref" in algorithm:
            continue
        first = run_guarded(descriptor, operands, algorithm)
        for _ in range(4):
            assert np.array_equal(first, run_guarded(descriptor, operands, algorithm)), algorithm


def test_threads_at_once_get_what_one_gets():
    descriptors = [make_descriptor("grouped", direction=direction) for direction in DIRECTIONS]
    operands = [reference.random_operands(d, seed) for seed, d in enumerate(descriptors)]
    algorithms = [engines.candidates(d)[0] for d in descriptors]
    jobs = list(zip(descriptors, operands, algorithms, strict=True))
    alone = [run_guarded(*job) for job in jobs]
    failures: list[BaseException] = []

    def repeat(start: int) -> None:
        try:
            for i in range(start, start + 12):
                assert np.array_equal(run_guarded(*jobs[i % 3]), alone[i % 3])
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=repeat, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def count_tasks() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


def test_callers_do_not_get_threads_of_their_own():
    """OpenMP gives each thread that enters it a team; here all but the main thread share one."""
    descriptor = make_descriptor("dilated")
    operands = reference.random_operands(descriptor)
    algorithm = engines.candidates(descriptor)[0]
    run_guarded(descriptor, operands, algorithm)
    first = threading.Thread(target=run_guarded, args=(descriptor, operands, algorithm))
    first.start()
    first.join()
    while Path("/proc/self/task", str(first.native_id)).exists():  # it is joined before it is gone
        time.sleep(0.001)
    barrier = threading.Barrier(5)

    def call() -> None:
        run_guarded(descriptor, operands, algorithm)
        barrier.wait()  # every caller is still alive when the threads are counted
        barrier.wait()

    before = count_tasks()
    callers = [threading.Thread(target=call) for _ in range(4)]
    for caller in callers:
        caller.start()
    barrier.wait()
    during = count_tasks()
    barrier.wait()
    for caller in callers:
        caller.join()
    assert during <= before + len(callers)


def test_names_are_unique_and_start_with_the_librarys_own_choice():
    names = engines.candidates(make_descriptor("dilated"))
    assert len(set(names)) == len(names) > 2
    assert all(re.fullmatch(r"onednn:[^#|\s]+#\d+/(any|plain|strict)", name) for name in names)
    assert names[0].endswith("#0/plain")
    assert engines.candidates(make_descriptor("channels first"))[0].endswith("#0/any")
    last_resorts = [":ref" in name for name in names]
    assert last_resorts == sorted(last_resorts)


def candidates_or_none(descriptor: ConvDescriptor) -> list[str]:
    return engines.candidates(descriptor) if engines.supported(descriptor) else []


def test_algorithms_known_to_go_wrong_are_left_out():
    """They crash or write out of bounds, so running them is no test."""
    for dtype in ("float32", "bfloat16"):
        names = candidates_or_none(make_descriptor("position in the padding", dtype))
        assert not [name for name in names if "brg" in name]
    for case in ("three spatial axes", "tap in the padding"):
        names = candidates_or_none(make_descriptor(case, "bfloat16", "backward_filter"))
        assert not [name for name in names if "gemm" not in name and ":ref" not in name]
    for direction in DIRECTIONS:
        names = candidates_or_none(make_descriptor("pointwise, strided", "float32", direction))
        assert not [name for name in names if re.match(r"onednn:jit\w*_1x1.*/(plain|strict)", name)]


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize(
    "case", ["dilated", "channels first", "pointwise, strided", "position in the padding"]
)
def test_names_are_found_without_listing_the_others(case, direction):
    descriptor = make_descriptor(case, direction=direction)
    operands = reference.random_operands(descriptor)
    names = engines.candidates(descriptor)
    listed_first = {name: run_guarded(descriptor, operands, name) for name in names}
    for order in (names, names[::-1], names[1::2]):
        assert lib.tc_engine_close(b"onednn") == lib.TC_OK  # with it, what it had listed
        engines.ensure_open("cpu")
        for name in order:
            np.testing.assert_array_equal(run_guarded(descriptor, operands, name), listed_first[name], name)
        assert engines.candidates(descriptor) == names


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("case", ["dilated", "channels first", "pointwise, strided"])
def test_names_that_repeat_others_are_not_found_whatever_was_listed(case, direction):
    descriptor = make_descriptor(case, direction=direction)
    operands = reference.random_operands(descriptor)
    names = engines.candidates(descriptor)
    stems = sorted({name.rsplit("/", 1)[0] for name in names})
    others = {f"{stem}/{end}" for stem in stems for end in ("plain", "any", "strict")} - set(names)
    assert others
    for name in sorted(others):
        assert lib.tc_engine_close(b"onednn") == lib.TC_OK  # with it, what it had listed
        engines.ensure_open("cpu")
        for _ in range(2):
            with pytest.raises(NotFoundError):
                engines.run_algorithm(descriptor, *operands, name)
            assert engines.supported(descriptor)
        assert engines.candidates(descriptor) == names


def test_other_names_are_not_found():
    descriptor = make_descriptor("valid")
    operands = reference.random_operands(descriptor)
    for name in ("onednn:no_such#0/any", engines.candidates(descriptor)[0].replace("#0", "#7"), "reference"):
        with pytest.raises(NotFoundError, match=re.escape(name)):
            engines.run_algorithm(descriptor, *operands, name)


def test_float64_is_unsupported():
    descriptor = make_descriptor("valid", "float64")
    assert not engines.supported(descriptor)
    with pytest.raises(UnsupportedError, match="float64"):
        engines.candidates(descriptor)


def test_the_list_stays_as_it_is_when_primitives_exist():
    """A stored name must be one that a fresh process lists too."""

    def listed(batch: int) -> list[str]:
        descriptor = forward_descriptor((batch, 10, 10, 16), (3, 3, 16, 16), padding="same")
        names = engines.candidates(descriptor)
        x, w, y = reference.random_operands(descriptor)
        for name in names:
            if not name.startswith("onednn:ref"):
                engines.run_algorithm(descriptor, x, w, y, name)
        return names

    first = listed(3)
    for batch in (5, 3, 7):
        assert listed(batch) == first


def test_lists_of_more_convolutions_than_are_kept_stay_apart():
    """The engine keeps its latest lists; convolutions that differ in one thing must not share one."""
    forward = [
        forward_descriptor((2, size, 9, 8), (3, 3, 8 // groups, 8), padding=padding)
        for size in range(6, 11)
        for padding in ("same", "valid", [(1, 0), (0, 1)], [(0, 1), (1, 0)])
        for groups in (1, 8)
    ]
    descriptors = [one.with_direction(direction) for one in forward for direction in DIRECTIONS]
    first = [engines.candidates(one) for one in descriptors]
    assert [engines.candidates(one) for one in reversed(descriptors)] == first[::-1]
    for one in descriptors[::11]:  # not in the order in which they were listed last
        check_all_candidates(one)
