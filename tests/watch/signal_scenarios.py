"""The scenarios of test_signals.py: `python signal_scenarios.py NAME LOOP` runs one.

Each function under "scenarios" is a scenario, for asyncio (LOOP) as for goloop: a
signal must have the same effect with Go in the process as without.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import faulthandler
import fcntl
import os
import platform
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import warnings
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)

# Importing pytest would take longer than most scenarios.
raises = unittest.TestCase().assertRaises

# ---- tools -----------------------------------------------------------------------------

LOOP = sys.argv[2] if __name__ == "__main__" else "asyncio"

# Signals that Go would handle if allowed, and some of everyday use.
SIGNALS = [
    signal.SIGURG,
    signal.SIGPIPE,
    signal.SIGUSR1,
    signal.SIGALRM,
    signal.SIGTERM,
    signal.SIGCHLD,
    signal.SIGPROF,
]


def new_loop() -> asyncio.AbstractEventLoop:
    """A loop of the kind under test."""
    if LOOP == "asyncio":
        return asyncio.SelectorEventLoop()
    import goloop

    return goloop.new_event_loop()


def run(main: Any) -> Any:
    """asyncio.run, on the kind under test."""
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(main)


async def echo() -> None:
    """Some work for every part of the loop: sockets, a name, a timer."""
    loop = asyncio.get_running_loop()
    left, right = socket.socketpair()
    for sock in (left, right):
        sock.setblocking(False)
    for i in range(20):
        message = bytes([i]) * 1000
        await loop.sock_sendall(left, message)
        received = b""
        while len(received) < len(message):
            received += await loop.sock_recv(right, 65536)
        assert received == message
    left.close()
    right.close()
    assert await loop.getaddrinfo("localhost", 80)
    await asyncio.sleep(0.001)


class Recorder:
    """A Python signal handler that records the signals of its calls."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.seen.append(number)


def send(number: int) -> None:
    """Sends this process a signal."""
    os.kill(os.getpid(), number)


# epoll_wait, epoll_pwait, epoll_pwait2, here and on the other machine that has them.
_POLLS = {"232", "281", "22", "441"}


@contextlib.contextmanager
def signal_once_blocked(number: int, repeat: bool = False) -> Iterator[None]:
    """Another process sends the signal when the main thread of this one waits in a poll."""
    code = f"""
import os, time
while True:
    with open("/proc/{os.getpid()}/syscall") as file:
        if file.read().split()[0] in {_POLLS}:
            os.kill({os.getpid()}, {int(number)})
            if not {repeat}:
                break
    time.sleep(0.001)
"""
    helper = subprocess.Popen([sys.executable, "-I", "-S", "-c", code])
    try:
        yield
    finally:
        if repeat:
            helper.kill()
        helper.wait()


@contextlib.contextmanager
def alarm_storm() -> Iterator[Recorder]:
    """SIGALRM each half millisecond."""
    recorder = Recorder()
    previous = signal.signal(signal.SIGALRM, recorder)
    signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
    try:
        yield recorder
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


# ---- scenarios: dispositions --------------------------------------------------------------


def handlers_set_before_the_first_loop() -> None:
    """The handlers stay in place, and each signal calls its handler once."""
    recorders = {number: Recorder() for number in SIGNALS}
    for number, recorder in recorders.items():
        signal.signal(number, recorder)

    async def main() -> None:
        await echo()
        for number in SIGNALS:
            send(number)
        await echo()

    run(main())
    for number, recorder in recorders.items():
        assert signal.getsignal(number) is recorder
        assert recorder.seen == [number]
        send(number)
        assert recorder.seen == [number, number]


def handlers_set_after_the_first_loop() -> None:
    """The handlers are called as if there were no Go."""
    run(echo())
    handlers_set_before_the_first_loop()


def dispositions_of_c_are_unchanged() -> None:
    """SIG_DFL, SIG_IGN and handlers, as the kernel has them, and the thread's mask."""

    def kernels_view() -> list[str]:
        with open("/proc/self/status") as file:
            lines = [line for line in file if line.startswith(("SigIgn", "SigCgt", "SigBlk"))]
        # 33 is libc's own, which it handles from the first thread on.
        return [f"{name} {int(mask, 16) & ~(1 << 32):x}" for name, mask in map(str.split, lines)]

    signal.signal(signal.SIGUSR2, Recorder())
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGCHLD, signal.SIGPROF])
    before = kernels_view()
    run(echo())
    after = kernels_view()
    assert after == before, (before, after)


def sigpipe_by_default_ends_the_process() -> None:
    """A program may set SIGPIPE to SIG_DFL, to end quietly when its reader goes."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    run(echo())
    pid = os.fork()
    if pid == 0:
        run(echo())
        reading, writing = os.pipe()
        os.close(reading)
        os.write(writing, b"x")
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGPIPE


def sigpipe_ignored_is_an_error_of_write() -> None:
    """SIGPIPE is ignored, as Python sets it: a write without a reader raises BrokenPipeError."""
    run(echo())
    left, right = socket.socketpair()
    right.close()
    with raises(BrokenPipeError):
        left.send(b"x")

    async def main() -> None:
        left.setblocking(False)
        with raises(BrokenPipeError):
            await asyncio.get_running_loop().sock_sendall(left, b"x")

    run(main())
    left.close()


def handlers_in_a_forked_child() -> None:
    """A child has its parent's handlers before and after its own loop."""
    recorders = {number: Recorder() for number in SIGNALS}
    for number, recorder in recorders.items():
        signal.signal(number, recorder)
    run(echo())
    pid = os.fork()
    if pid == 0:
        for rounds in (1, 2):
            for number, recorder in recorders.items():
                send(number)
                assert recorder.seen == [number] * rounds, (number, recorder.seen)
            run(echo())
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0


def no_unsent_signal() -> None:
    """Go stops its threads without SIGURG; the collector and goroutines run all the while."""
    platform.platform()  # of which diagnostics() tells; runs a program, once
    recorders = [Recorder() for _ in SIGNALS]
    for number, recorder in zip(SIGNALS, recorders, strict=True):
        signal.signal(number, recorder)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        for _ in range(60):
            await asyncio.gather(*(loop.getaddrinfo("localhost", None) for _ in range(20)))
            if LOOP == "goloop":
                import goloop

                goloop.diagnostics()  # stops Go's world

    run(main())
    seen = {number: len(each.seen) for number, each in zip(SIGNALS, recorders, strict=True)}
    assert not any(seen.values()), seen


# ---- scenarios: delivery ---------------------------------------------------------------------


def handler_runs_while_the_loop_is_blocked() -> None:
    """A handler need not wait for the loop's next event."""
    loop = new_loop()
    # The sender's own end is a SIGCHLD.
    for number in [number for number in SIGNALS if number != signal.SIGCHLD]:
        seen: list[int] = []

        def handler(number: int, frame: FrameType | None, seen: list[int] = seen) -> None:
            seen.append(number)
            loop.call_soon_threadsafe(loop.stop)

        signal.signal(number, handler)
        with signal_once_blocked(number):
            loop.run_forever()
        signal.signal(number, signal.SIG_DFL)
        assert seen == [number]
    loop.close()


def users_wakeup_fd_stays() -> None:
    """signal.set_wakeup_fd before a run: it gets the numbers, and it is there afterwards."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.signal(signal.SIGUSR1, Recorder())
    signal.set_wakeup_fd(writing)

    async def main() -> None:
        send(signal.SIGUSR1)
        await echo()

    run(main())
    assert signal.set_wakeup_fd(-1) == writing
    numbers = os.read(reading, 100)
    assert numbers == bytes([signal.SIGUSR1])

    # And where there was none, there is none.
    run(main())
    assert signal.set_wakeup_fd(-1) == -1


def blocked_signal_waits_for_sigwait() -> None:
    """No thread of Go's receives signals that the Python threads have blocked."""
    numbers = {signal.SIGUSR1, signal.SIGTERM, signal.SIGURG, signal.SIGALRM, signal.SIGPIPE}
    recorder = Recorder()
    for number in numbers:
        signal.signal(number, recorder)
    signal.pthread_sigmask(signal.SIG_BLOCK, numbers)

    async def main() -> None:
        for number in numbers:
            send(number)
        await echo()

    run(main())
    assert signal.sigpending() == numbers
    assert {signal.sigwait(numbers) for _ in numbers} == numbers
    assert recorder.seen == []


def signals_with_the_loop_in_a_thread() -> None:
    """The main thread keeps handling signals while a loop runs elsewhere."""
    recorder = Recorder()
    for number in SIGNALS:
        signal.signal(number, recorder)
    ready = threading.Event()
    end: list[Callable[[], object]] = []
    errors: list[BaseException] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        end.append(lambda: loop.call_soon_threadsafe(done.set_result, None))
        await echo()
        ready.set()
        await done

    def body() -> None:
        try:
            run(main())
        except BaseException as exc:
            errors.append(exc)
            ready.set()

    thread = threading.Thread(target=body)
    thread.start()
    ready.wait()
    for number in SIGNALS:
        send(number)
    end[0]()
    thread.join()
    assert not errors, errors
    assert sorted(recorder.seen) == sorted(SIGNALS)


def sigchld_is_the_users() -> None:
    """A child's end calls the user's handler, and its status is the user's to take."""
    recorder = Recorder()
    signal.signal(signal.SIGCHLD, recorder)

    async def main() -> None:
        await echo()
        process = subprocess.Popen([sys.executable, "-I", "-S", "-c", "raise SystemExit(9)"])
        while not recorder.seen:
            await asyncio.sleep(0.001)
        assert process.wait() == 9

    run(main())
    assert recorder.seen == [signal.SIGCHLD]


def storm_of_signals() -> None:
    """SIGALRM comes all the while; nothing is lost, doubled or failed by EINTR."""
    run(echo())
    with alarm_storm() as recorder:

        async def main() -> None:
            while len(recorder.seen) < 300:
                await asyncio.gather(*(echo() for _ in range(5)))

        run(main())


# ---- scenarios: exceptions out of handlers -------------------------------------------------


def interrupt_while_blocked() -> None:
    """Control-C ends asyncio.run in the middle of a wait, the main task cleans up."""
    cleaned = []

    async def main() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            cleaned.append(True)

    for _ in range(3):
        with signal_once_blocked(signal.SIGINT), raises(KeyboardInterrupt):
            run(main())
        assert cleaned.pop()
        run(echo())


def interrupt_of_run_forever_while_blocked() -> None:
    """Without a Runner it leaves run_forever, and the loop can run again."""
    loop = new_loop()
    for _ in range(3):
        with signal_once_blocked(signal.SIGINT), raises(KeyboardInterrupt):
            loop.run_forever()
        assert not loop.is_running()
        loop.run_until_complete(echo())
    loop.close()


def interrupt_while_busy_with_callbacks() -> None:
    """The loop never waits: one callback schedules the next."""
    loop = new_loop()

    def again() -> None:
        loop.call_soon(again)

    timer = threading.Timer(0.05, send, (signal.SIGINT,))
    timer.start()
    again()
    with raises(KeyboardInterrupt):
        loop.run_forever()
    timer.join()
    loop.stop()
    loop.run_forever()
    loop.close()


def interrupt_while_busy_in_one_callback() -> None:
    """Python code that never returns to the loop."""
    loop = new_loop()

    def spin() -> None:
        while True:
            pass

    timer = threading.Timer(0.05, send, (signal.SIGINT,))
    timer.start()
    loop.call_soon(spin)
    with raises(KeyboardInterrupt):
        loop.run_forever()
    timer.join()
    loop.run_until_complete(echo())
    loop.close()


def interrupt_while_busy_in_a_task() -> None:
    """Interrupt a coroutine; asyncio.run cancels the main task at its next await."""

    async def main() -> None:
        send(signal.SIGINT)
        for _ in range(1000):
            await asyncio.sleep(0)
        raise AssertionError("was not cancelled")

    with raises(KeyboardInterrupt):
        run(main())
    run(echo())


def interrupt_in_the_executor() -> None:
    """Control-C while the loop waits for a thread."""
    entered, leave = threading.Event(), threading.Event()

    def work() -> None:
        entered.set()
        leave.wait()

    async def main() -> None:
        waiting = asyncio.get_running_loop().run_in_executor(None, work)
        await asyncio.to_thread(entered.wait)
        try:
            await waiting
        finally:
            leave.set()

    with signal_once_blocked(signal.SIGINT), raises(KeyboardInterrupt):
        run(main())
    run(echo())


def interrupt_within_c() -> None:
    """A call of C that runs no bytecode: the exception comes as soon as it returns."""

    async def main() -> None:
        send(signal.SIGINT)
        sorted(range(100_000, 0, -1))
        for _ in range(1000):
            await asyncio.sleep(0)
        raise AssertionError("was not cancelled")

    with raises(KeyboardInterrupt):
        run(main())

    loop = new_loop()
    loop.call_soon(os.kill, os.getpid(), signal.SIGINT)
    with raises(KeyboardInterrupt):
        loop.run_forever()
    loop.run_until_complete(echo())
    loop.close()


def storm_on_a_full_wakeup_pipe() -> None:
    """10,000 unread SIGUSR1 fill the pipe; no kind is lost, nothing waits for ever."""
    if LOOP == "asyncio":
        return  # asyncio loses SIGUSR2
    # The wakeup fd is a pipe of the smallest size, so that it is full for certain.
    counts = {signal.SIGUSR1: 0, signal.SIGUSR2: 0}

    def count(number: signal.Signals) -> None:
        counts[number] += 1

    async def main() -> None:
        loop = asyncio.get_running_loop()
        for number in counts:
            loop.add_signal_handler(number, count, number)
        writing = signal.set_wakeup_fd(-1, warn_on_full_buffer=False)
        fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        for _ in range(3):
            before = dict(counts)
            for _ in range(10_000):
                send(signal.SIGUSR1)
            send(signal.SIGUSR2)  # the signal's number finds no room
            while any(counts[number] == before[number] for number in counts):
                await asyncio.sleep(0)

        # And from outside, while the loop waits in the kernel.
        before = dict(counts)
        code = f"""
import os, signal
for _ in range(10_000):
    os.kill({os.getpid()}, signal.SIGUSR1)
os.kill({os.getpid()}, signal.SIGUSR2)
"""
        storm = await asyncio.create_subprocess_exec(sys.executable, "-S", "-c", code)
        assert await storm.wait() == 0
        while any(counts[number] == before[number] for number in counts):
            await asyncio.sleep(0.001)
        for number in counts:
            loop.remove_signal_handler(number)

    run(main())


def interrupts_lose_no_signal() -> None:
    """KeyboardInterrupt, wherever it strikes in the loop, loses no signal of a handler."""
    if LOOP == "asyncio":
        return  # asyncio reads the numbers in Python, and may be interrupted between two bytecodes
    code = """
import os, random, signal, sys
parent = os.getppid()
while sys.stdin.buffer.raw.read(1):
    os.kill(parent, signal.SIGUSR1)
    for _ in range(random.randrange(600)):
        pass
    os.kill(parent, signal.SIGINT)
"""
    loop = new_loop()
    seen: list[int] = []
    # list.append: were it Python, the exception might strike in the handler itself.
    loop.add_signal_handler(signal.SIGUSR1, seen.append, 1)
    sender = subprocess.Popen([sys.executable, "-S", "-c", code], stdin=subprocess.PIPE, bufsize=0)
    assert sender.stdin is not None
    for number in range(1, 3001):
        # From within the loop: the code around it is Python, in asyncio as well.
        loop.call_soon(os.write, sender.stdin.fileno(), b"x")
        with raises(KeyboardInterrupt):
            loop.run_forever()
        deadline = time.monotonic() + 20
        while len(seen) < number:
            assert time.monotonic() < deadline, (number, len(seen))
            loop.call_later(0.0005, loop.stop)
            loop.run_forever()
    sender.stdin.close()
    sender.wait()
    loop.close()


def exception_of_an_alarm() -> None:
    """A handler that raises: the exception leaves run_forever and spares the loop."""

    class Late(Exception):
        pass

    def handler(number: int, frame: FrameType | None) -> None:
        raise Late

    signal.signal(signal.SIGALRM, handler)
    loop = new_loop()
    for _ in range(3):
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        with raises(Late):
            loop.run_forever()
        loop.run_until_complete(echo())
    loop.close()


# ---- scenarios: faulthandler ------------------------------------------------------------------


def _traceback_of(trigger: Callable[[Any], None]) -> str:
    with tempfile.TemporaryFile("w+") as file:
        trigger(file)
        file.seek(0)
        return file.read()


def faulthandler_on_request() -> None:
    """faulthandler.register: a dump while the loop is blocked, which goes on afterwards."""

    def trigger(file: Any) -> None:
        faulthandler.register(signal.SIGUSR1, file=file)
        loop = new_loop()

        def look() -> None:
            if os.fstat(file.fileno()).st_size:
                loop.stop()
            else:
                loop.call_later(0.05, look)

        look()
        with signal_once_blocked(signal.SIGUSR1):
            loop.run_forever()
        loop.run_until_complete(echo())
        loop.close()
        faulthandler.unregister(signal.SIGUSR1)

    dump = _traceback_of(trigger)
    assert "in run_forever" in dump or "in trigger" in dump, dump


def faulthandler_by_the_clock() -> None:
    """faulthandler.dump_traceback_later: its thread dumps while the loop is blocked."""

    def trigger(file: Any) -> None:
        loop = new_loop()
        faulthandler.dump_traceback_later(0.05, file=file)

        def look() -> None:
            if os.fstat(file.fileno()).st_size:
                loop.stop()
            else:
                loop.call_later(0.5, look)

        # Not when the dump is made: its thread walks the frames of the main one without
        # the GIL, and CPython crashes at times where they change meanwhile.
        loop.call_later(0.5, look)
        loop.run_forever()
        faulthandler.cancel_dump_traceback_later()
        loop.close()

    dump = _traceback_of(trigger)
    assert "Timeout" in dump, dump


# The following three end by a signal, as test_signals.py expects.


def crash_with_faulthandler_enabled_before() -> None:
    """The dump, then the death."""
    faulthandler.enable()
    run(echo())
    ctypes.string_at(8)


def crash_with_faulthandler_enabled_after() -> None:
    """Enable faulthandler after Go."""
    run(echo())
    faulthandler.enable()
    ctypes.string_at(8)


def crash_without_faulthandler() -> None:
    """A crash in C is none of Go's business."""
    run(echo())
    ctypes.string_at(8)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
