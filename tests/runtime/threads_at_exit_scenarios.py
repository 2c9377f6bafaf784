"""The scenarios of test_threads_at_exit.py: `python threads_at_exit_scenarios.py NAME` runs one.

The first functions of atexit are the last ones to be called: after goloop's.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
import warnings

warnings.simplefilter("ignore")


def others():
    """The names of the other threads."""
    return [name for name in map(name_of, sys._current_frames()) if name]


def name_of(ident):
    if ident == threading.get_ident():
        return None
    return next((each.name for each in threading.enumerate() if each.ident == ident), "nameless")


def until(condition):
    deadline = time.monotonic() + 30
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.001)
    return True


# Functions that are called after at_the_end().
after_the_end = []


@atexit.register
def call_after_the_end():
    for function in after_the_end:
        function()


@atexit.register
def at_the_end():
    # Up to 3.12 a thread may be seen for a moment after its last line.
    print("ended" if until(lambda: not others()) else others(), flush=True)


import asyncio
import ctypes
import logging
import queue
import socket
from pathlib import Path

logging.disable()  # of unfinished tasks and of blocks
import goloop
import goloop.guest
from goloop._internal.net import resolver_threads

resolver_threads._IDLE_SECONDS = 1000.0
loop = goloop.new_event_loop()
run = loop.run_until_complete

# Objects that live until the process ends.
kept = []


def idle_resolvers_of_an_open_loop() -> None:
    async def main():
        await asyncio.gather(*(loop.getaddrinfo("localhost", 80) for _ in range(3)))

    run(main())
    assert others()


def resolvers_of_a_loop_that_was_closed_just_now() -> None:
    async def main():
        asking = [loop.create_task(loop.getaddrinfo("localhost", 80)) for _ in range(6)]
        await asyncio.sleep(0)
        for each in asking:
            each.cancel()

    run(main())
    loop.close()


def resolvers_of_a_loop_of_a_daemon_thread() -> None:
    ready = threading.Event()
    stop = threading.Event()

    async def main():
        await asyncio.get_running_loop().getaddrinfo("localhost", 80)
        ready.set()
        while not stop.is_set():
            await asyncio.sleep(0.001)

    thread = threading.Thread(target=goloop.run, args=(main(),), daemon=True)
    thread.start()
    ready.wait()
    atexit.register(lambda: (stop.set(), thread.join()))


def the_reporter_of_a_blocked_loop() -> None:
    from goloop import watchdog

    reported = threading.Event()
    watchdog.subscribe(lambda blocked: reported.set())
    loop.set_watchdog(0.01)

    async def main():
        assert reported.wait(30)

    run(main())


def a_guest_without_finish() -> None:
    calls = queue.SimpleQueue()
    kept.append(goloop.guest.start(asyncio.sleep(60), run_sync_soon_threadsafe=calls.put))
    calls.get()()
    assert others() == ["goloop-guest"]


def the_introspection_server() -> None:
    from goloop.operations import introspection

    introspection.introspect()
    assert others() == ["goloop-introspect"]


def the_introspection_server_with_a_client_that_asks_nothing() -> None:
    from goloop.operations import introspection

    introspection._REQUEST_SECONDS = 1000
    introspection.introspect()
    client = socket.socket(socket.AF_UNIX)
    kept.append(client)
    client.connect(introspection.address(os.getpid()))
    assert until(lambda: introspection._client is not None)


# ---- scenarios with a test of their own ----------------------------------------------------------


def forked_child_ends_its_own_threads_only(fork: str) -> None:
    async def main():
        await loop.getaddrinfo("localhost", 80)

    run(main())
    if pid := os.fork() if fork == "os.fork" else ctypes.PyDLL(None).fork():
        assert os.waitpid(pid, 0)[1] == 0
    else:
        own = goloop.new_event_loop()
        kept.append(own)
        own.run_until_complete(own.getaddrinfo("localhost", 80))
        atexit.unregister(at_the_end)  # a fork by C leaves the parent's thread states there
        print("ended", flush=True)


def thread_that_writes_metrics_ends_before_python(folder: str) -> None:
    from goloop.operations import prometheus

    prometheus._share_of(Path(folder), 1000.0)
    assert others() == ["goloop-prometheus"]


def exit_does_not_wait_for_the_end_of_a_child() -> None:
    from goloop._internal import helper_threads

    def refuse(pid, flags=0):
        raise OSError(38, "no pidfd")

    os.pidfd_open = refuse

    async def main():
        waits_for_this_process = "import sys; sys.stdin.read()"
        pipe, null = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
        return await asyncio.create_subprocess_exec(
            sys.executable, "-c", waits_for_this_process, stdin=pipe, stdout=null, stderr=null
        )

    kept.append(run(main()))
    [name] = others()
    assert name.startswith("goloop-waitpid")
    if not helper_threads.THREADS_MUST_END:
        atexit.unregister(at_the_end)
        print("ended")


def exit_does_not_wait_for_a_closed_introspection_socket() -> None:
    from goloop.operations import introspection

    introspection.introspect()
    introspection._serving.close()
    atexit.unregister(at_the_end)


def lookup_after_the_end_of_all_threads_is_an_error() -> None:
    def late():
        late_loop = goloop.new_event_loop()
        try:
            late_loop.run_until_complete(late_loop.getaddrinfo("localhost", 80))
        except RuntimeError as error:
            print(error)
        assert late_loop.run_until_complete(late_loop.getaddrinfo("127.0.0.1", 80))
        late_loop.close()

    after_the_end.append(late)
    run(asyncio.sleep(0))


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
