"""Tuned convolutions under torch on a CUDA device: streams, workspace, autocast, and torch's settings."""

from __future__ import annotations

import os

import pytest

from tests.bridges.conv_cases import CASES, Case

if os.environ["KERAS_BACKEND"] != "torch":
    pytest.skip("needs KERAS_BACKEND=torch", allow_module_level=True)

import torch

if not torch.cuda.is_available():
    pytest.skip("torch sees no GPU", allow_module_level=True)

from keras_tunedconv.bridges.torch import convolution, plans
from keras_tunedconv.core import engines, registry
from keras_tunedconv.core.config import config
from keras_tunedconv.core.descriptor import DIRECTIONS

pytestmark = pytest.mark.gpu

NAMES = [name for name in CASES if name not in ("one_axis", "three_axes", "bfloat16")]


@pytest.fixture(autouse=True)
def _exact():
    plans.forget()
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    with config.override(key_budget=0.2):
        yield
    torch.cuda.synchronize()
    torch.backends.cudnn.allow_tf32 = before


def tensors(name, dtype="float32"):
    case = Case(name, dtype)
    to = {"dtype": getattr(torch, dtype), "device": "cuda"}
    return case, *(torch.from_numpy(a.astype("float32")).to(**to) for a in (case.x, case.w, case.y))


def tuned(case):
    def function(x, w):
        y = convolution(x, w, **case.arguments, groups=case.groups)
        if y is None:  # no assert: torch cannot compile what pytest makes of one
            raise RuntimeError(f"Keras's own convolution would run for {case}")
        return y

    return function


def check(case, y, dx, dw):
    for direction, value in zip(DIRECTIONS, (y, dx, dw), strict=True):
        value = value.detach().cpu()
        case.check(direction, (value.float() if value.dtype == torch.bfloat16 else value).numpy())


def step(f, x, w, v):
    x, w = x.detach().requires_grad_(), w.detach().requires_grad_()
    y = f(x, w)
    return y, *torch.autograd.grad(y, (x, w), v)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("name", NAMES)
def test_values_and_gradients(name, dtype):
    case, x, w, v = tensors(name, dtype)
    if not all(engines.supported(case.descriptor.with_direction(d), "cuda") for d in DIRECTIONS):
        pytest.skip("cuDNN has no algorithm for it")
    check(case, *step(tuned(case), x, w, v))
    assert all("cudnn" in record.environment for record in registry.collect()[0])


def test_stream_of_the_caller():
    case, x, w, v = tensors("plain")
    step(tuned(case), x, w, v)  # measures, which waits for the device
    stream = torch.cuda.Stream()
    late = torch.zeros_like(x)
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(200_000_000)
        late.copy_(x)  # another stream would still see zeros
        results = step(tuned(case), late, w, v)
    stream.synchronize()
    check(case, *results)


def test_workspace_is_given_back():
    case, x, w, v = tensors("plain")
    results = step(tuned(case), x, w, v)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    for _ in range(5):
        results = step(tuned(case), x, w, v)
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() == before
    check(case, *results)


def test_capture_into_a_graph():
    case, x, w, _v = tensors("plain")
    f = tuned(case)
    with torch.no_grad():
        f(x, w)
        graph, static = torch.cuda.CUDAGraph(), torch.zeros_like(x)
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            y = f(static, w)
        static.copy_(x)
        graph.replay()
    torch.cuda.synchronize()
    case.check("forward", y.cpu().numpy())


def test_autocast():
    case, x, w, _ = tensors("plain")
    with torch.autocast("cuda", dtype=torch.float16):
        y = tuned(case)(x, w)
    assert y.dtype == torch.float16
    torch.testing.assert_close(y.float(), tuned(case)(x, w), rtol=1e-2, atol=1e-2)


def test_settings_of_torch_are_in_the_keys():
    case, x, w, _ = tensors("plain")
    f = tuned(case)
    torch.backends.cudnn.allow_tf32 = True
    f(x, w)
    torch.backends.cudnn.allow_tf32 = False
    torch.use_deterministic_algorithms(True)
    try:
        f(x, w)
    finally:
        torch.use_deterministic_algorithms(False)
    keys = [record.key for record in registry.collect()[0]]
    assert ["tf32=1" in key for key in keys] == [True, False]
    assert ["deterministic=1" in key for key in keys] == [False, True]


def test_compiled_step():
    case, x, w, v = tensors("groups")
    check(case, *step(torch.compile(tuned(case), fullgraph=True, backend="aot_eager"), x, w, v))
