"""Ranges for profilers, told to a library that stands in for one."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import native_build
import pytest

CORE = Path(__file__).resolve().parents[2] / "cffi_build" / "core"

# What NVTX asks of a tool: put functions into the program's table.
TOOL = r"""
#include <stdint.h>
#include <stdio.h>
static int push(const char *text) { printf("push %s\n", text); return 0; }
static int pop(void) { printf("pop\n"); return 0; }
struct callbacks { size_t size; int (*table)(int, void (***functions[])(void), unsigned *); };
int InitializeInjectionNvtx2(const void *(*export_table)(uint32_t))
{
    const struct callbacks *callbacks = export_table(1);
    const struct version { size_t size; uint32_t number, reserved; void (*take)(uint32_t); } *version;
    version = export_table(3);
    void (***core)(void), (***core2)(void);
    unsigned size = 0, size2 = 0;
    if (!callbacks || !version || version->number != 3 || export_table(2) || callbacks->table(2, NULL, NULL))
        return 0;
    version->take(1);
    if (!callbacks->table(1, (void *)&core, &size) || !callbacks->table(5, (void *)&core2, &size2))
        return 0;
    for (unsigned i = 1; i < size; i++) /* a tool fills every place that it knows */
        *core[i] = (void (*)(void))pop;
    for (unsigned i = 1; i < size2; i++)
        *core2[i] = (void (*)(void))pop;
    *core[9] = (void (*)(void))push;
    return size == 16 && size2 == 16 && !core[0] && !core[16];
}
"""
PROGRAM = r"""
#include <stdio.h>
#include "trace.h"
int main(void)
{
    printf("on %d\n", tc_trace_on());
    tc_trace_push("%s %d", "first", 1);
    tc_trace_push("second");
    tc_trace_pop();
    tc_trace_pop();
    return 0;
}
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not shutil.which("cc"):
        pytest.skip("needs a C compiler")
    folder = tmp_path_factory.mktemp("trace")
    (folder / "tool.c").write_text(TOOL)
    (folder / "program.c").write_text(PROGRAM)
    flags = ["-std=c11", "-D_GNU_SOURCE", f"-I{CORE}"]
    subprocess.run(["cc", *flags, "-shared", "-fPIC", "tool.c", "-o", "tool.so"], cwd=folder, check=True)
    sources = ["program.c", str(CORE / "trace.c")]
    subprocess.run(["cc", *flags, *sources, "-o", "program", "-ldl", "-lpthread"], cwd=folder, check=True)
    return folder


def _output(folder: Path, tool: str | None) -> list[str]:
    return _run([str(folder / "program")], tool)


def _run(command: list[str], tool: str | None) -> list[str]:
    environment = {name: value for name, value in os.environ.items() if name != "NVTX_INJECTION64_PATH"}
    if tool is not None:
        environment["NVTX_INJECTION64_PATH"] = tool
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True
    ).stdout.splitlines()


def test_a_profiler_sees_the_ranges(built: Path) -> None:
    assert _output(built, str(built / "tool.so")) == ["on 1", "push first 1", "push second", "pop", "pop"]


def test_without_a_profiler_nothing_happens(built: Path) -> None:
    assert _output(built, None) == ["on 0"]


def test_a_profiler_that_cannot_be_loaded_is_none(built: Path) -> None:
    assert _output(built, str(built / "missing.so")) == ["on 0"]


def test_each_tuning_and_each_candidate_has_a_range(built: Path, tmp_path: Path) -> None:
    """In a native case whose engine has the algorithms "standard", "slower", "fast" and "fastish"."""
    command = [str(native_build.build(tmp_path) / "tests"), "tuner/the_faster_one_wins"]
    lines = [line for line in _run(command, str(built / "tool.so")) if line.startswith(("push", "pop"))]
    open_ranges: list[str] = []
    seen: dict[str, set[str]] = {}
    for line in lines:
        if line == "pop":
            open_ranges.pop()
            continue
        seen.setdefault(line.removeprefix("push "), set()).update(open_ranges)
        open_ranges.append(line.removeprefix("push "))
    assert not open_ranges
    (tuning,) = (name for name in seen if name.startswith("tuning forward|"))
    for algorithm in ("standard", "slower", "fast", "fastish"):
        for step in ("preparing", "timing"):
            assert seen[f"{step} {algorithm}"] == {tuning}
    assert not [line for line in _run(command, None) if line.startswith(("push", "pop"))]
