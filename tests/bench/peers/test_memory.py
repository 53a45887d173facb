"""The host's memory, the order of dims in it, and the sampler of a GPU with a torch that only plays one."""

from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest

from keras_tunedconv.bench.peers.memory import CudaMemory, HostMemory
from keras_tunedconv.bench.peers.operands import draw, stored_shape, to_logical
from keras_tunedconv.bench.peers.torch_peer import computes_the_same, even_padding
from keras_tunedconv.bench.problem import parse


@pytest.mark.parametrize(
    ("layout", "filter_layout", "x", "w"),
    [
        ("channels_last", "hwio", (2, 9, 7, 8), (3, 1, 4, 6)),
        ("channels_last", "ohwi", (2, 9, 7, 8), (6, 3, 1, 4)),
        ("channels_first", "oihw", (2, 8, 9, 7), (6, 4, 3, 1)),
    ],
)
def test_operands_lie_as_the_descriptor_says(layout, filter_layout, x, w):
    operands = draw(parse(f"2,8,9x7,6,3x1,1,2,layout={layout}"), filter_layout, HostMemory())
    assert (operands.arrays["x"].shape, operands.arrays["w"].shape) == (x, w)
    for direction, name in (("forward", "y"), ("backward_data", "x"), ("backward_filter", "w")):
        descriptor = operands.descriptor(direction)
        output = operands.output(direction)
        assert output.shape == stored_shape(descriptor, name)
        dims = getattr(descriptor, f"{name}_dims")
        assert operands.in_logical_order(direction, output).shape == dims
        assert tuple(output.shape[axis] for axis in to_logical(descriptor, name)) == dims


def test_bfloat16_is_drawn_and_read():
    operands = draw(parse("2,8,9,6,3,1,1,dtype=bfloat16"), "ohwi", HostMemory())
    values = operands.in_logical_order("backward_data", operands.arrays["x"])
    assert values.dtype == np.float32
    assert 0.5 < values.std() < 2.0


@pytest.mark.parametrize(
    ("line", "padding", "same"),
    [
        ("1,8,9,8,3,1,1", [1, 1], True),
        ("1,8,10,8,3,2,1", [1, 1], False),
        ("1,8,9,8,3,1,1,padding=valid", [0, 0], True),
        ("1,8,9,8,3,1,1,dilation=2", [2, 2], True),
        ("1,8,224,8,7,2,1", [3, 3], False),
        ("1,8,57x56,8,1,2,1", [0, 0], True),
        ("1,8,8,8,2,1,1", None, False),
    ],
)
def test_torch_is_given_even_padding_of_the_same_output_size(line, padding, same):
    descriptor = parse(line).descriptor()
    assert even_padding(descriptor) == padding
    assert computes_the_same(descriptor) is same


class Gpu:
    """What of torch a sampler calls. The device is held up for `cycles / 1e6` ms; the host queues slowly."""

    def __init__(self, host_milliseconds):
        self.host_milliseconds, self.queued, self.held = host_milliseconds, 0.0, []
        self.cuda = SimpleNamespace(Event=self.event, _sleep=self.sleep, stream=lambda _: nullcontext())

    def sleep(self, cycles):
        self.held.append(cycles)
        self.queued = 0.0

    def run(self):
        self.queued += self.host_milliseconds

    def event(self, enable_timing):
        assert enable_timing
        # What the device does between the events takes 5 ms, or as long as it waited for the host.
        wait = lambda: max(5.0, self.queued - self.held[-1] / 1e6)  # noqa: E731
        return SimpleNamespace(
            record=lambda stream: None,
            synchronize=lambda: None,
            query=lambda: self.queued >= self.held[-1] / 1e6,
            elapsed_time=lambda end: wait(),
        )


def sample(gpu):
    memory = object.__new__(CudaMemory)
    memory._torch, memory._stream, memory._cycles = gpu, None, 2_000_000
    return memory.sampler(gpu.run)(10)


def test_runs_are_timed_once_they_are_all_queued():
    gpu = Gpu(host_milliseconds=0.1)
    assert sample(gpu) == pytest.approx(0.5e-3)
    assert gpu.held == [2_000_000]


def test_a_device_that_began_before_all_runs_were_queued_is_held_up_longer():
    gpu = Gpu(host_milliseconds=1.0)
    assert sample(gpu) == pytest.approx(0.5e-3)
    assert gpu.held == [2_000_000, 4_000_000, 8_000_000, 16_000_000]


def test_a_run_that_waits_for_the_device_is_timed_all_the_same():
    gpu = Gpu(host_milliseconds=100.0)
    assert sample(gpu) == pytest.approx(1e-1, rel=0.1)
    assert gpu.held[-1] == 64_000_000
