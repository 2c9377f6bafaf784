"""A forked child, or a library, shuts down the loop's wakeup socket.

report: python/cpython#156344
asyncio: spins
uvloop: spins
process: its own
"""

import asyncio
import os
import socket
import stat
import time

from showing import show


async def main() -> str:
    await asyncio.sleep(0.01)
    for number in os.listdir("/proc/self/fd"):
        if os.path.islink(f"/proc/self/fd/{number}") and stat.S_ISSOCK(
            os.fstat(int(number)).st_mode
        ):
            with socket.socket(fileno=os.dup(int(number))) as sock:
                sock.shutdown(socket.SHUT_WR)
    used = time.process_time()
    await asyncio.sleep(0.5)
    return "right" if time.process_time() - used < 0.04 else "spins"


if __name__ == "__main__":
    show(main)
