"""Memory that the first loop of a process leaves, and the stack on which Go assumes its thread."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

RUN = """
import asyncio, goloop
async def main():
    await asyncio.sleep(0.001)
    return sum([await asyncio.to_thread(int, "1"), 1])
"""


def program(source: str, **options: object) -> str:
    done = subprocess.run(
        [sys.executable, "-c", RUN + source],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        **options,  # type: ignore[call-overload]
    )
    assert (done.returncode, done.stderr) == (0, "")
    return str(done.stdout)


def test_pages_that_only_startup_reads_are_released() -> None:
    """Relocations and Go's tables of functions: nearly a megabyte."""
    source = """
assert goloop.run(main()) == 2
size = left = 0
for line in open("/proc/self/smaps"):
    first = line.split(None, 5)
    if not first[0].endswith(":"):
        ours = "libgoloop" in line and first[1] == "r--p"
    elif ours and first[0] == "Size:":
        size += int(first[1])
    elif ours and first[0] == "Private_Dirty:":
        left -= int(first[1])  # what ld.so has written to
    elif ours and first[0] == "Rss:":
        left += int(first[1])
print(size, left)
"""
    size, left = map(int, program(source).split())
    assert size > 1000
    assert left < 400


MIB = 1 << 20


@pytest.mark.parametrize("limit", [MIB, 64 * MIB, resource.RLIM_INFINITY])
def test_the_first_thread_of_a_process_with_any_limit_of_its_stack(limit: int) -> None:
    hard = resource.getrlimit(resource.RLIMIT_STACK)[1]
    if hard != resource.RLIM_INFINITY and (limit == resource.RLIM_INFINITY or limit > hard):
        pytest.skip("the limit can't be raised so far")

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_STACK, (limit, hard))

    source = """
assert goloop.run(main()) == 2
print(goloop.run(main()))
"""
    assert program(source, preexec_fn=limited) == "2\n"


@pytest.mark.forks
def test_fork_from_another_than_the_first_thread() -> None:
    """The thread's stack is elsewhere than the first thread's; no lock of ld.so is taken."""
    source = """
import os, threading
assert goloop.run(main()) == 2
def forks():
    pid = os.fork()
    if pid == 0:
        os._exit(goloop.run(main()))
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
import warnings
warnings.simplefilter("ignore")
thread = threading.Thread(target=forks)
thread.start()
thread.join()
"""
    assert program(source) == "2\n"
