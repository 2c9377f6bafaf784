"""The scenarios of test_blocked_signals.py, each run by its name."""

from __future__ import annotations

import asyncio
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time

import goloop

ALL = set(map(int, signal.valid_signals())) - {signal.SIGKILL, signal.SIGSTOP}

SENDER = """
import os, sys
for line in sys.stdin:
    os.kill(os.getppid(), int(line))
    print(flush=True)
"""


def threads():
    """The name and the blocked signals of each thread."""
    found = {}
    for tid in map(int, os.listdir("/proc/self/task")):
        try:
            with open(f"/proc/self/task/{tid}/status") as file:
                lines = dict(line.split(":", 1) for line in file)
        except OSError:
            continue  # the thread has ended
        mask = int(lines["SigBlk"], 16)
        blocked = {number for number in ALL if mask >> (number - 1) & 1}
        found[tid] = lines["Name"].strip(), blocked
    return found


def until(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, threads()
        time.sleep(0.001)


def has_thread(name):
    return any(each == name for each, _ in threads().values())


def open_signals(of_the_program):
    """The signals that goloop's threads leave open, by the thread's name."""
    found = {}
    for tid, (name, blocked) in threads().items():
        if tid not in of_the_program and ALL - blocked:
            found[name] = ALL - blocked
    return found


def block():
    signal.pthread_sigmask(signal.SIG_BLOCK, ALL)


def check(of_the_program=()):
    """The other threads of the program have called block()."""
    block()
    assert has_thread("goloop-go"), threads()
    # A thread that Go has just started gets its mask within its first instructions.
    until(lambda: not open_signals({os.getpid(), *of_the_program}))
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-S", "-c", SENDER], stdin=pipe, stdout=pipe) as sender:
        for number in sorted(ALL):
            sender.stdin.write(b"%d\n" % number)
            sender.stdin.flush()
            sender.stdout.readline()
            assert number in signal.sigpending(), number
            info = signal.sigtimedwait({number}, 60)
            assert info is not None and info.si_pid == sender.pid, (number, info)
        sender.stdin.close()
    assert not open_signals({os.getpid(), *of_the_program})


async def work():
    """Go's threads, a thread that resolves names, and the monitor's."""
    loop = asyncio.get_running_loop()
    await loop.getaddrinfo("localhost", 80)
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    for _ in range(20):
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        assert await reader.read() == b""
        writer.close()
    server.close()
    # The monitor's thread has the name of Go's until it sets its own.
    until(lambda: has_thread("goloop-monitor") and has_thread("goloop-resolve"))


def signals_blocked_after_the_start_of_a_loop_stay_pending() -> None:
    async def main():
        await work()
        check()

    goloop.run(main())


def signals_stay_pending_in_the_child_of_a_process_with_a_loop() -> None:
    async def main():
        await work()
        check()

    goloop.run(work())
    if (pid := os.fork()) == 0:
        code = 1
        try:
            goloop.run(main())
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0


def signals_stay_pending_while_several_loops_run() -> None:
    barrier = threading.Barrier(4)
    tids = []

    async def main(index):
        await work()
        if index:
            block()
            tids.append(threading.get_native_id())
        await asyncio.to_thread(barrier.wait)
        if index == 0:
            check(tids + executors)
        await asyncio.to_thread(barrier.wait)

    # The threads of executors are the program's.
    executors = []

    class Executor(threading.Thread):
        def run(self):
            block()
            executors.append(threading.get_native_id())
            super().run()

    threading.Thread = Executor

    block()
    executors.append(os.getpid())
    goloop.run_threads(main, threads=4)


def signals_stay_pending_while_a_guest_polls() -> None:
    import goloop.guest

    calls = queue.SimpleQueue()

    async def main():
        await work()
        await asyncio.sleep(0.01)
        assert any(thread.name == "goloop-guest" for thread in threading.enumerate())
        check()

    run = goloop.guest.start(
        main(), run_sync_soon_threadsafe=calls.put, done_callback=lambda _: calls.put(None)
    )
    while (call := calls.get()) is not None:
        call()
    run.outcome.result()


def signals_stay_pending_while_a_thread_waits_for_a_child() -> None:
    def refuse(pid, flags=0):
        raise PermissionError

    os.pidfd_open = refuse

    async def main():
        await work()
        child = await asyncio.create_subprocess_exec("cat", stdin=subprocess.PIPE)
        assert any("waitpid" in thread.name for thread in threading.enumerate())
        check()
        child.stdin.close()
        assert await child.wait() == 0

    goloop.run(main())


def signals_stay_pending_while_a_process_answers_introspection() -> None:
    goloop.introspect()

    async def main():
        await work()
        assert any(thread.name == "goloop-introspect" for thread in threading.enumerate())
        check()

    goloop.run(main())


def signals_stay_pending_while_metrics_are_written() -> None:
    import goloop.prometheus

    async def main():
        await work()
        assert any(thread.name == "goloop-prometheus" for thread in threading.enumerate())
        check()

    with tempfile.TemporaryDirectory() as directory:
        goloop.prometheus.Collector(directory)
        goloop.run(main())


def signals_stay_pending_while_a_block_is_reported() -> None:
    import goloop.watchdog

    begun, release = threading.Event(), threading.Event()

    def subscriber(blocked):
        if not blocked.ended:
            begun.set()
            release.wait()

    async def main():
        await work()
        asyncio.get_running_loop().set_watchdog(0.01)
        await asyncio.sleep(0)
        assert begun.wait(60)
        check()
        release.set()

    goloop.watchdog.subscribe(subscriber)
    goloop.run(main())


def signals_blocked_by_the_starting_thread_stay_blocked_there_only() -> None:
    async def main():
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
        assert not before
        await work()
        assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == {signal.SIGUSR1}

    goloop.run(main())


def exceptions_leave_the_mask_of_the_starting_thread(raises_while: str) -> None:
    from goloop._internal.helper_threads import HelperThread

    class Interrupted(Exception):
        pass

    def interrupt(*_):
        raise Interrupted

    real = signal.pthread_sigmask

    def interrupted(how, mask):
        before = real(how, mask)
        if how == signal.SIG_BLOCK and mask:
            raise Interrupted
        return before

    start = interrupt
    if raises_while == "signals are blocked":
        signal.pthread_sigmask, start = interrupted, int
    real(signal.SIG_BLOCK, {signal.SIGUSR2})
    thread = HelperThread("goloop-test", int)
    thread._start = start
    try:
        thread.begin()
    except Interrupted:
        assert real(signal.SIG_BLOCK, ()) == {signal.SIGUSR2}
    else:
        raise AssertionError


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
