"""The scenarios of test_native_rule.py: `python native_rule_scenarios.py NAME` runs one."""

from __future__ import annotations

import asyncio
import sys


def create_task_replaced_before_the_import_is_called() -> None:
    original, names = asyncio.BaseEventLoop.create_task, []

    def create_task(loop, coro, **options):
        names.append(coro.__name__)
        return original(loop, coro, **options)

    asyncio.BaseEventLoop.create_task = create_task
    import goloop

    async def main():
        await asyncio.create_task(asyncio.sleep(0))
        asyncio.BaseEventLoop.create_task = original
        task = asyncio.create_task(asyncio.sleep(0))
        await task
        return type(task) is goloop.Task

    loop = goloop.new_event_loop()
    main = loop.create_task(main())
    print(loop.run_until_complete(main), names)
    loop.close()


if __name__ == "__main__":
    globals()[sys.argv[1]]()
