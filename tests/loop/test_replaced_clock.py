"""A library that was preloaded has replaced libc's clock, as libfaketime does.

Python, C and Go read one clock, so a timer is due when loop.time() says so.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path

import ended
import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="LD_PRELOAD is Linux's")

SOURCE = """
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t id, struct timespec *ts)
{
    int result = syscall(SYS_clock_gettime, id, ts);
    const char *seconds = getenv("CLOCK_IS_OFF");
    if (result == 0 && seconds != NULL && (id == CLOCK_REALTIME || id == CLOCK_MONOTONIC))
        ts->tv_sec += atol(seconds);
    return result;
}
"""

PRELUDE = """
import asyncio, os, signal, sys, threading, time
real = lambda: time.clock_gettime(time.CLOCK_BOOTTIME)
signal.alarm(60)  # a timer that never comes
if sys.argv[1] == "asyncio":
    new_event_loop = asyncio.SelectorEventLoop
else:
    import goloop
    new_event_loop = goloop.new_event_loop

def run(main):
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(main())
    print("done")
"""


@pytest.fixture(scope="module")
def clock(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library to preload; CLOCK_IS_OFF in the environment says by how many seconds."""
    folder = tmp_path_factory.mktemp("clock")
    source, library = folder / "clock.c", folder / "clock.so"
    source.write_text(SOURCE, encoding="utf-8")
    compiler = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    command = [*shlex.split(compiler), "-O1", "-fPIC", "-shared", str(source), "-o", str(library)]
    subprocess.run(command, check=True)
    return library


def passes(clock: Path, loop_name: str, program: str, off: int) -> None:
    # AddressSanitizer's library is preloaded in its check, and has to stay the first.
    preloaded = " ".join(filter(None, [os.environ.get("LD_PRELOAD"), str(clock)]))
    done = ended.python(
        *("-c", PRELUDE + program, loop_name),
        limit=100, apart=True, LD_PRELOAD=preloaded, CLOCK_IS_OFF=str(off),
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stdout + done.stderr


@pytest.mark.parametrize("off", [86400, -3600, 0])
def test_timers_are_due_by_the_replaced_clock(clock: Path, loop_name: str, off: int) -> None:
    program = """
async def main():
    loop = asyncio.get_running_loop()
    assert abs(loop.time() - time.monotonic()) < 5
    before, really = loop.time(), real()
    await asyncio.sleep(0.02)
    assert loop.time() - before >= 0.02 and 0.015 < real() - really < 30
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
"""
    passes(clock, loop_name, program, off)


@pytest.mark.parametrize("jump", [3600, -3600])
def test_the_replaced_clock_may_jump(clock: Path, loop_name: str, jump: int) -> None:
    program = f"""
async def main():
    loop = asyncio.get_running_loop()
    await asyncio.sleep(0.001)
    due = loop.create_future()
    loop.call_later(3000, due.set_result, None)
    os.environ["CLOCK_IS_OFF"] = "{jump}"
    before, really = loop.time(), real()
    await asyncio.sleep(0.02)
    assert loop.time() - before >= 0.02 and 0.015 < real() - really < 30
    assert due.done() == ({jump} > 0)
run(main)
"""
    passes(clock, loop_name, program, 0)
