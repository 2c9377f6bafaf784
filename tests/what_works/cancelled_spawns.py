"""Children whose start is cancelled are reaped, and their pipes are closed.

report: python/cpython#125502
asyncio: right
uvloop: leaks descriptors
"""

import asyncio
import os
from pathlib import Path

from showing import descriptors, show


def zombies() -> int:
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    states = [
        Path(f"/proc/{each}/stat").read_text().rsplit(")", 1)[1].split()[0] for each in children
    ]
    return states.count("Z")


async def main() -> str:
    await (await asyncio.create_subprocess_exec("true")).wait()
    before = descriptors()
    for turns in range(12):
        starting = asyncio.ensure_future(
            asyncio.create_subprocess_exec("cat", stdin=-1, stdout=-1, stderr=-1)
        )
        for _ in range(turns):
            await asyncio.sleep(0)
        starting.cancel()
        for each in await asyncio.gather(starting, return_exceptions=True):
            if not isinstance(each, BaseException):
                each.kill()
                await each.communicate()
    for _ in range(100):  # until the last has ended
        await asyncio.sleep(0.01)
        if not zombies() and descriptors() <= before:
            return "right"
    return "leaves zombies" if zombies() else "leaks descriptors"


if __name__ == "__main__":
    show(main)
