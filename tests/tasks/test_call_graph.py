"""The tools of Python 3.14 and later show goloop's tasks, and the await graph."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import ended
import pytest
from observed_programs import running

import goloop

PROGRAMS = Path(__file__).with_name("programs")

pytestmark = pytest.mark.skipif(
    sys.version_info < (3, 14), reason="the tools came with Python 3.14"
)


@pytest.mark.parametrize("tool", ["ps", "pstree"])
def test_external_tools_show_the_await_graph(tool: str) -> None:
    with running(PROGRAMS / "await_graph.py", "up\n") as program:
        shown = ended.python("-m", "asyncio", tool, program.pid, apart=True)
    if "PermissionError" in shown.stderr or "Permission" in shown.stdout:
        pytest.skip("this machine does not let a process look into another")
    assert shown.returncode == 0, shown.stderr
    assert "the-leaf" in shown.stdout
    assert "the-middle" in shown.stdout
    assert "leaf" in shown.stdout
    if tool == "pstree":
        lines = shown.stdout.splitlines()
        middle = next(i for i, line in enumerate(lines) if "the-middle" in line)
        leaf = next(i for i, line in enumerate(lines) if "the-leaf" in line)
        assert middle < leaf
        # A waiting task has less indentation than the task it waits for.
        assert lines[middle].index("the-middle") < lines[leaf].index("the-leaf")


@pytest.mark.skipif(sys.version_info < (3, 15), reason="the profiler came with Python 3.15")
def test_the_sampling_profiler_follows_tasks() -> None:
    command = ("-m", "profiling.sampling", "dump", "--async-aware", "--async-mode", "all")
    with running(PROGRAMS / "await_graph.py", "up\n") as program:
        shown = ended.python(*command, program.pid, apart=True)
    if "ermission" in shown.stderr + shown.stdout:
        pytest.skip("this machine does not let a process look into another")
    assert shown.returncode == 0, shown.stderr
    words = ["in Task-1", "in main", "in the-middle", "in middle", "in the-leaf", "in leaf"]
    places = [shown.stdout.find(word + "\n") for word in words]
    assert -1 not in places, shown.stdout
    assert places == sorted(places)


def test_the_call_graph_from_inside_names_the_awaiters() -> None:
    async def leaf() -> None:
        await asyncio.get_running_loop().create_future()

    async def main() -> None:
        inner = asyncio.create_task(leaf(), name="inner")
        outer = asyncio.create_task(asyncio.wait_for(inner, None), name="outer")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert type(inner) is goloop.Task
        graph = asyncio.capture_call_graph(inner)  # type: ignore[attr-defined,unused-ignore]
        assert graph.future is inner
        assert [entry.frame.f_code.co_name for entry in graph.call_stack] == ["leaf"]
        assert [waiter.future for waiter in graph.awaited_by] == [outer]
        text = asyncio.format_call_graph(inner)  # type: ignore[attr-defined,unused-ignore]
        assert "outer" in text
        outer.cancel()
        with pytest.raises(asyncio.CancelledError):
            await outer

    goloop.run(main())
