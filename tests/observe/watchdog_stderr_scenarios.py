"""The scenarios of test_watchdog_stderr.py: `python watchdog_stderr_scenarios.py NAME` runs one."""

from __future__ import annotations

import ctypes
import logging
import os
import resource
import sys

import goloop

resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
logging.disable(logging.CRITICAL)


def keeps_the_gil(milliseconds, deep=40):
    """Is on the stack many times, so that a few reports are much text."""
    if deep:
        keeps_the_gil(milliseconds, deep - 1)
    else:
        ctypes.PyDLL(None).usleep(milliseconds * 1000)


def block(loop, milliseconds):
    loop.call_soon(keeps_the_gil, milliseconds)
    loop.call_soon(loop.stop)
    loop.run_forever()


loop = goloop.new_event_loop()


def close() -> None:
    loop.set_watchdog(0.05)
    block(loop, 400)
    loop.close()
    goloop.new_event_loop().close()
    os.write(1, b"closed")
    os._exit(0)  # logging would wait for stderr at exit


def abort() -> None:
    loop.set_watchdog(0.05, abort_after=0.2)
    block(loop, 3_600_000)


def many_blocks() -> None:
    loop.set_watchdog(0.01)
    for _ in range(int(sys.argv[2])):
        block(loop, 150)
    print("blocked", flush=True)
    while sys.stdin.readline():
        block(loop, 150)
    os._exit(0)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
