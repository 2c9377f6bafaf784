"""A look-up in a process that may start no more threads.

report: none
asyncio: right
uvloop: aborts
process: its own
"""

import asyncio
import concurrent.futures.thread  # noqa: F401  (a file that the other user may not read)
import contextlib
import os
import resource

from showing import show


async def main() -> str:
    "import".encode("idna")  # from files that the other user may not read
    if os.getuid() == 0:
        os.setuid(65534)  # root has no such limit
    before = resource.getrlimit(resource.RLIMIT_NPROC)
    resource.setrlimit(resource.RLIMIT_NPROC, (1, before[1]))
    with contextlib.suppress(OSError, RuntimeError):
        await asyncio.get_running_loop().getaddrinfo("name.invalid", 80)
    resource.setrlimit(resource.RLIMIT_NPROC, before)
    return "right"


if __name__ == "__main__":
    show(main)
