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
    for _ in range(4):  # on a busy machine a loop that spins gets little time
        await asyncio.sleep(0.5)
        if time.process_time() - used > 0.04:
            return "spins"
    return "right"


if __name__ == "__main__":
    show(main)
