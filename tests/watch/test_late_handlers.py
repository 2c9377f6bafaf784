"""A handler of C's that is set without SA_ONSTACK after a loop has run has room on its stack.

ncurses sets SIGWINCH and SIGTSTP so.  goloop adds the flag only to handlers that exist when Go
starts, so such a handler runs on the stack of a goroutine if a signal arrives while its thread is
in Go: for example while the loop sleeps.  Below that stack is other memory of Go's, and no guard
page.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import sysconfig
from pathlib import Path

import ended
import pytest

SCENARIOS = Path(__file__).with_name("late_handlers_scenarios.py")

pytestmark = [
    pytest.mark.skipif(
        os.environ.get("GOLOOP_TEST_LOOP") == "asyncio", reason="asyncio has no other stacks"
    ),
    pytest.mark.skipif(
        sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64"),
        reason="reads the register in which Go keeps its g",
    ),
]

HANDLER = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/uio.h>
#include <ucontext.h>
#include <unistd.h>

#define FRAME 65536

static int hits;
static long least = LONG_MAX;

static __attribute__((noinline)) void fill(void)
{
    volatile char frame[FRAME];
    memset((void *)frame, 0x5a, sizeof frame);
}

/* Stores the room below `here` if that lies on the stack of the goroutine with this g, whose first
   two words are the bounds of its stack. */
static void measure(uintptr_t g, uintptr_t here)
{
    uintptr_t bounds[2];
    struct iovec to = {bounds, sizeof bounds}, from = {(void *)g, sizeof bounds};
    if (process_vm_readv(getpid(), &to, 1, &from, 1, 0) != sizeof bounds)
        return; /* the register has another value: the thread is in C */
    if (here < bounds[0] || here >= bounds[1])
        return;
    long room = (long)(here - bounds[0]), before = __atomic_load_n(&least, __ATOMIC_RELAXED);
    __atomic_add_fetch(&hits, 1, __ATOMIC_RELAXED);
    while (room < before && !__atomic_compare_exchange_n(&least, &before, room, 0,
                                                         __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
}

static void handler(int number, siginfo_t *info, void *context)
{
    int before = errno; /* of the interrupted code; process_vm_readv() may set it to EFAULT */
    mcontext_t *registers = &((ucontext_t *)context)->uc_mcontext;
#if defined(__x86_64__)
    uintptr_t g = (uintptr_t)registers->gregs[REG_R14];
#else
    uintptr_t g = (uintptr_t)registers->regs[28];
#endif
    measure(g, (uintptr_t)__builtin_frame_address(0));
    if (__atomic_load_n(&least, __ATOMIC_RELAXED) > 2 * FRAME)
        fill();
    errno = before;
}

int late_set(int number)
{
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_RESTART};
    return sigaction(number, &action, NULL);
}

int late_hits(void) { return hits; }
long late_room(void) { return least; }
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The handler, built."""
    folder = tmp_path_factory.mktemp("late")
    source, target = folder / "late.c", folder / "late.so"
    source.write_text(HANDLER, encoding="utf-8")
    compiler = (sysconfig.get_config_var("CC") or "cc").split()
    subprocess.run(
        [*compiler, "-O1", "-shared", "-fPIC", "-pthread", "-o", str(target), str(source)],
        check=True,
    )
    return target


def passes(name: str, library: Path) -> None:
    """Runs a scenario with many collections of Go's garbage."""
    ended.passes(SCENARIOS, name, library, options=("-X", "faulthandler=0"), GOLOOP_GOGC="1")


@pytest.mark.parametrize("name", ended.scenarios(SCENARIOS, "check"))
def test_late_handler_has_room(name: str, library: Path) -> None:
    passes(name, library)
