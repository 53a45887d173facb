"""The cuDNN engine and its kernels under AddressSanitizer and UndefinedBehaviorSanitizer."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from engines import cudnn_mock
from engines.conv_cases import CASES, Case
from engines.direct_cases import FEW_CHANNELS, GROUPED, descriptors

from keras_tunedconv.core.descriptor import DIRECTIONS
from keras_tunedconv.core.library import lib

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not cudnn_mock.can_build(), reason="needs a C and a C++ compiler"),
    pytest.mark.skipif(lib is None, reason="needs the compiled core"),
]

ROOT = Path(__file__).resolve().parents[2]
FLAGS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-fno-omit-frame-pointer"]
WIDE = (
    Case(2, 134, (5, 19), 134, (5, 5), ((2, 2), (3, 1)), groups=134),
    Case(1, 6, (9, 9), 6, (7, 7), ((3, 3), (3, 3)), groups=6),
    Case(2, 70, (5, 27), 67, (1, 1), ((0, 0), (0, 0))),
)


def _keys() -> list[str]:
    return [
        case.descriptor(direction, dtype, layout).key
        for case in (*CASES.values(), *WIDE)
        for direction in DIRECTIONS
        for dtype, layout in (("float16", "channels_last"), ("float32", "channels_first"))
    ] + [d.key for case in (*GROUPED.values(), *FEW_CHANNELS.values()) for d in descriptors(case, "float16")]


@pytest.mark.timeout(1800)
def test_every_candidate_stays_within_its_buffers(tmp_path: Path) -> None:
    cudnn_mock.build(tmp_path, FLAGS)
    source = ROOT / "cffi_build"
    includes = [f"-I{source / name}" for name in ("include", "core", "engines/cudnn")]
    files = [
        ROOT / "tests" / "native" / "cudnn_program.c",
        *(source / "core").glob("*.c"),
        *(source / "engines" / "cudnn").rglob("*.c"),
        source / "engines" / "reference.c",
    ]
    program = tmp_path / "program"
    command = ["cc", "-std=c11", "-D_GNU_SOURCE", "-g", "-O1", *FLAGS, *includes, *map(str, files)]
    subprocess.run([*command, "-o", str(program), "-lpthread", "-ldl", "-lm"], check=True)
    result = subprocess.run(
        [str(program), str(tmp_path / "libcudnn.so.9")],
        input="\n".join(_keys()) + "\n",
        env=os.environ | {"LD_LIBRARY_PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=1700,
    )
    assert result.returncode == 0, result.stderr[-4000:]
    assert int(result.stdout) > 1000
