"""What the cuDNN engine does on the mock driver. Each function is one test; see test_cudnn_engine.py."""

from __future__ import annotations

import itertools
import math
import os
import re
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from device_run import Device, HostMemory
from engines.conv_cases import CASES, Case
from engines.direct_cases import FEW_CHANNELS, GROUPED, HALVES, descriptors, expect_an_infinity_to_stay
from reference import expect, random_operands

from keras_tunedconv.core import engines, errors, registry
from keras_tunedconv.core.config import config
from keras_tunedconv.core.descriptor import DIRECTIONS, ConvDescriptor
from keras_tunedconv.core.errors import check
from keras_tunedconv.core.library import ffi, lib

PLAIN = CASES["plain"].descriptor()


def raises(kind: type[BaseException], *parts: str, call: Callable[[], Any]) -> str:
    """The message of the exception that a call must raise, which must hold all of `parts`."""
    try:
        call()
    except kind as error:
        message = str(error)
        assert all(part in message for part in parts), (parts, message)
        return message
    raise AssertionError(f"{kind.__name__} was not raised")


def run(
    descriptor: ConvDescriptor, algorithm: str | None = None, device: Device | None = None, repeats: int = 0
) -> np.ndarray:
    """A checked run on random operands."""
    x, w, y = random_operands(descriptor)
    output, _ = (device or Device(HostMemory())).run(descriptor, x, w, y, algorithm, repeats)
    expect(descriptor, x, w, y).check(output)
    return output


def rewriting(name: str) -> str:
    return name.partition("/")[2]


def by_rewriting(descriptor: ConvDescriptor) -> dict[str, str]:
    """A candidate that works for each rewriting, of an engine that needs a workspace where there is one."""
    working = ("cudnn:eng0", "cudnn:eng1", "cudnn:eng2", "cudnn:eng6")
    names = [name for name in engines.candidates(descriptor, "cuda") if name.startswith(working)]
    return {rewriting(name): name for name in reversed(names)}


# ---- opening -------------------------------------------------------------------------------------


def check_opening_says_which_copy_was_taken_and_why(mock: Any) -> None:
    assert engines.describe("cudnn") == f"cuDNN 9.28.0, {mock.cudnn_path} (loaded by the process before)"


def check_other_versions_are_refused_with_the_reason(mock: Any) -> None:
    mock.close()
    for version, text in ((8907, "cuDNN 8.9.7"), (100000, "cuDNN 10.0.0")):
        mock.set_cudnn(version=version)
        raises(
            errors.UnavailableError,
            f"is {text}, and a 9.x is needed",
            "pip install nvidia-cudnn-cu12",
            call=lambda: engines.open_engine("cudnn", [mock.cudnn_path]),
        )


def check_a_library_for_a_newer_cuda_than_the_driver_is_refused(mock: Any) -> None:
    mock.close()
    mock.set_cudnn(cudart=13000)
    mock.set_cuda(driver=12040)
    raises(
        errors.UnavailableError,
        "is built for CUDA 13, and the driver supports up to CUDA 12.4",
        call=lambda: engines.open_engine("cudnn", [mock.cudnn_path]),
    )


def check_files_that_are_not_cudnn_are_passed_over(mock: Any) -> None:
    mock.close()
    mock.set_cudnn(version=8907)  # the copy in the process will not do either
    missing, other = Path("/nowhere/libcudnn.so.9"), mock.folder / "libcuda.so.1"
    message = raises(
        errors.UnavailableError, call=lambda: engines.open_engine("cudnn", [missing, other, mock.cudnn_path])
    )
    assert message.index("/nowhere/libcudnn.so.9") < message.index("libcuda.so.1: is not cuDNN")


def check_no_gpu_is_one_clear_line(mock: Any) -> None:
    mock.close()
    mock.set_cuda(devices=0)
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    message = raises(
        errors.UnavailableError,
        "shows no GPU to this process",
        call=lambda: engines.open_engine("cudnn", [mock.cudnn_path]),
    )
    assert "\n" not in message
    mock.set_cuda(devices=1, failing="cuInit=803")
    raises(
        errors.UnavailableError,
        "starting the NVIDIA driver",
        "(803)",
        call=lambda: engines.open_engine("cudnn", [mock.cudnn_path]),
    )


def check_closing_leaves_nothing_behind(mock: Any) -> None:
    run(PLAIN, engines.candidates(PLAIN, "cuda")[0])
    registry.clear()
    assert mock.count("handles") > 0
    assert mock.count("plans") == 0
    mock.close()
    assert mock.count("handles") == 0
    engines.open_engine("cudnn", [mock.cudnn_path])
    run(PLAIN, engines.candidates(PLAIN, "cuda")[0])


# ---- environments and devices --------------------------------------------------------------------


def check_the_environment_names_device_and_library(mock: Any) -> None:
    assert engines.environment("cuda", 0) == (
        "engine=cudnn;version=9.28;device=Mock GPU  model A;sm=9.0;multiprocessors=10;~patch=0;~driver=13.0"
    )
    assert engines.environment("cuda", 1) == (
        "engine=cudnn;version=9.28;device=Mock GPU  model B;sm=9.0;multiprocessors=11;~patch=0;~driver=13.0"
    )
    raises(errors.InvalidArgumentError, "no GPU 2", call=lambda: engines.environment("cuda", 2))
    raises(errors.InvalidArgumentError, call=lambda: engines.environment("cuda", -1))
    raises(errors.InvalidArgumentError, call=lambda: engines.environment("cuda", 64))


def check_devices_share_nothing(mock: Any) -> None:
    name = next(n for n in engines.candidates(CASES["stem"].descriptor(), "cuda") if "fold" in n)
    for ordinal in (0, 1, 0, 1):  # the mock refuses handles, events and kernels of another device
        run(CASES["stem"].descriptor(), name, Device(HostMemory(), ordinal), repeats=2)
    assert mock.count("handles") == 2


def check_contexts_are_left_as_they_were(mock: Any) -> None:
    run(PLAIN, "cudnn:eng0", repeats=1)
    raises(errors.EngineFailureError, call=lambda: run(PLAIN, "cudnn:eng5"))
    raises(errors.NotFoundError, call=lambda: run(PLAIN, "cudnn:eng4"))
    mock.set_cuda(failing="cuEventSynchronize=719")
    raises(errors.DeviceFailureError, call=lambda: run(PLAIN, "cudnn:eng0", repeats=1))
    assert mock.depth == 0


def check_threads_run_one_plan_at_once(mock: Any) -> None:
    failures: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(5):
                run(PLAIN)
        except BaseException as error:
            failures.append(error)

    with config.override(tune=False):
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failures, failures
    assert 1 <= mock.count("handles") <= 4


# ---- candidates and their names ------------------------------------------------------------------


def check_the_default_is_the_first_that_the_heuristics_suggest(mock: Any) -> None:
    names = engines.candidates(PLAIN, "cuda")
    plain = [name for name in names if not rewriting(name)]
    # Mode A in its order, then what B and the fallback add; 3 converts inputs down and is left out.
    assert plain == [
        "cudnn:eng1:k2=1,k13=0",
        "cudnn:eng1:k2=2,k13=0",
        "cudnn:eng2",
        "cudnn:eng0",
        "cudnn:eng1:k2=3,k13=1",
        "cudnn:eng4",
        "cudnn:eng5",
        "cudnn:eng6",
    ]
    assert len(set(names)) == len(names)


def check_every_name_can_be_prepared_again(mock: Any) -> None:
    for case in CASES.values():
        for direction in DIRECTIONS:
            descriptor = case.descriptor(direction)
            for name in engines.candidates(descriptor, "cuda"):
                try:
                    run(descriptor, name)
                except (errors.NotFoundError, errors.EngineFailureError):
                    assert name.startswith(("cudnn:eng4", "cudnn:eng5")), name


def check_a_name_that_is_none_of_the_candidates_is_a_clean_miss(mock: Any) -> None:
    good = "cudnn:eng1:k2=1,k13=0"
    run(PLAIN, good)
    for name in (
        "",
        "cudnn",
        "cudnn:eng",
        "cudnn:eng-1",
        "cudnn:eng7",
        "cudnn:eng99999999999999999999",
        "cudnn:eng01",
        "cudnn:eng 1",
        "cudnn:eng0:",
        "cudnn:eng1:k2",
        "cudnn:eng1:k2=",
        "cudnn:eng1:k2=4",
        "cudnn:eng1:k2=-1",
        "cudnn:eng1:k2=1,k2=1",
        "cudnn:eng1:k13=0,k2=1",
        "cudnn:eng1:k2=+1",
        "cudnn:eng1:k5=1",
        "cudnn:eng0:k2=1",
        "cudnn:eng0/",
        "cudnn:eng0/fold",
        "cudnn:eng0/channels=0",
        "cudnn:eng0/channels=8",
        "cudnn:eng0/channels=1000000000",
        "cudnn:eng0/channels=-8",
        "cudnn:eng0/layout=channels-last",
        "cudnn:eng0/swapped/swapped",
        "cudnn:eng0/swapped/channels=12",
        "cudnn:eng0/explicit-padding/channels=12",
        "cudnn:eng0/swapped/explicit-padding",
        "cudnn:eng0/explicit-padding/explicit-padding",
        "cudnn:eng0/explicit-padding=1",
        "cudnn:eng0/explicit-paddin",
        "cudnn:eng0/explicit-padding/layout=channels-first",
        "cudnn:eng0\n",
        "onednn:jit:uni",
        good + "," + ",".join(f"k{i}=0" for i in range(14, 50)),
    ):
        raises(errors.NotFoundError, call=lambda name=name: run(PLAIN, name))
    assert mock.depth == 0
    assert mock.count("plans") <= 1


def check_engines_that_compute_otherwise_are_refused_by_name_too(mock: Any) -> None:
    raises(errors.NotFoundError, call=lambda: run(PLAIN, "cudnn:eng3"))
    strict = CASES["plain"].descriptor(allow_tf32=False)
    assert engines.candidates(strict, "cuda") == ["cudnn:eng0", "cudnn:eng6"]
    raises(errors.NotFoundError, call=lambda: run(strict, "cudnn:eng1:k2=1,k13=0"))
    half = CASES["plain"].descriptor(dtype="float16", allow_tf32=False)
    assert "cudnn:eng1:k2=1,k13=0" in engines.candidates(half, "cuda")
    deterministic = CASES["plain"].descriptor(deterministic=True)
    assert "cudnn:eng2" not in engines.candidates(deterministic, "cuda")
    raises(errors.NotFoundError, call=lambda: run(deterministic, "cudnn:eng2"))


def check_silent_heuristics_leave_the_engines_by_number(mock: Any) -> None:
    mock.set_cudnn(silent_heuristics=1)
    names = engines.candidates(PLAIN, "cuda")
    assert [n for n in names if not rewriting(n)] == [f"cudnn:eng{i}" for i in (0, 1, 2, 4, 5, 6)]


def check_sizes_beyond_32_bits_are_unsupported(mock: Any) -> None:
    huge = CASES["pointwise"].descriptor()
    size = 2**31
    huge = ConvDescriptor(**{**vars(huge), "x_dims": (1, 4, size, 1), "y_dims": (1, 10, size, 1)})
    raises(errors.UnsupportedError, call=lambda: engines.candidates(huge, "cuda"))


# ---- rewritings ----------------------------------------------------------------------------------


def check_which_rewritings_are_tried(mock: Any) -> None:
    def tried(case: str, direction: str, **options: Any) -> set[str]:
        return set(by_rewriting(CASES[case].descriptor(direction, **options)))

    assert tried("plain", "forward") == {""}
    assert tried("plain", "backward_data") == {"", "swapped"}
    assert tried("plain", "forward", layout="channels_first") == {"", "layout=channels-last"}
    explicit = "explicit-padding"
    few = {"fold/channels=16", "channels=8", "channels=4"}
    for case in ("stem", "same_stem"):
        both = {"", explicit, *few, *(f"{name}/{explicit}" for name in few)}
        assert tried(case, "forward") == both
        assert tried(case, "backward_filter") == both
        swapped = {"fold/channels=16/swapped", f"fold/channels=16/{explicit}/swapped"}
        assert tried(case, "backward_data") == both | swapped
        assert tried(case, "forward", allow_tf32=False) == {"", explicit}
    assert tried("rows_no_tap_reaches", "forward") == {"", *few - {"fold/channels=16"}, "fold/channels=24"}
    for case in ("same_strided", "same_strided_grouped"):
        for direction in DIRECTIONS:
            assert tried(case, direction, dtype="float16") == {"", explicit}
            assert tried(case, direction, dtype="float64") == {"", explicit}
        assert tried(case, "forward", layout="channels_first") == {"", explicit, "layout=channels-last"}
    assert tried("same_even_kernel", "backward_data") == {
        "", explicit, "channels=8", f"channels=8/{explicit}", "swapped", f"{explicit}/swapped"
    }  # fmt: skip
    assert tried("pointwise", "backward_filter", filter_layout="oihw") == {"", "channels=8"}
    assert tried("pointwise", "backward_filter") == {"", "channels=8", "swapped"}
    assert tried("strided_pointwise", "forward") == {"", "channels=8"}
    assert tried("depthwise", "backward_data") == {"", "layout=channels-first", "swapped"}


def check_pointwise_filters_of_keras_need_no_conversion_when_swapped(mock: Any) -> None:
    for direction in DIRECTIONS:
        descriptor = CASES["pointwise"].descriptor(direction)
        names = by_rewriting(descriptor)
        before = mock.launches
        run(descriptor, names["swapped"])
        assert mock.launches == before
        run(descriptor, names[""])
        assert mock.launches == before + 1


def check_padding_is_written_out_only_where_there_is_some(mock: Any) -> None:
    run(PLAIN, "cudnn:eng0/explicit-padding")  # even padding too, though it is no candidate
    for name in ("pointwise", "rows_no_tap_reaches"):
        descriptor = CASES[name].descriptor()
        raises(errors.NotFoundError, call=lambda d=descriptor: run(d, "cudnn:eng0/explicit-padding"))
    far = 2**30 - 1  # a pad of the caller's own that the convolution steps over
    case = Case(1, 2, (1, 1, 1), 4, (1, 1, 1), ((far, far),) * 3, strides=(far,) * 3)
    for name in ("", "/fold", "/channels=8"):
        raises(
            errors.NotFoundError,
            call=lambda n=name: run(case.descriptor(), f"cudnn:eng0{n}/explicit-padding"),
        )


def _any_case(random: np.random.Generator) -> Case:
    def numbers(low: int, high: int) -> tuple[int, ...]:
        return tuple(int(n) for n in random.integers(low, high, rank))

    rank, groups = int(random.integers(1, 4)), int(random.integers(1, 4))
    kernel, strides = numbers(1, 5), numbers(1, 4)
    dilation = numbers(1, 3) if random.random() < 0.3 else (1,) * rank
    pads = tuple(zip(numbers(0, 5), numbers(0, 5), strict=True))
    spatial = tuple(d * (k - 1) + n for d, k, n in zip(dilation, kernel, numbers(1, 6), strict=True))
    channels, filters = int(random.integers(1, 10)), int(random.integers(1, 5))
    return Case(
        int(random.integers(1, 3)), channels * groups, spatial, filters * groups, kernel, pads, strides,
        dilation, groups,
    )  # fmt: skip


def check_any_convolution_is_rewritten_rightly_or_refused(mock: Any) -> None:
    random = np.random.default_rng(23)
    done: dict[str, int] = {}
    for _ in range(60):
        case = _any_case(random)
        channels = case.channels // case.groups
        folded = channels * math.prod(case.strides or ())
        paddings = [f"/channels={-(-n // 8) * 8}" for n in (channels, folded)] + ["/channels=4", ""]
        for direction in DIRECTIONS:
            layout = str(random.choice(["channels_last", "channels_first"]))
            dtype = str(random.choice(["float16", "float32", "float64"]))
            descriptor = case.descriptor(direction, dtype, layout)
            parts = (("", "/fold"), paddings, ("", "/explicit-padding"), ("", "/swapped"))
            for chosen in sorted({"".join(choice) for choice in itertools.product(*parts)}):
                try:
                    run(descriptor, f"cudnn:eng0{chosen}")
                except errors.NotFoundError:
                    continue
                except AssertionError as error:
                    raise AssertionError(f"{chosen} of {descriptor.key}: {error}") from error
                kind = re.sub("=[0-9]+", "", chosen)
                done[kind] = done.get(kind, 0) + 1
    assert len(done) == 16, done
    assert all(count >= 5 for count in done.values()), done


def _check_rewritings(options: Iterator[dict[str, str]], case: str) -> None:
    for chosen in options:
        descriptor = CASES[case].descriptor(**chosen)  # type: ignore[arg-type]
        for name in by_rewriting(descriptor).values():
            run(descriptor, name)


def _all_options(**choices: tuple[str, ...]) -> Iterator[dict[str, str]]:
    for values in itertools.product(*choices.values()):
        yield dict(zip(choices, values, strict=True))


def _make_check(case: str) -> Callable[[Any], None]:
    def check_rewritings(mock: Any) -> None:
        layouts = ("channels_last", "channels_first")
        filters = ("hwio", "oihw", "ohwi")
        _check_rewritings(
            _all_options(direction=DIRECTIONS, layout=layouts, filter_layout=filters), case
        )  # in float32
        dtypes = ("float16", "bfloat16", "float64")
        _check_rewritings(_all_options(direction=DIRECTIONS, dtype=dtypes), case)

    return check_rewritings


for _case in CASES:
    globals()[f"check_rewritings_of_{_case}"] = _make_check(_case)


def check_a_tensor_larger_than_a_tile_and_a_chunk_is_converted_whole(mock: Any) -> None:
    wide = Case(2, 70, (5, 27), 67, (1, 1), ((0, 0), (0, 0)))
    padded = Case(1, 13, (40, 9), 3, (3, 3), ((1, 1), (1, 1)))
    for case, dtype in itertools.product((wide, padded), ("float16", "float32", "float64")):
        for direction in DIRECTIONS:
            for layout in ("channels_last", "channels_first"):
                descriptor = case.descriptor(direction, dtype, layout)
                for name in by_rewriting(descriptor).values():
                    run(descriptor, name)


def check_the_depthwise_kernels(mock: Any) -> None:
    cases = (
        Case(2, 6, (9, 7), 6, (3, 3), ((1, 1), (1, 1)), groups=6),
        Case(2, 96, (5, 19), 96, (5, 5), ((2, 2), (3, 1)), groups=96),
        Case(1, 134, (8, 16), 134, (7, 7), ((3, 3), (3, 3)), groups=134),
        Case(3, 2, (9, 30), 2, (7, 7), ((0, 0), (0, 0)), groups=2),
        Case(2, 144, (1, 3), 144, (3, 3), ((1, 1), (1, 1)), groups=144),
        Case(1, 4, (6, 6), 4, (3, 3), ((4, 3), (3, 5)), groups=4),
    )
    for case, dtype in itertools.product(cases, ("float16", "bfloat16", "float32")):
        for direction in ("forward", "backward_data"):
            for filter_layout in ("hwio", "oihw"):
                descriptor = case.descriptor(direction, dtype, filter_layout=filter_layout)
                assert "cuda:depthwise" in engines.candidates(descriptor, "cuda")
                before = mock.launches
                run(descriptor, "cuda:depthwise", Device(HostMemory(), 1))
                assert mock.launches == before + 1


def check_the_depthwise_kernels_are_refused_elsewhere(mock: Any) -> None:
    good = Case(2, 6, (9, 7), 6, (3, 3), ((1, 1), (1, 1)), groups=6)
    for other in (
        good.descriptor("backward_filter"),
        good.descriptor(dtype="float64"),
        good.descriptor(layout="channels_first"),
        CASES["depthwise"].descriptor(),
        CASES["depthwise_multiplied"].descriptor(),
        CASES["plain"].descriptor(),
        replace(good, strides=(2, 2)).descriptor(),
        replace(good, dilation=(1, 2)).descriptor(),
        replace(good, channels=7, filters=7, groups=7).descriptor(),
    ):
        assert "cuda:depthwise" not in engines.candidates(other, "cuda")
        raises(errors.NotFoundError, call=lambda other=other: run(other, "cuda:depthwise"))


def direct(descriptor: ConvDescriptor, family: str) -> list[str]:
    """The direct algorithms of a family that compute a convolution."""
    names = engines.candidates(descriptor, "cuda")
    return [name for name in names if name == family or name.startswith(family + ":")]


def _run_direct(descriptor: ConvDescriptor, family: str) -> None:
    """Every setting of a family; in bfloat16, which goes the same ways, the first."""
    names = direct(descriptor, family)
    assert names, descriptor.key
    for name in names if descriptor.x_dtype == "float16" else names[:1]:
        run(descriptor, name)


def _grouped_check(case: Case) -> Callable[[Any], None]:
    def check_grouped_kernels(mock: Any) -> None:
        for dtype, layout in zip(HALVES, ("ohwi", "hwio"), strict=True):
            for descriptor in descriptors(case, dtype, layout):
                is_filter = descriptor.direction == "backward_filter"
                _run_direct(descriptor, "cuda:grouped-filter" if is_filter else "cuda:grouped")

    return check_grouped_kernels


def _few_channels_check(case: Case) -> Callable[[Any], None]:
    def check_few_channels_kernels(mock: Any) -> None:
        for dtype, layout in zip(HALVES, ("oihw", "hwio"), strict=True):
            _run_direct(case.descriptor("forward", dtype, filter_layout=layout), "cuda:few-channels")
            _run_direct(
                case.descriptor("backward_filter", dtype, filter_layout=layout), "cuda:few-channels-filter"
            )

    return check_few_channels_kernels


for _case in GROUPED:
    globals()[f"check_grouped_kernels_of_{_case}"] = _grouped_check(GROUPED[_case])
for _case in FEW_CHANNELS:
    globals()[f"check_few_channels_kernels_of_{_case}"] = _few_channels_check(FEW_CHANNELS[_case])


def check_the_filters_gradient_of_few_channels_with_columns_an_odd_number_of_elements_apart(
    mock: Any,
) -> None:
    for channels, spatial, kernel in ((3, (10, 37), (3, 3)), (1, (9, 21), (7, 7)), (3, (8, 40), (7, 7))):
        pads = tuple((k // 2, k // 2) for k in kernel)
        case = Case(2, channels, spatial, 40, kernel, pads)
        for dtype, layout in zip(HALVES, ("oihw", "hwio"), strict=True):
            _run_direct(
                case.descriptor("backward_filter", dtype, filter_layout=layout), "cuda:few-channels-filter"
            )


def check_the_kernels_of_few_channels_are_refused_elsewhere(mock: Any) -> None:
    good = Case(2, 3, (9, 7), 16, (3, 3), ((1, 1), (1, 1)), strides=(2, 2))
    assert not direct(replace(good, strides=(2, 1)).descriptor("forward", "float16"), "cuda:few-channels")
    for direction, family in (
        ("forward", "cuda:few-channels"),
        ("backward_filter", "cuda:few-channels-filter"),
    ):
        assert direct(good.descriptor(direction, "float16"), family)
        for other in (
            good.descriptor("backward_data", "float16"),
            good.descriptor(direction),
            good.descriptor(direction, "float16", layout="channels_first"),
            replace(good, channels=5).descriptor(direction, "float16"),
            replace(good, filters=12).descriptor(direction, "float16"),
            replace(good, dilation=(1, 2)).descriptor(direction, "float16"),
            replace(good, kernel=(3, 12), pads=((1, 1), (6, 6))).descriptor(direction, "float16"),
            replace(good, filters=24, groups=3).descriptor(direction, "float16"),
        ):
            assert not direct(other, family), other.key
            raises(errors.NotFoundError, call=lambda o=other, f=family: run(o, f"{f}:rows=4"))


def check_an_infinity_at_the_edge_reaches_only_what_reads_it(mock: Any) -> None:
    """Kernels of few channels read a row's end together with what no output depends on."""
    for name, direction in itertools.product(("stem", "four", "patches"), ("forward", "backward_filter")):
        descriptor = FEW_CHANNELS[name].descriptor(direction, "float16")
        x, w, y = random_operands(descriptor)
        for column in (0, x.shape[2] - 1):
            at_edge = np.zeros_like(x)
            at_edge[0, x.shape[1] // 2, column, 0] = 1
            depends = expect(descriptor, at_edge, np.ones_like(w), np.ones_like(y)).value != 0
            expected = expect(descriptor, np.where(at_edge, 0, x), w, y)
            broken = np.where(at_edge, np.inf, x).astype(x.dtype)
            for algorithm in engines.candidates(descriptor, "cuda"):
                if algorithm.startswith("cuda:few-channels"):
                    actual, _ = Device(HostMemory()).run(descriptor, broken, w, y, algorithm)
                    assert not np.isfinite(actual[depends]).any()
                    expected.check(np.where(depends, expected.value, actual.astype(np.float64)))


def check_an_infinity_stays_in_its_group(mock: Any) -> None:
    sized = ("1_a_group_stride_1", "4_a_group_stride_1", "4_a_group_stride_2", "16_a_group_stride_1")
    cases = [GROUPED[name] for name in (*sized, "32_a_group_stride_2", "depthwise_7_stride_2")]
    cases += [FEW_CHANNELS[name] for name in ("stem", "patches", "four")]
    for case in cases:
        for descriptor in descriptors(case, "float16"):
            for name in [n for n in engines.candidates(descriptor, "cuda") if n.startswith("cuda:")][:1]:
                expect_an_infinity_to_stay(
                    descriptor,
                    lambda x, w, y, name=name, d=descriptor: Device(HostMemory()).run(d, x, w, y, name)[0],
                )


def check_the_filter_of_a_grouped_convolution_is_the_same_in_two_runs(
    mock: Any,
) -> None:
    case = Case(3, 40, (12, 21), 40, (3, 3), ((1, 1), (1, 1)), groups=10)
    for filter_layout in ("hwio", "oihw", "ohwi"):
        descriptor = case.descriptor("backward_filter", "float16", filter_layout=filter_layout)
        names = direct(descriptor, "cuda:grouped-filter")
        assert len(names) > 3
        for name in names:
            np.testing.assert_array_equal(run(descriptor, name), run(descriptor, name))


def check_values_that_are_not_finite_stay_within_their_taps_and_channels(mock: Any) -> None:
    """An infinity of x or dy reaches the entries of the filter that it is multiplied for, and no others."""
    cases = [
        *(
            Case(2, 32, (9, 11), 32, (3, 3), ((0, 0), (0, 0)), (s, s), groups=g)
            for s in (1, 2)
            for g in (2, 8)
        ),
        *(Case(1, 8, (9, 13), 8, (k, k), ((0, 0), (0, 0)), (s, s), groups=8) for s in (1, 2) for k in (5, 7)),
    ]
    for case, operand in itertools.product(cases, ("x", "y")):
        descriptor = case.descriptor("backward_filter", "float16", filter_layout="oihw")
        x, w, y = random_operands(descriptor)
        inputs = {"x": x, "y": y}
        size = inputs[operand].shape
        for place in ((0, 0), (0, size[2] - 1), (size[1] - 1, 0), (size[1] - 1, size[2] - 1), (1, 1)):
            spoilt = inputs | {operand: inputs[operand].copy()}
            spoilt[operand][0, place[0], place[1], 5] = np.inf
            output, _ = Device(HostMemory()).run(
                descriptor, spoilt["x"], w, spoilt["y"], direct(descriptor, "cuda:grouped-filter")[0]
            )
            np.testing.assert_array_equal(~np.isfinite(output), _reached(descriptor, operand, place, 5))


def _reached(descriptor: ConvDescriptor, operand: str, place: tuple[int, int], channel: int) -> np.ndarray:
    """Which entries of a filter (OIHW, without padding) depend on an element of x or dy."""
    outputs, inputs, *size = descriptor.w_dims
    reached = np.zeros(descriptor.w_dims, bool)
    for output, i, *tap in itertools.product(range(outputs), range(inputs), *map(range, size)):
        if operand == "y":
            reached[output, i, tap[0], tap[1]] = output == channel
            continue
        steps = [divmod(p - t, s) for p, t, s in zip(place, tap, descriptor.stride, strict=True)]
        inside = (rest == 0 and 0 <= p < n for (p, rest), n in zip(steps, descriptor.y_dims[2:], strict=True))
        reached[output, i, tap[0], tap[1]] = output // inputs * inputs + i == channel and all(inside)
    return reached


def check_the_filter_kernels_are_refused_elsewhere(mock: Any) -> None:
    good = Case(2, 16, (9, 7), 16, (3, 3), ((1, 1), (1, 1)), groups=4)
    name = direct(good.descriptor("backward_filter", "float16"), "cuda:grouped-filter")[0]
    for other in (
        good.descriptor("forward", "float16"),
        good.descriptor("backward_data", "float16"),
        good.descriptor("backward_filter", "float32"),
        good.descriptor("backward_filter", "float16", layout="channels_first"),
        replace(good, filters=32).descriptor("backward_filter", "float16"),
        replace(good, kernel=(3, 5)).descriptor("backward_filter", "float16"),
        replace(good, strides=(2, 1)).descriptor("backward_filter", "float16"),
        replace(good, dilation=(1, 2)).descriptor("backward_filter", "float16"),
        replace(good, channels=12, filters=12).descriptor("backward_filter", "float16"),
        replace(good, channels=24, filters=24, groups=1).descriptor("backward_filter", "float16"),
        replace(good, channels=32, filters=32, groups=2, kernel=(5, 5)).descriptor(
            "backward_filter", "float16"
        ),
    ):
        assert not direct(other, "cuda:grouped-filter")
        raises(errors.NotFoundError, call=lambda other=other: run(other, name))


# ---- running -------------------------------------------------------------------------------------


def check_the_variant_pack_is_kept_while_addresses_are_the_same(mock: Any) -> None:
    x, w, y = random_operands(PLAIN)
    memory = HostMemory()
    buffers = {name: memory.upload(array) for name, array in (("x", x), ("w", w), ("y", y))}
    operands = ffi.new(
        "tc_operands *", {name: ffi.cast("void *", memory.address(b)) for name, b in buffers.items()}
    )
    workspace = memory.allocate(1 << 16)

    @ffi.callback("void *(void *, size_t)")
    def allocate(_: Any, __: int) -> Any:
        return ffi.cast("void *", memory.address(workspace))

    context = ffi.new("tc_context *", {"device_kind": lib.TC_CUDA, "allocate": allocate})
    before = mock.count("packs"), mock.count("executions")
    with config.override(tune=False):
        for _ in range(5):
            check(lib.tc_convolve(PLAIN.to_c(), context, operands))
    assert mock.count("executions") == before[1] + 5
    assert mock.count("packs") == before[0] + 1


def check_misaligned_tensors_are_refused(mock: Any) -> None:
    class Shifted(HostMemory):
        def upload(self, array: np.ndarray) -> np.ndarray:
            return super().upload(array)[4:]

    raises(
        errors.InvalidArgumentError,
        "a multiple of 16 bytes",
        "forward|",
        call=lambda: run(PLAIN, "cudnn:eng0", Device(Shifted())),
    )


def check_running_out_of_memory_is_told_apart(mock: Any) -> None:
    name = "cudnn:eng1:k2=1,k13=0"
    raises(errors.OutOfMemoryError, call=lambda: run(PLAIN, name, Device(HostMemory(), limit=100)))
    mock.set_cudnn(fail_plan=4004)
    raises(errors.OutOfMemoryError, call=lambda: run(PLAIN, name))
    mock.set_cudnn(fail_plan=0, fail_create=4003)
    raises(errors.OutOfMemoryError, call=lambda: run(PLAIN, name, Device(HostMemory(), 1)))
    mock.set_cudnn(fail_create=0)
    run(PLAIN, name)


def check_failures_name_algorithm_key_and_status(mock: Any) -> None:
    raises(
        errors.EngineFailureError,
        "cudnn:eng5",
        PLAIN.key,
        "CUDNN_STATUS_EXECUTION_FAILED (5000)",
        "as the test asked for",
        call=lambda: run(PLAIN, "cudnn:eng5"),
    )
    mock.set_cuda(failing="cuStreamQuery=700")
    raises(
        errors.DeviceFailureError,
        "CUDA_ERROR_ILLEGAL_ADDRESS (700)",
        "must be restarted",
        call=lambda: run(PLAIN, "cudnn:eng5"),
    )
    for function, code, kind in (
        ("cuLaunchKernel", 1, errors.EngineFailureError),
        ("cuLaunchKernel", 716, errors.DeviceFailureError),
        ("cuModuleLoadData", 2, errors.OutOfMemoryError),
        ("cuCtxGetCurrent", 4, errors.DeviceFailureError),
        ("cuEventRecord", 1, errors.EngineFailureError),
    ):
        mock.reset()
        mock.set_cuda(failing=f"{function}={code}")
        raises(kind, f"({code})", call=lambda: run(PLAIN, "cudnn:eng0", repeats=1))


def check_a_broken_plan_builder_is_an_engine_failure(mock: Any) -> None:
    mock.set_cudnn(fail_plan=4000)
    raises(errors.EngineFailureError, "(4000)", call=lambda: run(PLAIN, "cudnn:eng0"))


# ---- through registry and tuner ------------------------------------------------------------------


@contextmanager
def tuning(**settings: Any) -> Iterator[None]:
    with config.override(tune=True, key_budget=20.0, process_budget=100.0, **settings):
        yield


def check_a_search_measures_and_keeps_a_right_answer(mock: Any) -> None:
    with tuning(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(3):
            run(PLAIN)
    assert registry.stats()["measured"] == 1
    (record,), _ = registry.collect()
    assert record.environment == engines.environment("cuda", 0)
    assert record.algorithm in engines.candidates(PLAIN, "cuda")
    assert not record.algorithm.startswith(("cudnn:eng4", "cudnn:eng5"))
    assert mock.count("plans") >= 1
    with tuning():
        run(PLAIN, device=Device(HostMemory(), 1))
    assert registry.stats()["measured"] == 2


def check_nothing_is_measured_while_a_stream_is_captured(mock: Any) -> None:
    mock.set_cuda(capturing=1)
    with tuning():
        run(PLAIN)
        assert registry.stats()["measured"] == 0
        assert registry.stats()["defaults"] == 1
        mock.set_cuda(capturing=0, failing="cuStreamIsCapturing=906")  # the legacy stream beside a capture
        run(PLAIN)
        assert registry.stats()["measured"] == 0


def check_a_lost_device_is_not_swallowed(mock: Any) -> None:
    with tuning():
        mock.set_cuda(failing="cuEventSynchronize=719")
        raises(errors.DeviceFailureError, "(719)", call=lambda: run(PLAIN))
