"""The probe: its findings, the fallback on a mismatch, and no traces."""

from __future__ import annotations

import asyncio
import re
import struct
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ended
import pytest

import goloop
from goloop import _core
from goloop._internal.tasks import layout_check, tasks

SCENARIOS = Path(__file__).with_name("task_layout_scenarios.py")

native = pytest.mark.skipif(tasks.reason is not None, reason=f"no own classes: {tasks.reason}")


def peeked_fields() -> list[str]:
    coroutine = asyncio.sleep(0)
    loop = asyncio.new_event_loop()
    try:
        task: Any = asyncio.Task(coroutine, loop=loop)
        fields = list(_core._peek(task))
        task._log_destroy_pending = False
        coroutine.close()
        asyncio.tasks._unregister_task(task)
    finally:
        loop.close()
    return fields


def run_python(code: str, **environment: str) -> str:
    done = ended.python("-W", "error", "-c", code, apart=True, **environment)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout.strip()


@native
def test_diagnostics_name_the_classes_in_use() -> None:
    assert goloop.diagnostics()["tasks"] == "goloop.Task"
    assert goloop.Task.__mro__[1:] == (asyncio.Task, goloop.Future, asyncio.Future, object)


@native
@pytest.mark.parametrize("field", peeked_fields() if tasks.reason is None else [])
def test_a_field_that_lies_elsewhere_is_noticed(field: str) -> None:
    def lying(future: Any) -> Mapping[str, int]:
        words = dict(_core._peek(future))
        if field in words:
            words[field] ^= 1 if words[field] < 256 else 0x10
        return words

    with pytest.raises(layout_check.Mismatch):
        layout_check.check(lying)
    assert asyncio._get_running_loop() is None


@native
def test_layout_mismatch_falls_back_with_a_reason() -> None:
    def lying(future: Any) -> Mapping[str, int]:
        return {**_core._peek(future), "result": 1}

    future, task, reason = layout_check.enable(lying)
    assert future is asyncio.Future
    assert task is asyncio.Task
    assert reason is not None
    assert "field result" in reason


@native
def test_probe_notices_another_size(monkeypatch: pytest.MonkeyPatch) -> None:
    layout = _core._layout()
    assert layout is not None
    monkeypatch.setattr(_core, "_layout", lambda: {**layout, "task": layout["task"] + 8})
    with pytest.raises(layout_check.Mismatch, match="bytes, not"):
        layout_check.check()
    monkeypatch.setattr(_core, "_layout", lambda: None)
    with pytest.raises(layout_check.Mismatch, match="does not know"):
        layout_check.check()


@native
def test_the_probe_leaves_no_trace() -> None:
    async def main() -> None:
        before = asyncio.all_tasks()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            layout_check.check()
        assert asyncio.all_tasks() == before
        assert asyncio.current_task() in before

    async def inner() -> None:
        await main()
        assert asyncio.current_task() is task

    loop = asyncio.new_event_loop()
    try:
        # Within a running task too: a program may import goloop in one.
        task = loop.create_task(inner())
        loop.run_until_complete(task)
    finally:
        loop.close()
    # Neither does it take a number from asyncio's default names.
    assert (
        run_python(
            "import asyncio, goloop\n"
            "async def main(): return asyncio.current_task().get_name()\n"
            "print(asyncio.run(main()))"
        )
        == "Task-1"
    )


def test_the_environment_chooses_the_stdlibs_classes() -> None:
    said = ended.passes(SCENARIOS, "the_stdlibs_classes", GOLOOP_TASKS="stdlib")
    assert said == "asyncio.Task: GOLOOP_TASKS=stdlib\n"


def test_random_programs_agree_on_the_fallback() -> None:
    script = Path(__file__).parents[1] / "random_programs" / "run.py"
    done = ended.python(script, "--count", 100, GOLOOP_TASKS="stdlib")
    assert done.returncode == 0, done.stdout


def debug_section(path: Path) -> tuple[int, ...] | None:
    """The numbers of CPython's .AsyncioDebug section (a 64-bit ELF file), or None."""
    data = path.read_bytes()
    if data[:5] != b"\x7fELF\x02":
        return None
    (offset,) = struct.unpack_from("<Q", data, 0x28)
    size, count, names = struct.unpack_from("<HHH", data, 0x3A)
    sections = [
        struct.unpack_from("<IIQQQQ", data, offset + size * number) for number in range(count)
    ]
    strings = sections[names][4]
    for name, _, _, _, start, length in sections:
        text = data[strings + name : data.index(b"\0", strings + name)]
        if text == b".AsyncioDebug":
            return struct.unpack_from(f"<{length // 8}Q", data, start)
    return None


@native
@pytest.mark.skipif(sys.version_info < (3, 14), reason="the section came with Python 3.14")
def test_offsets_equal_cpythons_own_table() -> None:
    # In _asyncio's own file, the interpreter's, or libpython's: one that is mapped here.
    lines = Path("/proc/self/maps").read_text().splitlines()
    mapped = {Path(words[5]) for line in lines if len(words := line.split()) == 6}
    found = map(debug_section, (path for path in mapped if path.is_file()))
    numbers = next(filter(None, found), None)
    assert numbers is not None, "no .AsyncioDebug section"
    task, thread = numbers[:7], numbers[9:13]
    layout = _core._layout()
    assert layout is not None
    assert task[0] == layout["task"]
    assert task[1] == layout["task_name"]
    assert task[2] == layout["task_awaited_by"]
    assert task[5] == layout["task_coro"]
    assert task[6] == layout["task_node"]
    assert thread[1:] == layout_check.check()
    # The limit of the probe; bytes after the thread state belong to another object.
    source = (Path(__file__).parents[2] / "pybridge/core/support/compat.h").read_text()
    newest, older = map(int, re.findall(r"#define GL_THREAD_STATE_END (\d+)", source))
    end = newest if sys.version_info >= (3, 15) else older
    assert thread[3] + 16 <= end <= thread[0]
