"""The scenarios of test_signal_stack.py: `python signal_stack_scenarios.py NAME` runs one."""

from __future__ import annotations

import asyncio
import ctypes
import faulthandler
import gc
import mmap
import os
import signal
import subprocess
import sys
import threading
import warnings

LOOP = sys.argv[2]


def new_loop():
    if LOOP == "asyncio":
        return asyncio.SelectorEventLoop()
    import goloop

    return goloop.new_event_loop()


# Signals that can have a handler; 32 and 33 are libc's own, SIGCONT discards others.
KINDS = sorted(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCONT, 32, 33})


class Stack(ctypes.Structure):
    _fields_ = [("sp", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t)]


libc = ctypes.CDLL(None, use_errno=True)
DISABLED = 2


def stack():
    """The alternate signal stack of this thread: None or its address and size."""
    now = Stack()
    assert libc.sigaltstack(None, ctypes.byref(now)) == 0
    return None if now.flags & DISABLED else (now.sp, now.size)


def burst():
    """All kinds of signals are pending for this thread, and come in one moment."""
    signal.pthread_sigmask(signal.SIG_BLOCK, KINDS)
    for kind in KINDS:
        signal.pthread_kill(threading.get_ident(), kind)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, KINDS)


# Memory that is a signal stack until the process ends.
kept = []


async def nothing():
    pass


def in_thread(function):
    failed = []

    def body():
        try:
            function()
        except BaseException as exc:
            failed.append(exc)

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]


def all_signals_at_once_from_another_process_are_handled() -> None:
    seen = set()
    # SIGCONT discards those that stop a process.
    mine = set(KINDS) - {signal.SIGCHLD, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU}

    async def main():
        done = asyncio.Event()
        for kind in mine:

            def handler(kind=kind):
                seen.add(kind)
                if len(seen) == len(mine):
                    done.set()

            loop.add_signal_handler(kind, handler)
        me = os.getpid()
        script = f"kill -STOP {me};" + "".join(f"kill -{kind} {me};" for kind in mine)
        process = subprocess.Popen(["/bin/sh", "-c", script + f"kill -CONT {me}"])
        await done.wait()
        assert process.wait() == 0

    loop = new_loop()
    loop.run_until_complete(main())
    loop.close()


def all_kinds_at_once_in_a_callback_are_handled(thread: str) -> None:
    seen = []
    for kind in KINDS:
        signal.signal(kind, lambda kind, frame: seen.append(kind))

    async def main():
        for _ in range(3):
            burst()
            await asyncio.sleep(0)

    def body():
        loop = new_loop()
        loop.run_until_complete(main())
        loop.close()
        if thread == "True":
            burst()

    (in_thread if thread == "True" else lambda f: f())(body)
    assert set(seen) == set(KINDS), set(KINDS) - set(seen)


def all_signals_at_once_are_handled_with_faulthandler() -> None:
    for kind in KINDS:
        signal.signal(kind, lambda kind, frame: None)
    faulthandler.enable()
    for kind in (signal.SIGSEGV, signal.SIGFPE, signal.SIGABRT, signal.SIGBUS, signal.SIGILL):
        KINDS.remove(kind)
    own = stack()

    async def main():
        burst()

    loop = new_loop()
    loop.run_until_complete(main())
    assert stack() == own
    loop.close()
    assert stack() == own


def the_threads_stack_is_as_before(size: str, thread: str) -> None:
    server = None
    memory = mmap.mmap(-1, int(size)) if int(size) else None

    def prepare():
        if memory is None:
            return stack()
        kept.append(memory)
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        assert libc.sigaltstack(ctypes.byref(Stack(address, 0, len(memory))), None) == 0
        return address, len(memory)

    async def main():
        _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writers.append(writer)

    async def serve():
        return await asyncio.start_server(lambda r, w: writers.append(w), "127.0.0.1", 0)

    async def stops():
        raise KeyboardInterrupt

    async def leaves():
        asyncio.get_running_loop().stop()

    def body():
        nonlocal server
        before = prepare()
        assert stack() == before
        loop = new_loop()
        assert stack() == before, "after __init__"
        server = loop.run_until_complete(serve())
        loop.run_until_complete(main())
        assert stack() == before, "after a run"
        for leave in (stops, leaves):
            try:
                loop.run_until_complete(leave())
            except (KeyboardInterrupt, RuntimeError):
                pass
            assert stack() == before, leave
        loop.call_soon(loop.stop)
        loop.run_forever()
        for writer in writers:
            writer.write(b"x" * 100_000)
            writer.transport.abort()
        server.close()
        assert stack() == before, "after calls outside of a run"
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
        assert stack() == before, "after close()"

    writers = []
    (in_thread if thread == "True" else lambda f: f())(body)


def loop_collected_by_another_thread_restores_the_signal_stack() -> None:
    warnings.simplefilter("ignore")
    loop = new_loop()
    loop.myself = loop
    loop.run_until_complete(nothing())
    del loop

    def body():
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD, signal.SIGPROF])
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, [])
        gc.collect()
        assert stack() is None
        assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == mask

    in_thread(body)


def a_stack_that_faulthandler_sets_in_a_loop_stays() -> None:
    async def main():
        inside = stack()
        faulthandler.enable()
        return stack() if stack() != inside else own

    own = stack()
    loop = new_loop()
    own = loop.run_until_complete(main())
    assert own is not None and stack() == own
    loop.run_until_complete(nothing())
    loop.close()
    assert stack() == own


def a_child_forked_in_a_loop_handles_all_kinds_at_once() -> None:
    for kind in KINDS:
        signal.signal(kind, lambda kind, frame: None)

    async def main():
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                asyncio.events._set_running_loop(None)
                burst()
                child = new_loop()
                child.run_until_complete(nothing())
                child.close()
                code = 0
            finally:
                os._exit(code)
        while True:
            try:
                return os.waitpid(pid, 0)[1]
            except InterruptedError:
                pass

    loop = new_loop()
    assert loop.run_until_complete(main()) == 0
    loop.close()


def stacks_are_given_back() -> None:
    def size():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[0]) * mmap.PAGESIZE

    def body():
        loop = new_loop()
        loop.run_until_complete(asyncio.sleep(0.001))
        loop.close()

    def together():
        barrier = threading.Barrier(12)

        async def meet():
            barrier.wait()

        def body():
            loop = new_loop()
            loop.run_until_complete(meet())
            loop.close()

        threads = [threading.Thread(target=body) for _ in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    for _ in range(3):
        together()
    with open("/proc/self/maps") as file:
        before = len(file.readlines())
    for _ in range(20):
        together()
    with open("/proc/self/maps") as file:
        after = len(file.readlines())
    assert after < before + 60, (before, after)  # 240 stacks are 480 lines


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[3:])
