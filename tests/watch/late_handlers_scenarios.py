"""The scenarios of test_late_handlers.py: `python late_handlers_scenarios.py NAME` runs one."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import os
import queue
import signal
import socket
import sys
import threading
import time

import goloop

late = ctypes.CDLL(sys.argv[2])
late.late_room.restype = ctypes.c_long


@contextlib.contextmanager
def signals_for(*threads):
    """Another thread sends these threads a signal again and again."""
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
    """Enough connections for several collections of Go's garbage."""
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
    """The loop sleeps in Go, where the signals arrive."""
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


def handler_has_room_while_the_loop_sleeps_and_works() -> None:
    goloop.run(sleep_and_work())
    check()


def handler_has_room_in_every_call_of_go() -> None:
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


def handler_has_room_in_each_thread_with_a_loop() -> None:
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


def handler_has_room_in_the_host_of_a_guest() -> None:
    """The thread that polls for a guest blocks signals, so they arrive in the host's."""
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


def handler_has_room_in_a_forked_child() -> None:
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


if __name__ == "__main__":
    globals()[sys.argv[1]]()
