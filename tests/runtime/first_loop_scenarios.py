"""The scenarios of test_first_loop.py: `python first_loop_scenarios.py NAME` runs one."""

from __future__ import annotations

import asyncio
import os
import resource
import sys
import threading
import warnings

import goloop


async def main():
    await asyncio.sleep(0.001)
    return sum([await asyncio.to_thread(int, "1"), 1])


def sizes_of_pages_that_only_startup_reads() -> None:
    """Prints the size of the library's constants in KiB, and the part that is still in memory."""
    assert goloop.run(main()) == 2
    size = left = 0
    with open("/proc/self/smaps") as file:
        for line in file:
            first = line.split(None, 5)
            if not first[0].endswith(":"):
                ours = "libgoloop" in line and first[1] == "r--p"
            elif ours and first[0] == "Size:":
                size += int(first[1])
            elif ours and first[0] == "Private_Dirty:":
                left -= int(first[1])  # ld.so has written to these pages
            elif ours and first[0] == "Rss:":
                left += int(first[1])
    print(size, left)


def two_runs_with_a_limit_of_the_stack() -> None:
    hard = resource.getrlimit(resource.RLIMIT_STACK)[1]
    resource.setrlimit(resource.RLIMIT_STACK, (int(sys.argv[2]), hard))
    # The limit holds for the first thread of the next program.
    os.execv(sys.executable, [sys.executable, __file__, "two_runs"])


def two_runs() -> None:
    assert goloop.run(main()) == 2
    print(goloop.run(main()))


def fork_from_another_than_the_first_thread() -> None:
    assert goloop.run(main()) == 2

    def forks():
        pid = os.fork()
        if pid == 0:
            os._exit(goloop.run(main()))
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))

    warnings.simplefilter("ignore")
    thread = threading.Thread(target=forks)
    thread.start()
    thread.join()


if __name__ == "__main__":
    globals()[sys.argv[1]]()
