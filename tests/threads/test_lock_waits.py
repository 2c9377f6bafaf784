"""Waits of threads for a loop's lock without a GIL: their clock, and the signal that ends them.

A library that is preloaded stands between goloop and libc.
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

SCENARIOS = Path(__file__).with_name("lock_waits_scenarios.py")

pytestmark = [
    pytest.mark.skipif(
        not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="with a GIL a loop has no lock"
    ),
    pytest.mark.skipif(sys.platform != "linux", reason="preloads a library"),
    pytest.mark.skipif(
        os.environ.get("GOLOOP_TEST_LOOP") == "asyncio", reason="it is about goloop's loops"
    ),
    pytest.mark.skipif(
        "GOLOOP_SANITIZE" in os.environ, reason="the sanitizer's library has to come first"
    ),
]

# A wait that takes the clock of the day ends an hour late.
SET_BACK = """
#include <time.h>
#include <sys/syscall.h>
#include <unistd.h>
int clock_gettime(clockid_t id, struct timespec *ts) {
    long rc = syscall(SYS_clock_gettime, id, ts);
    if (rc == 0 && id == CLOCK_REALTIME)
        ts->tv_sec += 3600;
    return (int)rc;
}
"""

# No wait ends by its time.
NO_TIMEOUTS = """
#include <pthread.h>
int pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex,
                           const struct timespec *until) {
    (void)until;
    return pthread_cond_wait(cond, mutex);
}
"""


@pytest.mark.parametrize("between", [SET_BACK, NO_TIMEOUTS], ids=["set back", "no timeouts"])
def test_waiting_thread_gets_the_lock(between: str, tmp_path: Path) -> None:
    """The wall clock has no effect; the loop continues after the thread has signalled."""
    source, library = tmp_path / "between.c", tmp_path / "between.so"
    source.write_text(between)
    compiler = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    command = [*shlex.split(compiler), "-D_GNU_SOURCE", "-fPIC", "-shared", "-pthread"]
    subprocess.run([*command, str(source), "-o", str(library)], check=True)
    done = ended.python(
        SCENARIOS, "another_thread_asks_a_busy_loop", limit=110, LD_PRELOAD=str(library)
    )
    assert (done.returncode, done.stdout) == (0, "")
