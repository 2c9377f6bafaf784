"""The scenarios of test_thread_signals.py: `python thread_signals_scenarios.py NAME` runs one."""

from __future__ import annotations

import asyncio
import atexit
import os
import signal
import socket
import sys
import threading
import time

import goloop

# All mains pass it, and the thread that sends signals.
running = threading.Barrier(4)
said = []


def send(*numbers):
    def run():
        running.wait()
        for number in numbers:
            number() if callable(number) else os.kill(os.getpid(), number)

    threading.Thread(target=run, daemon=True).start()


async def main(index):
    running.wait()
    try:
        await asyncio.get_running_loop().create_future()
    finally:
        said.append(index)


def handlers():
    return [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]


defaults = handlers()
assert defaults == [signal.default_int_handler, signal.SIG_DFL]


def sigint_cancels_all_and_raises_keyboard_interrupt() -> None:
    send(signal.SIGINT)
    try:
        goloop.run_threads(main, threads=3)
    except KeyboardInterrupt:
        assert sorted(said) == [0, 1, 2]
        assert handlers() == defaults
    else:
        sys.exit("no KeyboardInterrupt")


def sigterm_cancels_all_and_ends_the_program_with_143() -> None:
    atexit.register(print, "at exit")
    send(signal.SIGTERM)
    try:
        goloop.run_threads(main, threads=3)
    finally:
        assert handlers() == defaults
        print("ended", sorted(said))


def signal_delivered_to_another_thread_is_handled_at_once() -> None:
    def elsewhere():
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)

    send(elsewhere)
    try:
        goloop.run_threads(main, threads=3)
    except KeyboardInterrupt:
        assert sorted(said) == [0, 1, 2]
    else:
        sys.exit("no KeyboardInterrupt")


def a_signal_that_comes_after_the_last_main_is_not_lost() -> None:
    class Loop(goloop.Loop):
        def close(self):
            if not self.is_closed():
                os.kill(os.getpid(), signal.SIGINT)
            super().close()

    async def done(index):
        return index

    try:
        goloop.run_threads(done, threads=1, loop_factory=Loop)
    except KeyboardInterrupt:
        pass
    else:
        sys.exit("no KeyboardInterrupt")


def programs_wakeup_fd_is_kept() -> None:
    here, there = socket.socketpair()
    there.setblocking(False)
    signal.set_wakeup_fd(there.fileno())
    signal.signal(signal.SIGUSR1, lambda number, frame: None)
    heard = []

    async def hears(index):
        running.wait()
        if index == 0:
            heard.append(await asyncio.to_thread(here.recv, 1))

    send(signal.SIGUSR1)
    goloop.run_threads(hears, threads=3)
    assert heard == [bytes([signal.SIGUSR1])]
    assert signal.set_wakeup_fd(-1) == there.fileno()


def mains_that_return_when_cancelled_have_results(name: str) -> None:
    async def ends(index):
        try:
            await main(index)
        except asyncio.CancelledError:
            return index * index

    send(getattr(signal, name))
    assert goloop.run_threads(ends, threads=3) == [0, 1, 4]
    assert handlers() == defaults


def an_exception_after_a_signal_is_raised() -> None:
    async def fails(index):
        try:
            await main(index)
        finally:
            if index == 1:
                raise ValueError("as it ended")

    send(signal.SIGINT)
    try:
        goloop.run_threads(fails, threads=3)
    except ValueError as exc:
        assert str(exc) == "as it ended"
    else:
        sys.exit("no ValueError")


def a_second_signal_raises_at_once(name: str, kind: str) -> None:
    cancelled = threading.Barrier(4)

    async def deaf(index):
        running.wait()
        for waits in (True, False):
            try:
                await asyncio.sleep(600)
            except asyncio.CancelledError:
                if waits:
                    cancelled.wait()
        await asyncio.sleep(600)

    send(signal.SIGINT, cancelled.wait, getattr(signal, name))
    try:
        goloop.run_threads(deaf, threads=3)
    except BaseException as exc:
        assert type(exc).__name__ == kind
        [note] = exc.__notes__
        assert note == "these threads of goloop.run_threads() were still running: " + ", ".join(
            f"goloop-{i} (index {i})" for i in range(3)
        )
        assert handlers() == defaults
        assert threading.active_count() >= 4
    else:
        sys.exit(f"no {kind}")


def handlers_of_the_program_are_left_alone() -> None:
    seen = []
    signal.signal(signal.SIGTERM, lambda number, frame: seen.append(number))
    before = handlers()

    async def looks(index):
        assert handlers()[1] is before[1]
        assert handlers()[0] is not before[0]
        running.wait()
        while not seen:
            await asyncio.sleep(0.001)

    send(signal.SIGTERM)
    assert goloop.run_threads(looks, threads=3) == [None] * 3
    assert seen == [signal.SIGTERM]
    assert handlers() == before


def exception_of_a_signal_handler_cancels_all_threads() -> None:
    class Enough(Exception):
        pass

    def enough(number, frame):
        raise Enough

    def until_heard():
        # In a weak reference's callback Python ignores the exception; within Thread.start(), which
        # the main thread calls at its end, a lock would be lost.
        while not said:
            time.sleep(0.5)
            os.kill(os.getpid(), signal.SIGUSR1)

    signal.signal(signal.SIGUSR1, enough)
    send(until_heard)
    try:
        goloop.run_threads(main, threads=3)
    except Enough:
        assert sorted(said) == [0, 1, 2]
    else:
        sys.exit("not raised")


def run_threads_in_other_threads_sets_no_signal_handlers() -> None:
    running = threading.Barrier(3)

    async def looks(index):
        running.wait()
        return handlers()

    told = []
    thread = threading.Thread(target=lambda: told.extend(goloop.run_threads(looks, threads=3)))
    thread.start()
    thread.join()
    assert told == [defaults] * 3


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
