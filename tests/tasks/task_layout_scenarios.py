"""The scenarios of test_task_layout.py: `python task_layout_scenarios.py NAME` runs one."""

from __future__ import annotations

import asyncio
import sys

import goloop


def the_stdlibs_classes() -> None:
    assert goloop.Task is asyncio.Task
    assert goloop.Future is asyncio.Future

    async def child(n):
        await asyncio.sleep(0)
        return n

    async def main():
        loop = asyncio.get_running_loop()
        assert type(loop.create_future()) is asyncio.Future
        assert type(asyncio.current_task()) is asyncio.Task
        future = loop.create_future()
        loop.call_soon(future.set_result, 3)
        assert await future == 3
        try:
            async with asyncio.timeout(0):
                await asyncio.sleep(3600)
        except TimeoutError:
            pass
        return await asyncio.gather(*(child(n) for n in range(3)))

    assert goloop.run(main()) == [0, 1, 2]
    print(goloop.diagnostics()["tasks"])


if __name__ == "__main__":
    globals()[sys.argv[1]]()
