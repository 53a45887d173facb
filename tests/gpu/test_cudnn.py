"""The cuDNN engine on a GPU: each algorithm against float64, capture, streams, memory, lost devices."""

from __future__ import annotations

import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from device_run import Device, TorchMemory
from engines.conv_cases import CASES, Case
from engines.direct_cases import FEW_CHANNELS, GROUPED, HALVES, descriptors, expect_an_infinity_to_stay
from reference import OUTPUTS, Expected, expect, random_operands

from keras_tunedconv.core import engines, errors, registry
from keras_tunedconv.core.config import config
from keras_tunedconv.core.descriptor import DIRECTIONS, ConvDescriptor, Direction
from keras_tunedconv.core.errors import check
from keras_tunedconv.core.library import ffi, lib

pytestmark = pytest.mark.gpu

# Rounding of products and of transformed operands, as a share of the sum of their magnitudes.
_SLACK = {
    "float16": 2.0**-10,
    "bfloat16": 2.0**-7,
    "float32": 2.0**-20,
    "float64": 2.0**-50,
    "tf32": 2.0**-10,
}
_OPTIONS = ("float16", "bfloat16", "float32", "tf32", "float64")


@pytest.fixture(scope="module", autouse=True)
def torch() -> Any:
    """torch on a GPU, imported here and not above: other tests' processes must not load it."""
    module = pytest.importorskip("torch")
    if not module.cuda.is_available():
        pytest.skip("needs a CUDA device")
    module.zeros(1, device="cuda")  # torch's cuDNN is in the process first, as in training
    module.backends.cudnn.version()
    engines.ensure_open("cuda")
    return module


@pytest.fixture
def device() -> Device:
    return Device(TorchMemory())


def _describe(case: Case, direction: Direction, option: str, **layouts: str) -> ConvDescriptor:
    dtype = "float32" if option == "tf32" else option
    return case.descriptor(direction, dtype, allow_tf32=option == "tf32", **layouts)


def _expect(descriptor: ConvDescriptor, option: str, x: Any, w: Any, y: Any) -> Expected:
    exact = expect(descriptor, x, w, y)
    magnitude = expect(descriptor, *(np.abs(a) for a in (x, w, y))).value
    return replace(exact, tolerance=exact.tolerance + _SLACK[option] * magnitude)


def _one_of_each_kind(names: list[str]) -> Iterator[str]:
    """The first name of each engine and rewriting, the default among them."""
    seen = set()
    for name in names:
        kind = name.partition(":k")[0].partition("/")[0], name.partition("/")[2]
        if kind not in seen:
            seen.add(kind)
            yield name


def _check_candidates(
    device: Device, descriptor: ConvDescriptor, option: str, every: bool, rewriting: str = ""
) -> int:
    """Runs them; those that cuDNN cannot build or run here are counted apart, the others must be right."""
    x, w, y = random_operands(descriptor)
    expected = _expect(descriptor, option, x, w, y)
    names = [name for name in engines.candidates(descriptor, "cuda") if rewriting in name]
    right = 0
    for name in names if every else _one_of_each_kind(names):
        try:
            output, _ = device.run(descriptor, x, w, y, name)
        except (errors.NotFoundError, errors.EngineFailureError, errors.OutOfMemoryError) as error:
            print(f"{name}: {error}")
            continue
        try:
            expected.check(output)
        except AssertionError as error:
            raise AssertionError(f"{name} for {descriptor.key}: {error}") from error
        right += 1
    return right


def test_the_frameworks_cudnn_is_used(torch: Any) -> None:
    assert "loaded by the process before" in engines.describe("cudnn")
    major, minor = torch.backends.cudnn.version() // 10000, torch.backends.cudnn.version() % 10000 // 100
    properties = torch.cuda.get_device_properties(0)
    assert engines.environment("cuda", 0).startswith(
        f"engine=cudnn;version={major}.{minor};device={properties.name};"
        f"sm={properties.major}.{properties.minor};multiprocessors={properties.multi_processor_count};"
        f"~patch={torch.backends.cudnn.version() % 100};~driver="
    )


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("option", _OPTIONS)
def test_algorithms_agree_with_float64(device: Device, case: str, option: str) -> None:
    for direction in DIRECTIONS:
        descriptor = _describe(CASES[case], direction, option)
        assert _check_candidates(device, descriptor, option, every=option == "float16") >= 1


@pytest.mark.parametrize(
    "case",
    ["plain", "stem", "pointwise", "depthwise", "grouped_dilated", "one_axis"]
    + ["same_stem", "same_strided", "same_strided_grouped"],
)
def test_layouts(device: Device, case: str) -> None:
    for direction in DIRECTIONS:
        for layout in ("channels_last", "channels_first"):
            for filter_layout in ("hwio", "oihw", "ohwi"):
                descriptor = _describe(
                    CASES[case], direction, "float16", layout=layout, filter_layout=filter_layout
                )
                assert _check_candidates(device, descriptor, "float16", every=False) >= 1


@pytest.mark.parametrize("option", ["float16", "tf32", "float32"])
@pytest.mark.parametrize(
    "case",
    [
        CASES["same_stem"],
        CASES["same_strided"],
        CASES["same_strided_grouped"],
        Case(8, 3, (64, 48), 32, (7, 7), ((2, 3), (2, 3)), strides=(2, 2)),
    ],
    ids=["same_stem", "same_strided", "same_strided_grouped", "same_stem_of_many_blocks"],
)
def test_padding_written_out(device: Device, case: Case, option: str) -> None:
    for direction in DIRECTIONS:
        for layout in ("channels_last", "channels_first"):
            descriptor = _describe(case, direction, option, layout=layout)
            assert _check_candidates(device, descriptor, option, True, "/explicit-padding") >= 1


@pytest.mark.parametrize("option", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("size", [3, 5, 7])
def test_depthwise_kernels(device: Device, option: str, size: int) -> None:
    for channels in (2, 96, 134):
        pads = ((size // 2, size // 2), (size // 2, size // 2 + 1))
        case = Case(3, channels, (15, 18), channels, (size, size), pads, groups=channels)
        for direction in ("forward", "backward_data"):
            descriptor = _describe(case, direction, option)  # type: ignore[arg-type]
            x, w, y = random_operands(descriptor)
            output, _ = device.run(descriptor, x, w, y, "cuda:depthwise")
            _expect(descriptor, "float32", x, w, y).check(output)


@pytest.mark.parametrize("option", HALVES)
@pytest.mark.parametrize("case", [*GROUPED.values(), *FEW_CHANNELS.values()], ids=[*GROUPED, *FEW_CHANNELS])
def test_direct_kernels(device: Device, option: str, case: Case) -> None:
    ran = 0
    for filter_layout in ("hwio", "ohwi", "oihw"):
        for descriptor in descriptors(case, option, filter_layout):
            names = [name for name in engines.candidates(descriptor, "cuda") if name.startswith("cuda:")]
            x, w, y = random_operands(descriptor)
            expected = _expect(descriptor, option, x, w, y)
            for name in names:
                expected.check(device.run(descriptor, x, w, y, name)[0])
                ran += 1
    assert ran >= 3


@pytest.mark.parametrize("case", ["4_a_group_stride_1", "4_a_group_stride_2", "depthwise_7_stride_1"])
def test_an_infinity_stays_in_its_group(device: Device, case: str) -> None:
    for descriptor in descriptors(GROUPED[case], "float16"):
        name = next(name for name in engines.candidates(descriptor, "cuda") if name.startswith("cuda:"))
        expect_an_infinity_to_stay(
            descriptor, lambda x, w, y, d=descriptor, name=name: device.run(d, x, w, y, name)[0]
        )


def test_a_name_gives_the_same_bits_again(device: Device) -> None:
    """Deterministic algorithms prepared twice from their names, as two processes would."""
    for case in ("plain", "stem", "depthwise", "grouped_dilated"):
        for direction in DIRECTIONS:
            descriptor = CASES[case].descriptor(direction, "float16", deterministic=True)
            x, w, y = random_operands(descriptor)
            for name in _one_of_each_kind(engines.candidates(descriptor, "cuda")):
                try:
                    first, _ = device.run(descriptor, x, w, y, name)
                    second, _ = device.run(descriptor, x, w, y, name)
                except errors.TunedConvError as error:
                    print(f"{name}: {error}")
                    continue
                assert first.tobytes() == second.tobytes(), name


def test_times_are_those_of_the_device(device: Device) -> None:
    small, large = CASES["plain"], Case(32, 64, (56, 56), 64, (3, 3), ((1, 1), (1, 1)))
    seconds = []
    for case in (small, large):
        descriptor = case.descriptor(dtype="float16")
        name = engines.candidates(descriptor, "cuda")[0]
        seconds.append(device.run(descriptor, *random_operands(descriptor), name, repeats=20)[1])
    assert 0 < seconds[0] < seconds[1] < 0.1


def test_tuning_and_then_a_hit(device: Device) -> None:
    descriptor = CASES["stem"].descriptor("backward_data", "float16")
    x, w, y = random_operands(descriptor)
    expected = _expect(descriptor, "float16", x, w, y)
    with config.override(tune=True, key_budget=10.0, process_budget=60.0), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(3):
            expected.check(device.run(descriptor, x, w, y)[0])
    assert registry.stats()["measured"] == 1
    (record,), _ = registry.collect()
    assert record.environment == engines.environment("cuda", 0)
    assert record.candidates_tried > 5
    registry.clear()
    registry.put(record)
    expected.check(device.run(descriptor, x, w, y)[0])
    assert registry.stats()["measured"] == 0
    assert registry.stats()["hits"] == 1


def test_nothing_is_measured_while_a_graph_is_captured(torch: Any) -> None:
    descriptor = CASES["plain"].descriptor(dtype="float16")
    x, w, y = random_operands(descriptor)
    expected = _expect(descriptor, "float16", x, w, y)
    memory = TorchMemory()
    device = Device(memory)
    buffers = {name: memory.upload(array) for name, array in (("x", x), ("w", w), ("y", y))}
    operands = ffi.new(
        "tc_operands *", {name: ffi.cast("void *", memory.address(b)) for name, b in buffers.items()}
    )
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with config.override(tune=True):
        with torch.cuda.graph(graph, stream=memory._stream):
            check(lib.tc_convolve(descriptor.to_c(), device.context(), operands))
        assert registry.stats()["measured"] == 0
        assert registry.stats()["defaults"] == 1
    buffers[OUTPUTS[descriptor.direction]].fill_(255)
    for _ in range(2):
        graph.replay()
        torch.cuda.synchronize()
        expected.check(memory.download(buffers["y"], y))


def test_threads_on_streams_of_their_own() -> None:
    descriptors = [
        CASES[name].descriptor(direction, "float16")
        for name in ("plain", "stem", "depthwise")
        for direction in DIRECTIONS
    ]
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            device = Device(TorchMemory())
            for descriptor in descriptors * 3:
                x, w, y = random_operands(descriptor, seed)
                expected = _expect(descriptor, "float16", x, w, y)
                expected.check(device.run(descriptor, x, w, y)[0])
        except BaseException as error:
            failures.append(error)

    with config.override(tune=False):
        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failures, failures


def test_no_workspace_to_be_had() -> None:
    descriptor = CASES["stem"].descriptor("backward_data", "float16")
    x, w, y = random_operands(descriptor)
    name = next(n for n in engines.candidates(descriptor, "cuda") if "fold" in n)
    with pytest.raises(errors.OutOfMemoryError):
        Device(TorchMemory(), limit=0).run(descriptor, x, w, y, name)
    Device(TorchMemory()).run(descriptor, x, w, y, name)


_LOST = """
import torch
torch.zeros(1, device="cuda"); torch.backends.cudnn.version()
from engines.conv_cases import CASES
from keras_tunedconv.core import engines, errors
from keras_tunedconv.core.errors import check
from keras_tunedconv.core.library import ffi, lib
engines.ensure_open("cuda")
descriptor = CASES["plain"].descriptor(dtype="float16")
workspace = torch.empty(1 << 26, dtype=torch.uint8, device="cuda")
allocate = ffi.callback("void *(void *, size_t)", lambda _, size: ffi.cast("void *", workspace.data_ptr()))
context = ffi.new("tc_context *", {"device_kind": lib.TC_CUDA, "allocate": allocate})
operands = ffi.new("tc_operands *", {name: ffi.cast("void *", 1 << 20) for name in "xwy"})
name = engines.candidates(descriptor, "cuda")[0]
try:
    check(lib.tc_run_algorithm(descriptor.to_c(), context, operands, name.encode(), 3, ffi.new("double *")))
except errors.DeviceFailureError as error:
    print("LOST", error)
"""


def test_a_lost_device_is_told(tmp_path: Path) -> None:
    tests = str(Path(__file__).resolve().parents[1])
    script = f"import sys; sys.path.insert(0, {tests!r})\n" + _LOST
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=240)
    assert result.stdout.startswith("LOST"), result.stdout + result.stderr
    assert "must be restarted" in result.stdout


# ---- sizes ----


def _compare_with_torch(torch: Any, case: Case, option: str, rows: int = 64) -> None:
    """On the device, since NumPy would take minutes: a sample of the output against torch in float32."""
    descriptor = _describe(case, "forward", option)
    memory = TorchMemory()
    dtype = {"float16": torch.float16, "float32": torch.float32}[descriptor.x_dtype]
    n, c, h, w = descriptor.x_dims
    o, _, kh, kw = descriptor.w_dims
    x = torch.randn((n, h, w, c), dtype=dtype, device="cuda")
    weights = torch.randn((kh, kw, c // case.groups, o), dtype=dtype, device="cuda") / (c * kh * kw) ** 0.5
    y = torch.full((n, *descriptor.y_dims[2:], o), float("nan"), dtype=dtype, device="cuda")
    torch.cuda.synchronize()
    operands = ffi.new(
        "tc_operands *",
        {k: ffi.cast("void *", v.data_ptr()) for k, v in (("x", x), ("w", weights), ("y", y))},
    )
    with config.override(tune=False):
        device = Device(memory)
        check(lib.tc_convolve(descriptor.to_c(), device.context(), operands))
    torch.cuda.synchronize()
    assert not torch.isnan(y).any()
    for image in sorted({0, n // 2, n - 1}):
        for start in sorted({0, max(h - rows, 0)}):
            part = x[image : image + 1, start : start + rows].permute(0, 3, 1, 2).float()
            wanted = torch.nn.functional.conv2d(
                part, weights.permute(3, 2, 0, 1).float(), padding=(0, kw // 2), groups=case.groups
            )
            got = y[image, start + kh // 2 : start + kh // 2 + wanted.shape[2]].float().permute(2, 0, 1)
            assert torch.allclose(got, wanted[0], atol=2e-2, rtol=1e-2)


def test_more_images_than_a_grids_second_dimension(torch: Any) -> None:
    _compare_with_torch(torch, Case(70000, 3, (8, 8), 8, (3, 3), ((1, 1), (1, 1))), "float16", rows=8)


def test_pointwise_over_a_large_image(torch: Any) -> None:
    _compare_with_torch(torch, Case(1, 8, (8192, 8192), 8, (1, 1), ((0, 0), (0, 0))), "float16")


@pytest.mark.slow
def test_more_than_two_to_the_31_elements(torch: Any) -> None:
    _compare_with_torch(torch, Case(36, 16, (2048, 2048), 8, (3, 3), ((1, 1), (1, 1))), "float16")
