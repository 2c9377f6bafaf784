"""Timers with many delays: none fires before its time.

report: MagicStack/uvloop#739
asyncio: right
uvloop: runs some too early
"""

import asyncio
import random
import time

from showing import show


async def main() -> str:
    loop = asyncio.get_running_loop()
    early: list[float] = []
    left = 1500

    def due(at: float) -> None:
        nonlocal left
        left -= 1
        if time.monotonic() < at:
            early.append(at)

    for number in range(left):
        delay = random.uniform(0.01, 0.3)
        loop.call_later(delay, due, time.monotonic() + delay)
        if number % 100 == 0:
            await asyncio.sleep(0)
    while left:
        await asyncio.sleep(0.01)
    return "runs some too early" if early else "right"


if __name__ == "__main__":
    show(main)
