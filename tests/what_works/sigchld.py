"""A handler for SIGCHLD, as PID 1 needs it.

report: MagicStack/uvloop#409
asyncio: right
uvloop: RuntimeError
"""

import asyncio
import os
import signal

from showing import show


async def main() -> str:
    loop = asyncio.get_running_loop()
    told = asyncio.Event()
    loop.add_signal_handler(signal.SIGCHLD, told.set)
    child = os.posix_spawn("/bin/true", ["true"], {})
    await asyncio.wait_for(told.wait(), 5)
    return "right" if os.waitpid(child, 0) == (child, 0) else "another status"


if __name__ == "__main__":
    show(main)
