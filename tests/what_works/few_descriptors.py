"""The first loop of a process with few free descriptors works, or raises OSError.

report: none
asyncio: right
uvloop: aborts
process: its own
"""

import os
import resource
import sys

from showing import new_loop, show


def first_loop(free: int) -> int:
    """Return how a process with this limit of descriptors ends when it makes its first loop."""
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1]
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) - 1 + free, hard))
    try:
        new_loop().close()
    except OSError:
        os._exit(0)
    except BaseException:
        os._exit(1)
    os._exit(0)


async def main() -> str:
    return "right" if not any(statuses) else "another exception"


if __name__ == "__main__":
    __import__(sys.argv[1])
    statuses = [first_loop(free) for free in range(7)]
    for status in statuses:
        if os.WIFSIGNALED(status):
            os.kill(os.getpid(), os.WTERMSIG(status))
    show(main)
