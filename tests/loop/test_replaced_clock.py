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

SCENARIOS = Path(__file__).with_name("replaced_clock_scenarios.py")

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


def passes(clock: Path, loop_name: str, off: int, name: str, *arguments: object) -> None:
    # AddressSanitizer's library is preloaded in its check, and has to stay the first.
    preloaded = " ".join(filter(None, [os.environ.get("LD_PRELOAD"), str(clock)]))
    environ = {"LD_PRELOAD": preloaded, "CLOCK_IS_OFF": str(off)}
    assert ended.passes(SCENARIOS, name, loop_name, *arguments, **environ) == "done\n"


@pytest.mark.parametrize("off", [86400, -3600, 0])
def test_timers_are_due_by_the_replaced_clock(clock: Path, loop_name: str, off: int) -> None:
    passes(clock, loop_name, off, "timers_are_due_by_the_clock")


@pytest.mark.parametrize("jump", [3600, -3600])
def test_the_replaced_clock_may_jump(clock: Path, loop_name: str, jump: int) -> None:
    passes(clock, loop_name, 0, "the_clock_may_jump", jump)
