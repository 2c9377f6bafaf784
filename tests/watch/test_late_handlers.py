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

TIME_LIMIT = 100  # seconds

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

PRELUDE = """
import asyncio, contextlib, ctypes, gc, os, signal, socket, sys, threading, time
import goloop

late = ctypes.CDLL(sys.argv[1])
late.late_room.restype = ctypes.c_long

@contextlib.contextmanager
def signals_for(*threads):
    # Another thread sends these threads a signal again and again.
    ended = threading.Event()
    def send():
        while not ended.wait(0.0002):
            for thread in threads:
                signal.pthread_kill(thread, signal.SIGUSR1)
    sender = threading.Thread(target=send)
    sender.start()
    try:
        yield
    finally:
        ended.set()
        sender.join()

async def work(rounds=200):
    # Enough connections for several collections of Go's garbage.
    server = await asyncio.start_server(echo, "127.0.0.1", 0, backlog=500)
    address = server.sockets[0].getsockname()
    for _ in range(rounds // 20):
        await asyncio.gather(*[ask(address) for _ in range(20)])
    server.close()

async def echo(reader, writer):
    writer.write(await reader.readexactly(5000))
    writer.close()

async def ask(address):
    reader, writer = await asyncio.open_connection(*address)
    data = os.urandom(5000)
    writer.write(data)
    assert await reader.readexactly(5000) == data
    writer.close()

async def until_hit(times=20):
    # The loop sleeps in Go, where the signals arrive.
    wanted, end = late.late_hits() + times, time.monotonic() + 60
    while late.late_hits() < wanted:
        assert time.monotonic() < end
        await asyncio.sleep(0.01)

def check():
    assert late.late_room() > 4 * 65536, late.late_room()

async def sleep_and_work():
    await work()
    late.late_set(signal.SIGUSR1)
    with signals_for(threading.get_ident()):
        await until_hit()
        await work()
        await until_hit()
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


def passes(program: str, library: Path) -> None:
    """Runs a program that must end well, with many collections of Go's garbage."""
    done = ended.python(
        *("-X", "faulthandler=0", "-c", PRELUDE + program, library),
        limit=TIME_LIMIT,
        GOLOOP_GOGC="1",
    )
    assert done.returncode == 0, f"ended with {done.returncode}\n{done.stdout}"


def test_handler_has_room_while_the_loop_sleeps_and_works(library: Path) -> None:
    passes(
        """
goloop.run(sleep_and_work())
check()
""",
        library,
    )


def test_handler_has_room_in_every_call_of_go(library: Path) -> None:
    passes(
        """
async def watch():
    loop = asyncio.get_running_loop()
    left, right = socket.socketpair()
    for _ in range(100):
        loop.add_reader(left, int)
        loop.add_writer(right, int)
        await asyncio.sleep(0)
        loop.remove_reader(left)
        loop.remove_writer(right)
        goloop.diagnostics()
        loop.call_later(3600, int).cancel()
    left.close()
    right.close()

goloop.run(work())
late.late_set(signal.SIGUSR1)
with signals_for(threading.get_ident()):
    for n in range(30):
        loop = goloop.new_event_loop()
        loop.run_until_complete(watch())
        if n % 2:
            loop.close()
        del loop
        gc.collect()
    goloop.run(until_hit())
check()
""",
        library,
    )


def test_handler_has_room_in_each_thread_with_a_loop(library: Path) -> None:
    passes(
        """
barrier = threading.Barrier(3)

async def main(index):
    await work()
    barrier.wait()
    late.late_set(signal.SIGUSR1)
    with signals_for(threading.get_ident()):
        await work()
        await until_hit()

goloop.run_threads(main, threads=3)
check()
""",
        library,
    )


def test_handler_has_room_in_the_host_of_a_guest(library: Path) -> None:
    """The thread that polls for a guest blocks signals, so they arrive in the host's."""
    passes(
        """
import queue
import goloop.guest

calls = queue.SimpleQueue()

async def main():
    await work()
    late.late_set(signal.SIGUSR1)
    with signals_for(*(thread.ident for thread in threading.enumerate())):
        await work()
        await asyncio.sleep(0.05)

run = goloop.guest.start(
    main(), run_sync_soon_threadsafe=calls.put, done_callback=lambda _: calls.put(None)
)
while (call := calls.get()) is not None:
    call()
run.outcome.result()
check()
""",
        library,
    )


def test_handler_has_room_in_a_forked_child(library: Path) -> None:
    passes(
        """
goloop.run(work())
if (pid := os.fork()) == 0:
    code = 1
    try:
        goloop.run(sleep_and_work())
        check()
        code = 0
    finally:
        os._exit(code)
assert os.waitpid(pid, 0)[1] == 0
""",
        library,
    )
