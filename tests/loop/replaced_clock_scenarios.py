"""The scenarios of test_replaced_clock.py: `python FILE NAME LOOP` runs one."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time

signal.alarm(60)  # a timer that never comes


def real():
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def run(main):
    if sys.argv[2] == "asyncio":
        new_event_loop = asyncio.SelectorEventLoop
    else:
        from goloop import new_event_loop
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(main())
    print("done")


def timers_are_due_by_the_clock() -> None:
    async def main():
        loop = asyncio.get_running_loop()
        assert abs(loop.time() - time.monotonic()) < 5
        before, really = loop.time(), real()
        await asyncio.sleep(0.02)
        assert loop.time() - before >= 0.02
        assert 0.015 < real() - really < 30
        when = loop.time() + 0.01
        due = loop.create_future()
        loop.call_at(when, due.set_result, None)
        await due
        assert loop.time() >= when
        try:
            await asyncio.wait_for(loop.create_future(), 0.01)
        except TimeoutError:
            pass

    run(main)


def the_clock_may_jump() -> None:
    jump = int(sys.argv[3])

    async def main():
        loop = asyncio.get_running_loop()
        await asyncio.sleep(0.001)
        due = loop.create_future()
        loop.call_later(3000, due.set_result, None)
        os.environ["CLOCK_IS_OFF"] = str(jump)
        before, really = loop.time(), real()
        await asyncio.sleep(0.02)
        assert loop.time() - before >= 0.02
        assert 0.015 < real() - really < 30
        assert due.done() == (jump > 0)

    run(main)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
