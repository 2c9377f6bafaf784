"""The scenarios of test_finalization.py: `python finalization_scenarios.py NAME` runs one."""

from __future__ import annotations

import asyncio
import ctypes
import resource
import sys
import threading
import time
import types

import goloop


def a_loop_that_wakes_after_the_end_has_begun() -> None:
    """A loop in a daemon thread, which never gets the GIL again: its iteration lasts for ever.

    Its process has a C library that takes its time in an atexit handler (__cxa_atexit(3) calls
    sleep(3) with 1), or an object whose __del__ does.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    class Slow:
        def __del__(self, sleep=time.sleep):
            sleep(1)

    if sys.argv[2] == "c":
        libc = ctypes.CDLL(None)
        libc.__cxa_atexit(ctypes.cast(libc.sleep, ctypes.c_void_p), ctypes.c_void_p(1), None)
    else:
        module = types.ModuleType("module")
        module.slow = Slow()
        sys.modules["module"] = module
        del module

    running = threading.Event()

    async def main():
        running.set()
        while True:
            await asyncio.sleep(0.01)

    threading.Thread(target=goloop.run, args=(main(),), daemon=True).start()
    running.wait()
    print("ends", flush=True)


def daemon_threads_that_stop_the_world() -> None:
    """Python's end stops daemon threads for good.

    One of them must not have a lock then that the end needs, such as the lock of CPython that a
    stop of the world takes.
    """
    from goloop import _core

    async def suspended():
        pass

    coroutine = suspended()
    running = threading.Semaphore(0)

    def stop_world():
        _core._await_frames(coroutine)
        running.release()
        while True:
            _core._await_frames(coroutine)

    for _ in range(2):
        threading.Thread(target=stop_world, daemon=True).start()
    for _ in range(2):
        running.acquire()
    print("ends", flush=True)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
