"""The scenarios of test_guest.py: `python guest_scenarios.py NAME` runs one."""

from __future__ import annotations

import asyncio
import os
import queue
import signal
import sys
import threading

# Objects that live until the process ends.
kept = []


def a_poller_that_is_lost_is_an_error() -> None:
    import goloop.guest

    def pollers():
        found = set()
        for fd in os.listdir("/proc/self/fd"):
            try:
                if os.readlink(f"/proc/self/fd/{fd}") == "anon_inode:[eventpoll]":
                    found.add(int(fd))
            except FileNotFoundError:
                pass
        return found

    async def main():
        [poller] = pollers() - before
        os.close(poller)
        await asyncio.get_running_loop().create_future()

    calls = queue.SimpleQueue()
    goloop.new_event_loop().close()  # Go's runtime has one that stays
    before = pollers()
    guest = goloop.guest.start(main(), run_sync_soon_threadsafe=calls.put)
    while not guest.outcome.done():
        calls.get()()
    print(repr(guest.outcome.exception()), guest.loop.is_closed())


def a_process_ends_though_its_host_left_the_run() -> None:
    import goloop.guest

    async def main():
        await asyncio.get_running_loop().create_future()

    calls = queue.SimpleQueue()
    kept.append(goloop.guest.start(main(), run_sync_soon_threadsafe=calls.put))
    calls.get()()
    print("host ends")


def ctrl_c_cancels_main_and_is_the_outcome() -> None:
    import goloop.guest

    async def main():
        loop = asyncio.get_running_loop()
        loop.call_soon(calls.put, lambda: os.kill(os.getpid(), signal.SIGINT))
        try:
            await loop.create_future()
        finally:
            await asyncio.sleep(0.001)
            print("cleaned up")

    calls = queue.SimpleQueue()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    guest = goloop.guest.start(main(), run_sync_soon_threadsafe=calls.put)
    while not guest.outcome.done():
        calls.get()()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    try:
        guest.outcome.result()
    except KeyboardInterrupt:
        print("interrupted")


def ctrl_c_is_for_the_guest_that_is_left() -> None:
    import goloop.guest

    async def main():
        await asyncio.get_running_loop().create_future()

    def run(until):
        while not until.outcome.done():
            calls.get()()
        print(type(until.outcome.exception()).__name__)

    calls = queue.SimpleQueue()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    first, second = [
        goloop.guest.start(main(), run_sync_soon_threadsafe=calls.put) for _ in range(2)
    ]
    for guest in first, second:
        calls.put(lambda: os.kill(os.getpid(), signal.SIGINT))
        run(guest)
        print(second.outcome.done(), signal.getsignal(signal.SIGINT) is signal.default_int_handler)


def signal_handlers_run_while_the_host_sleeps() -> None:
    import goloop.guest

    async def main():
        loop = asyncio.get_running_loop()
        caught = loop.create_future()
        loop.add_signal_handler(signal.SIGUSR1, caught.set_result, "caught")
        threading.Thread(target=os.kill, args=(os.getpid(), signal.SIGUSR1)).start()
        return await caught

    calls = queue.SimpleQueue()
    guest = goloop.guest.start(main(), run_sync_soon_threadsafe=calls.put)
    while not guest.outcome.done():
        calls.get()()
    print(guest.outcome.result())


if __name__ == "__main__":
    globals()[sys.argv[1]]()
