"""What cuDNN is asked where the zeros around the input are written out: sizes, pads, and the copy's map."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from engines.conv_cases import CASES, Case

from keras_tunedconv.core.descriptor import DIRECTIONS, ConvDescriptor
from keras_tunedconv.core.library import lib

pytestmark = [
    pytest.mark.skipif(not shutil.which("cc"), reason="needs a C compiler"),
    pytest.mark.skipif(lib is None, reason="needs the compiled core"),
]

ROOT = Path(__file__).resolve().parents[2]
STEM = Case(64, 3, (224, 224), 64, (7, 7), ((2, 3), (2, 3)), strides=(2, 2))
PACKS = {
    "forward": "pack_activation",
    "backward_data": "unpack_activation",
    "backward_filter": "pack_activation",
}

Ask = Callable[[ConvDescriptor, str], Any]


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Ask:
    """The problem for a convolution and a rewriting, None where it is refused."""
    source, program = ROOT / "cffi_build", tmp_path_factory.mktemp("problem") / "program"
    includes = [f"-I{source / name}" for name in ("include", "core", "engines/cudnn")]
    files = [
        ROOT / "tests" / "native" / "cudnn_problem_program.c",
        *(source / "core").glob("*.c"),
        *(source / "engines" / "cudnn").rglob("*.c"),
        source / "engines" / "reference.c",
    ]
    command = [
        "cc",
        "-std=c11",
        "-D_GNU_SOURCE",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-O0",
        *includes,
        *map(str, files),
    ]
    subprocess.run([*command, "-o", str(program), "-lpthread", "-ldl", "-lm"], check=True)

    def answer(descriptor: ConvDescriptor, rewriting: str) -> Any:
        line = f"{descriptor.key} cudnn:eng0/{rewriting}\n"
        run = subprocess.run([str(program)], input=line, capture_output=True, text=True, check=True)
        return json.loads(run.stdout)

    return answer


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_zeros_and_a_fourth_channel_in_one_copy(ask: Ask, direction: Any) -> None:
    problem = ask(STEM.descriptor(direction, "float16"), "channels=4/explicit-padding")
    assert problem["x_dims"] == [64, 4, 229, 229]
    assert problem["w_dims"] == [64, 4, 7, 7]
    assert problem["y_dims"] == [64, 64, 112, 112]
    assert problem["pad_before"] == problem["pad_after"] == [0, 0]
    assert problem["stride"] == [2, 2]
    assert problem["channels_last"]
    assert problem["y"] is None
    assert problem["x"] == {
        "kernel": PACKS[direction],
        "size": [1, 224, 224],
        "folded": [1, 229, 229],
        "fold": [1, 1, 1],
        "before": [0, 2, 2],
        "channels": [1, 3, 4],
    }
    assert problem["w"]["kernel"] == ("unpack_filter" if direction == "backward_filter" else "pack_filter")


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_channels_and_groups_are_kept(ask: Ask, direction: Any) -> None:
    descriptor = CASES["same_strided_grouped"].descriptor(direction, filter_layout="ohwi")
    problem = ask(descriptor, "explicit-padding")
    assert problem["x_dims"] == [2, 8, 9, 11]
    assert problem["w_dims"] == [12, 2, 3, 3]
    assert problem["y_dims"] == [2, 12, 4, 5]
    assert problem["pad_before"] == problem["pad_after"] == [0, 0]
    assert problem["w"] is None
    assert problem["x"] == {
        "kernel": PACKS[direction],
        "size": [1, 8, 10],
        "folded": [1, 9, 11],
        "fold": [1, 1, 1],
        "before": [0, 0, 0],
        "channels": [4, 2, 2],
    }


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_folding_what_has_its_zeros_leaves_nothing_to_pad(ask: Ask, direction: Any) -> None:
    descriptor = STEM.descriptor(direction, "float16")
    assert ask(descriptor, "fold/channels=16")["pad_before"] == [1, 1]
    assert ask(descriptor, "fold/channels=16")["pad_after"] == [2, 2]
    problem = ask(descriptor, "fold/channels=16/explicit-padding")
    assert problem["x_dims"] == [64, 16, 115, 115]
    assert problem["w_dims"] == [64, 16, 4, 4]
    assert problem["pad_before"] == problem["pad_after"] == [0, 0]
    assert problem["stride"] == [1, 1]
    assert problem["x"]["folded"] == [1, 115, 115]
    assert problem["x"]["fold"] == [1, 2, 2]
    assert problem["x"]["before"] == [0, 2, 2]
    swapped = ask(descriptor, "fold/channels=16/explicit-padding/swapped")
    assert swapped["x_dims"] == problem["y_dims"]
    assert swapped["y_dims"] == problem["x_dims"]
    assert swapped["pad_before"] == swapped["pad_after"] == [3, 3]


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_the_problem_is_channels_last_whatever_the_callers_layout(ask: Ask, direction: Any) -> None:
    problem = ask(CASES["same_strided"].descriptor(direction, layout="channels_first"), "explicit-padding")
    assert problem["channels_last"]
    assert problem["x"]["kernel"] == PACKS[direction]
    assert problem["y"]["kernel"] == "transpose"


def test_refusals(ask: Ask) -> None:
    assert ask(CASES["pointwise"].descriptor(), "explicit-padding") is None
    assert ask(CASES["same_strided"].descriptor(), "explicit-padding/layout=channels-first") is None
    assert ask(CASES["same_strided"].descriptor(), "explicit-padding/swapped") is None
    far = 2**30 - 1
    case = Case(1, 2, (1, 1, 1), 4, (1, 1, 1), ((far, far),) * 3, strides=(far,) * 3)
    assert ask(case.descriptor(), "explicit-padding") is None
