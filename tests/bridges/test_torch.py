"""Tuned convolutions under torch: values, derivatives, what wraps them, and what is left to Keras."""

from __future__ import annotations

import os
import threading

import numpy as np
import pytest
from tuning_data import own_warnings

from tests.bridges.conv_cases import CASES, TELLING, Case, only_reference_engine

if os.environ["KERAS_BACKEND"] != "torch":
    pytest.skip("needs KERAS_BACKEND=torch", allow_module_level=True)

import keras
import torch
from torch.autograd import forward_ad
from torch.testing._internal.two_tensor import TwoTensor

from keras_tunedconv.bridges import fallback
from keras_tunedconv.bridges.torch import autograd, convolution, dispatch, plans
from keras_tunedconv.bridges.torch.geometry import Call, descriptor_of, geometry_text
from keras_tunedconv.bridges.torch.operator import operator
from keras_tunedconv.bridges.torch.stock import stock as aten
from keras_tunedconv.core import engines, registry
from keras_tunedconv.core.config import config
from keras_tunedconv.core.descriptor import DIRECTIONS
from keras_tunedconv.core.errors import TuningWarning, UnavailableError

close = torch.testing.assert_close


@pytest.fixture(autouse=True)
def _quick():
    fallback.forget()
    plans.forget()
    torch._dynamo.reset()
    with config.override(key_budget=0.02, minimum_runs=1):
        yield


@pytest.fixture
def float64(monkeypatch):
    with only_reference_engine(monkeypatch, plans.forget):
        yield


class Tensors:
    """A case's operands as tensors, and its convolution as three functions."""

    def __init__(self, name, dtype=None, device="cpu"):
        self.case = Case(name, dtype)
        # torch reads no bfloat16 from NumPy; every bfloat16 is a float32.
        exact = np.float64 if self.case.descriptor.x_dtype == "float64" else np.float32
        to = {"dtype": getattr(torch, self.case.descriptor.x_dtype), "device": device}
        self.x, self.w, self.y = (
            torch.from_numpy(a.astype(exact)).to(**to) for a in (self.case.x, self.case.w, self.case.y)
        )
        a = self.case.arguments
        self.geometry = geometry_text(a["strides"], a["dilation_rate"], a["padding"], a["data_format"])

    def tuned(self, x, w):
        y = convolution(x, w, **self.case.arguments, groups=self.case.groups)
        assert y is not None
        return y

    def tuned_or_stock(self, x, w):
        y = convolution(x, w, **self.case.arguments, groups=self.case.groups)
        return self.of_keras(x, w) if y is None else y

    def stock(self, x, w):
        """As Keras's convolution, but without its memory formats, which torch.func does not know."""
        return aten(self.case.descriptor, x, w)

    def of_keras(self, x, w):
        return keras.ops.conv(x, w, **self.case.arguments)

    def calls(self):
        """Arguments of the operator in all directions."""
        yield self.x, self.w, [], 0, self.geometry
        yield self.w, self.y, list(self.x.shape), 1, self.geometry
        yield self.x, self.y, list(self.w.shape), 2, self.geometry


def leaf(tensor):
    return tensor.detach().clone().requires_grad_()


def as_numpy(tensor):
    tensor = tensor.detach().cpu()
    return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()


def with_gradients(f, x, w, v):
    x, w = leaf(x), leaf(w)
    y = f(x, w)
    return (y.detach(), *torch.autograd.grad(y, (x, w), v))


def check_values(t, f=None):
    y, dx, dw = with_gradients(f or t.tuned, t.x, t.w, t.y)
    t.case.check("forward", as_numpy(y))
    t.case.check("backward_data", as_numpy(dx))
    t.case.check("backward_filter", as_numpy(dw))


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(name):
    check_values(Tensors(name))
    assert {record.key.split("|")[0] for record in registry.collect()[0]} == set(DIRECTIONS)


@pytest.mark.parametrize("name", CASES)
def test_aten_gives_the_same_where_no_engine_serves(name, monkeypatch):
    t = Tensors(name)
    monkeypatch.setattr(plans, "_fault", lambda *_: "not served")
    check_values(t, lambda x, w: operator(x, w, [], 0, t.geometry))
    assert registry.collect()[0] == []


class TestDerivatives:
    @pytest.mark.parametrize("name", TELLING)
    def test_first_order(self, name, float64):
        t = Tensors(name, "float64")
        inputs = leaf(t.x), leaf(t.w)
        assert torch.autograd.gradcheck(t.tuned, inputs, check_forward_ad=True, check_batched_grad=True)

    @pytest.mark.parametrize("name", ["same_odd_padding", "channels_first_groups"])
    def test_second_order(self, name, float64):
        t = Tensors(name, "float64")
        inputs = leaf(t.x[:1]), leaf(t.w)
        assert torch.autograd.gradgradcheck(t.tuned, inputs, check_fwd_over_rev=True)

    @pytest.mark.parametrize("direction", range(3))
    def test_operator_is_registered_as_torch_wants_it(self, direction, float64):
        t = Tensors("same_odd_padding", "float64")
        lhs, rhs, *rest = list(t.calls())[direction]
        torch.library.opcheck(operator, (leaf(lhs), leaf(rhs), *rest))

    def test_only_what_is_wanted_is_computed(self):
        t = Tensors("plain")
        t.tuned(t.x, leaf(t.w)).sum().backward()
        assert {r.key.split("|")[0] for r in registry.collect()[0]} == {"forward", "backward_filter"}

    def test_tangents_in_a_backward_pass(self, float64):
        t = Tensors("plain", "float64")
        results = []
        for f in (t.tuned, t.stock):
            with forward_ad.dual_level():
                x = forward_ad.make_dual(leaf(t.x), 2 * t.x)
                (dw,) = torch.autograd.grad(f(x, w := leaf(t.w)).sin().sum(), w)
                results.append(forward_ad.unpack_dual(dw).tangent)
        close(*results)


FUNCTIONAL = {
    "grad": lambda f, x, w: torch.func.grad(lambda x, w: f(x, w).sin().sum(), (0, 1))(x, w),
    "jvp": lambda f, x, w: torch.func.jvp(f, (x, w), (w.sum() * x, w)),
    "jacfwd": lambda f, x, w: torch.func.jacfwd(lambda w: f(x, w).sin())(w),
    "jacrev": lambda f, x, w: torch.func.jacrev(lambda w: f(x, w).sin())(w),
    "hessian": lambda f, x, w: torch.func.hessian(lambda w: f(x, w).sin().sum())(w),
    "vmap_x": lambda f, x, w: torch.func.vmap(f, (1, None))(torch.stack([x, 2 * x], 1), w),
    "vmap_w": lambda f, x, w: torch.func.vmap(f, (None, 2))(x, torch.stack([w, 2 * w], 2)),
    "vmap_both": lambda f, x, w: torch.func.vmap(f)(torch.stack([x, 2 * x]), torch.stack([w, -w])),
    "vmap_twice": lambda f, x, w: torch.func.vmap(torch.func.vmap(f, (None, 0)), (0, None))(
        torch.stack([x, 2 * x]), torch.stack([w, -w, 3 * w])
    ),
    "vmap_of_grad": lambda f, x, w: torch.func.vmap(
        torch.func.grad(lambda x, w: f(x, w).sin().sum(), (0, 1)), (0, None)
    )(torch.stack([x, 2 * x]), w),
    "grad_of_vmap": lambda f, x, w: torch.func.grad(
        lambda w: torch.func.vmap(f, (0, None))(torch.stack([x, 2 * x]), w).sin().sum()
    )(w),
}


@pytest.mark.parametrize("transform", FUNCTIONAL)
@pytest.mark.parametrize("name", ["unused_border", "channels_first_groups"])
def test_transforms_of_torch_func(name, transform, float64):
    t = Tensors(name, "float64")
    close(*(FUNCTIONAL[transform](f, t.x, t.w) for f in (t.tuned, t.stock)))
    assert registry.stats()["fallbacks"] > 0, "the core's loops ran"


class TestWhatTheDispatcherDoes:
    """Calls that nothing watches go past torch's dispatcher; these are those that must not."""

    def test_negated_views(self):
        t = Tensors("plain")
        lazily = torch.complex(torch.zeros_like(t.x), t.x).conj().imag
        assert lazily.is_neg()
        close(t.tuned(lazily, t.w), t.of_keras(-t.x, t.w))
        x = t.x.clone().requires_grad_()
        y = t.tuned(torch.complex(torch.zeros_like(x), x).conj().imag, t.w)
        (dx,) = torch.autograd.grad(y, x, torch.ones_like(y))
        x = t.x.clone().requires_grad_()
        y = t.tuned(x, t.w)
        close(dx, -torch.autograd.grad(y, x, torch.ones_like(y))[0])

    def test_tensors_of_inference_mode_can_be_trained_on(self):
        t = Tensors("plain")
        with torch.inference_mode():
            x = t.x.clone()
        assert x.is_inference()
        w = leaf(t.w)
        y = t.tuned(x, w)
        (dw,) = torch.autograd.grad(y, w, t.y)
        t.case.check("forward", as_numpy(y))
        t.case.check("backward_filter", as_numpy(dw))

    def test_functionalize(self):
        t = Tensors("plain")
        close(torch.func.functionalize(t.tuned_or_stock)(t.x, t.w), t.of_keras(t.x, t.w))
        derivative = torch.func.grad(lambda x: torch.func.functionalize(t.tuned_or_stock)(x, t.w).sum())
        close(derivative(t.x), torch.func.grad(lambda x: t.stock(x, t.w).sum())(t.x))

    def test_tensors_without_memory(self):
        t = Tensors("plain")
        nothing = torch._efficientzerotensor(t.x.shape)
        close(t.tuned(nothing, t.w), torch.zeros(t.y.shape))

    def test_layouts_without_strides(self):
        t = Tensors("plain")
        for x in (t.x.to_sparse(), t.x.to_mkldnn()):
            assert convolution(x, t.w, **t.case.arguments, groups=1) is None

    @pytest.mark.parametrize("differentiates", [False, True])
    def test_modes_and_profilers_see_the_operator(self, differentiates):
        from torch.utils._python_dispatch import TorchDispatchMode

        seen = []

        class Watch(TorchDispatchMode):
            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                seen.append(str(func))
                return func(*args, **(kwargs or {}))

        t = Tensors("plain")
        x = t.x.clone().requires_grad_(differentiates)
        with Watch():
            close(t.tuned(x, t.w).detach(), t.of_keras(t.x, t.w))
        assert any(name.startswith("keras_tunedconv.convolution") for name in seen)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            y = t.tuned(x, t.w)
            if differentiates:
                y.sum().backward()
        names = [event.key for event in profile.key_averages() if "keras_tunedconv::" in event.key]
        assert "keras_tunedconv::convolution_kernel" in names

    @pytest.mark.parametrize("name", ["plain", "groups"])
    def test_flops_are_counted_as_those_of_torch(self, name):
        from torch.utils.flop_counter import FlopCounterMode

        t = Tensors(name)
        counted = []
        for f in (t.tuned, t.of_keras):
            with FlopCounterMode(display=False) as mode:
                with_gradients(f, t.x, t.w, t.y)
            counted.append(mode.get_total_flops())
        assert counted[0] > 0
        if name == "plain":  # torch forgets the groups in gradients
            assert counted[0] == counted[1]

    def test_other_versions_of_torch_dispatch_each_call(self, monkeypatch):
        t = Tensors("plain")
        monkeypatch.setattr(dispatch, "_can_tell", False)
        monkeypatch.setattr(autograd, "execute", None)
        check_values(t, t.tuned)

    def test_what_nothing_watches_is_not_dispatched(self, monkeypatch):
        t = Tensors("plain")
        monkeypatch.setattr(autograd, "kernel", None)
        monkeypatch.setattr(autograd, "operator", None)
        check_values(t, t.tuned)
        with torch.inference_mode():
            t.case.check("forward", as_numpy(t.tuned(t.x, t.w)))
            t.case.check("forward", as_numpy(t.tuned(t.x + 0, t.w + 0)))


class TestCompile:
    @pytest.mark.parametrize("dynamic", [None, True, False])
    @pytest.mark.parametrize("name", TELLING)
    def test_in_one_graph(self, name, dynamic):
        t = Tensors(name)
        compiled = torch.compile(
            lambda x, w: t.tuned(x, w) * 1, fullgraph=True, dynamic=dynamic, backend="aot_eager"
        )
        check_values(t, compiled)
        for batch in (5, 3):
            x = torch.randn(batch, *t.x.shape[1:])
            close(compiled(x, t.w), t.of_keras(x, t.w))

    @pytest.mark.slow
    def test_by_inductor(self):
        t = Tensors("same_odd_padding")
        check_values(
            t,
            torch.compile(lambda x, w: t.tuned(x, w).sin().atan() * 0 + t.tuned(x, w), fullgraph=True),
        )

    def test_what_the_engine_does_not_serve(self, monkeypatch):
        t = Tensors("groups")
        monkeypatch.setattr(plans, "_fault", lambda *_: "not served")
        check_values(t, torch.compile(t.tuned, fullgraph=True, backend="aot_eager"))
        assert registry.collect()[0] == []

    @pytest.mark.parametrize("transform", ["grad", "vmap_x", "jvp"])
    def test_of_transforms(self, transform):
        t = Tensors("plain")

        def f(x, w):
            y = convolution(x, w, **t.case.arguments, groups=1)
            return t.stock(x, w) if y is None else y

        compiled = torch.compile(
            lambda x, w: FUNCTIONAL[transform](f, x, w), fullgraph=True, backend="aot_eager"
        )
        close(compiled(t.x, t.w), FUNCTIONAL[transform](t.stock, t.x, t.w))

    def test_under_autocast(self):
        t = Tensors("plain")
        compiled = torch.compile(t.tuned, fullgraph=True, backend="aot_eager")
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = compiled(t.x, t.w)
            assert y.dtype == torch.bfloat16
            close(y, t.of_keras(t.x, t.w), rtol=2e-2, atol=2e-2)

    def test_without_an_engine(self, monkeypatch):
        def missing(device):
            raise UnavailableError(f"no library for {device}")

        t = Tensors("plain")
        monkeypatch.setattr(engines, "ensure_open", missing)
        compiled = torch.compile(t.tuned_or_stock, fullgraph=True, backend="aot_eager")
        with pytest.warns(TuningWarning, match="no library for cpu"):
            close(compiled(t.x, t.w), t.of_keras(t.x, t.w))


class TestAutocast:
    def test_casts_as_torchs_own_convolution_does(self):
        t = Tensors("plain")
        w = leaf(t.w)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = t.tuned(t.x, w)
            expected = t.of_keras(t.x, t.w)
        assert y.dtype == expected.dtype == torch.bfloat16
        close(y, expected, rtol=2e-2, atol=2e-2)
        y.float().sum().backward()
        assert w.grad.dtype == torch.float32

    def test_takes_mixed_dtypes(self):
        t = Tensors("plain")
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert t.tuned(t.x.bfloat16(), t.w).dtype == torch.bfloat16
        assert convolution(t.x.bfloat16(), t.w, **t.case.arguments, groups=1) is None


class TestMemory:
    def test_channels_last_format_is_kept(self):
        t = Tensors("channels_first_groups")
        x = t.x.to(memory_format=torch.channels_last)
        y, dx, _ = with_gradients(t.tuned, x, t.w, t.y)
        assert y.is_contiguous(memory_format=torch.channels_last)
        t.case.check("forward", as_numpy(y))
        t.case.check("backward_data", as_numpy(dx))
        assert all("nhwc" in record.key for record in registry.collect()[0] if "forward" in record.key)

    @pytest.mark.parametrize("name", ["plain", "channels_first"])
    def test_views_and_slices(self, name):
        t = Tensors(name)
        sparse = t.x.new_zeros([2 * size for size in t.x.shape])
        x = sparse[::2, ::2, 1::2, 1::2].copy_(t.x)
        w = t.w.permute(3, 2, 0, 1).contiguous().permute(2, 3, 1, 0)
        v = t.y.flip(0).contiguous().flip(0).transpose(1, 2).contiguous().transpose(1, 2)
        assert not any(tensor.is_contiguous() for tensor in (x, w, v))
        y = t.tuned(x.requires_grad_(), w.requires_grad_())
        dx, dw = torch.autograd.grad(y, (x, w), v)
        t.case.check("forward", as_numpy(y))
        t.case.check("backward_data", as_numpy(dx))
        t.case.check("backward_filter", as_numpy(dw))

    def test_expanded_gradients(self):
        t = Tensors("plain")
        w = leaf(t.w)
        t.tuned(t.x, w).sum().backward()
        t.case.check("backward_filter", as_numpy(w.grad), y=np.ones_like(t.case.y))

    def test_what_is_saved_may_not_be_overwritten(self):
        t = Tensors("plain")
        x, w = t.x.clone(), leaf(t.w)
        y = t.tuned(x, w)
        x.zero_()
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()


class TestModes:
    def test_without_gradients(self):
        t = Tensors("plain")
        for mode in (torch.no_grad, torch.inference_mode):
            with mode():
                y = t.tuned(t.x, leaf(t.w))
            t.case.check("forward", as_numpy(y))
            assert not y.requires_grad

    @pytest.mark.parametrize("reentrant", [False, True])
    def test_checkpoint(self, reentrant):
        t = Tensors("plain")
        x, w = leaf(t.x), leaf(t.w)
        y = torch.utils.checkpoint.checkpoint(t.tuned, x, w, use_reentrant=reentrant)
        y.backward(t.y)
        t.case.check("forward", as_numpy(y))
        t.case.check("backward_data", as_numpy(x.grad))
        t.case.check("backward_filter", as_numpy(w.grad))

    def test_threads(self):
        t = Tensors("groups")
        faults = []

        def work():
            try:
                for _ in range(20):
                    check_values(t)
            except Exception as error:
                faults.append(error)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert faults == []


class Model(torch.nn.Module):
    def __init__(self, tensors):
        super().__init__()
        self.tensors, self.weight = tensors, torch.nn.Parameter(tensors.w)

    def forward(self, x):
        return self.tensors.tuned_or_stock(x, self.weight).relu()


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore::DeprecationWarning")
class TestExport:
    @pytest.mark.parametrize("strict", [True, False])
    def test_holds_the_stock_convolution(self, strict):
        t = Tensors("plain")
        program = torch.export.export(Model(t), (t.x,), strict=strict)
        assert "keras_tunedconv" not in str(program.graph)
        assert "aten.conv2d" in str(program.graph)
        close(program.module()(t.x), t.of_keras(t.x, t.w).relu())

    def test_of_a_dynamic_batch(self):
        t = Tensors("plain")
        batch = torch.export.Dim("batch", min=2)
        program = torch.export.export(Model(t), (t.x,), dynamic_shapes=({0: batch},), strict=False)
        x = torch.randn(5, *t.x.shape[1:])
        close(program.module()(x), t.of_keras(x, t.w).relu())

    def test_of_a_trace(self):
        t = Tensors("plain")
        traced = torch.jit.trace(Model(t), (t.x,))
        assert "keras_tunedconv::" not in str(traced.graph)
        assert "aten::_convolution" in str(traced.graph)


class TestLeftToKeras:
    def left(self, x, w, **changes):
        arguments = Tensors("plain").case.arguments | {"groups": 1} | changes
        return convolution(x, w, **arguments) is None

    def test_dtypes(self):
        t = Tensors("plain")
        for dtype in (torch.int32, torch.complex64, torch.bool):
            assert self.left(t.x.to(dtype), t.w.to(dtype))

    def test_float64_says_so_once(self):
        t = Tensors("plain", "float64")
        with pytest.warns(TuningWarning, match="float64") as warned:
            assert all(self.left(t.x, t.w) for _ in range(2))
        assert len(own_warnings(warned)) == 1
        assert registry.stats()["fallbacks"] == 1

    def test_empty_tensors(self):
        t = Tensors("plain")
        assert self.left(t.x[:0], t.w)

    def test_other_devices(self):
        t = Tensors("plain")
        assert self.left(t.x.to("meta"), t.w.to("meta"))
        assert self.left(t.x, t.w.to("meta"))

    def test_subclasses(self):
        t = Tensors("plain")
        assert self.left(TwoTensor(t.x, t.x), t.w)

    def test_what_is_an_error(self):
        t = Tensors("plain")
        assert self.left(t.x, t.w[:, :, :3])
        assert self.left(t.x[:, :2, :2], t.w)
        assert self.left(t.x, t.w, groups=5)
        assert self.left(t.x[0], t.w)

    def test_without_an_engine(self, monkeypatch):
        def missing(device):
            raise UnavailableError(f"no library for {device}")

        t = Tensors("plain")
        monkeypatch.setattr(engines, "ensure_open", missing)
        with pytest.warns(TuningWarning, match="no library for cpu"):
            assert self.left(t.x, t.w)


def test_variables_of_keras_are_taken():
    t = Tensors("plain")
    t.case.check("forward", as_numpy(t.tuned(t.x, keras.Variable(t.w))))


def test_operands_that_differ_are_refused():
    t = Tensors("plain")
    with pytest.raises(ValueError, match="one dtype on one device"):
        operator(t.x, t.w.half(), [], 0, t.geometry)


@pytest.mark.skipif(not hasattr(torch.backends.cudnn, "conv"), reason="a setting of torch 2.9")
def test_settings_of_gpus():
    """TF32 and determinism are in the keys of CUDA devices, as torch has them; not in those of CPUs."""

    class Tensor:
        def __init__(self, device):
            self.device, self.dtype = torch.device(device), torch.float32

    convolutions = torch.backends.cudnn.conv
    before = convolutions.fp32_precision
    try:
        convolutions.fp32_precision = "tf32"
        assert plans._settings(Tensor("cuda")) == (True, False)
        convolutions.fp32_precision = "ieee"
        torch.use_deterministic_algorithms(True)
        assert plans._settings(Tensor("cuda")) == (False, True)
        assert plans._settings(Tensor("cpu")) == (False, False)
    finally:
        convolutions.fp32_precision = before
        torch.use_deterministic_algorithms(False)


def test_descriptors_are_those_of_the_other_backends():
    t = Tensors("channels_first_groups")
    for (lhs, rhs, shape, direction, geometry), name in zip(t.calls(), DIRECTIONS, strict=True):
        call = Call(lhs.shape, rhs.shape, tuple(shape), direction, geometry)
        descriptor = descriptor_of(call, "float32", allow_tf32=False, deterministic=False)
        assert descriptor == t.case.descriptor.with_direction(name)
