"""Python ends, and the process lives on: no thread of goloop's uses freed objects."""

from __future__ import annotations

import os

import ended
import exits
import pytest

from goloop import _core

PATIENCE = 60.0

pytestmark = pytest.mark.skipif(
    os.environ.get("GOLOOP_TEST_LOOP") == "asyncio", reason="asyncio has no threads of its own"
)

# A loop in a daemon thread wakes after Python's end has begun, and never gets the GIL again: its
# iteration lasts for ever.  Its process has a C library that takes its time in an atexit handler
# (__cxa_atexit(3) calls sleep(3) with 1), or an object whose __del__ does.
PROGRAM = """
import asyncio, ctypes, resource, sys, threading, time, types
import goloop
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

class Slow:
    def __del__(self, sleep=time.sleep):
        sleep(1)

if sys.argv[1] == "c":
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
"""


@pytest.mark.parametrize("slow", ["c", "python"])
@pytest.mark.parametrize("gives_up", ["0", "0.1"])
def test_a_loop_that_python_s_end_has_stopped_is_not_blocked(slow: str, gives_up: str) -> None:
    environ = {"GOLOOP_WATCHDOG": "0.05", "GOLOOP_WATCHDOG_ABORT": gives_up}
    done = ended.python("-c", PROGRAM, slow, **environ)
    assert (done.returncode, done.stdout) == (0, "ends\n")


@pytest.mark.parametrize("seed", range(1000, 1008))
def test_a_process_ends_well_while_its_daemon_threads_run_loops(seed: int) -> None:
    """A part of `python tests/runtime/exits.py 200`."""
    ended = exits.ends(seed)
    assert ended.well, str(ended)


# Python's end stops daemon threads for good.  One of them must not have a lock then that the end
# needs, such as the lock of CPython that a stop of the world takes.
STOPS_WORLD = """
import threading
from goloop import _core

async def suspended(): pass

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
"""


@pytest.mark.skipif(
    not hasattr(_core, "_await_frames"),
    reason="with a GIL, and from 3.14 on, goloop reads stacks without a stop of the world",
)
def test_python_ends_while_daemon_threads_stop_the_world() -> None:
    done = ended.python("-W", "ignore", "-c", STOPS_WORLD, limit=30)
    assert (done.returncode, done.stdout) == (0, "ends\n")
