"""The scenarios of test_watchdog.py: `python watchdog_scenarios.py NAME` runs one."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import re
import resource
import sys
import threading
import time
import warnings

import goloop
from goloop import watchdog


def keeps_the_gil():
    """Until the test closes its end of stdin."""

    class PollFD(ctypes.Structure):
        _fields_ = (("fd", ctypes.c_int), ("events", ctypes.c_short), ("revents", ctypes.c_short))

    ctypes.PyDLL(None).poll(ctypes.byref(PollFD(0, 1, 0)), 1, -1)


def searches():
    re.match("(a+)+$", "a" * 60 + "b")


async def c_function_is_named_while_it_keeps_the_gil() -> None:
    told = []
    watchdog.subscribe(lambda blocked: told.append(blocked.ended))

    asyncio.get_running_loop().set_watchdog(0.1)
    keeps_the_gil()
    while len(told) < 2:
        await asyncio.sleep(0.001)
    print(told)


async def held_gil_is_never_reported_without_a_gil() -> None:
    asyncio.get_running_loop().set_watchdog(0.1)
    keeps_the_gil()  # and the loop's lock


async def a_regular_expression_is_named_while_it_searches() -> None:
    asyncio.get_running_loop().set_watchdog(0.1)
    searches()


async def another_thread_that_keeps_the_gil_is_named() -> None:
    asyncio.get_running_loop().set_watchdog(0.1)
    thread = threading.Thread(target=keeps_the_gil)
    thread.start()
    while thread.is_alive():
        await asyncio.sleep(0)


async def a_loop_that_gets_no_gil_after_its_poll_is_blocked() -> None:
    def later():
        time.sleep(0.05)  # the loop is in its poll by then
        keeps_the_gil()

    asyncio.get_running_loop().set_watchdog(0.1)
    thread = threading.Thread(target=later)
    thread.start()
    while thread.is_alive():
        await asyncio.sleep(0.05)


async def threads_that_take_turns_hold_no_gil() -> None:
    logging.getLogger("goloop").addHandler(logging.NullHandler())
    logging.getLogger("goloop").propagate = False
    stop = []

    def spins():
        while not stop:
            pass

    loop = asyncio.get_running_loop()
    loop.set_watchdog(0.01)
    for _ in range(3):
        threading.Thread(target=spins).start()
    while loop.metrics().blocked_spells < 10:
        end = time.monotonic() + 0.2
        while time.monotonic() < end:
            pass
        await asyncio.sleep(0)
    stop.append(1)


async def failing_log_does_not_stop_further_reports() -> None:
    _, writer = os.pipe()
    logging.basicConfig(stream=os.fdopen(writer, "w"), level=logging.INFO)

    asyncio.get_running_loop().set_watchdog(0.5)  # a busy machine reaches the log by then
    while True:
        logging.getLogger("app").info("x" * 1000)
        await asyncio.sleep(0)


async def logged_blocks_are_not_repeated_on_stderr(limit: str) -> None:
    logging.getLogger("goloop").addHandler(logging.NullHandler())
    told = []
    watchdog.subscribe(told.append)

    asyncio.get_running_loop().set_watchdog(float(limit))
    while not told:
        pass
    time.sleep(float(limit) * 0.75)  # until after the moment at which stderr would have it


def stderr_gets_json_where_that_is_wanted() -> None:
    async def main():
        asyncio.get_running_loop().set_watchdog(0.1)
        keeps_the_gil()

    names = {"goloop": goloop}
    exec(compile("def quoted(x):\n    goloop.run(x)", 'a "b" \\ c.py', "exec"), names)
    names["quoted"](main())


def the_environment_sets_the_limit() -> None:
    asked = []

    def tell(blocked):
        asked.append(blocked.ended)

    watchdog.subscribe(tell)

    async def main():
        while not asked:
            pass
        while len(asked) < 2:
            await asyncio.sleep(0.001)

    goloop.run(main())
    print(asked)


def invalid_limit_gives_a_warning() -> None:
    goloop.run(asyncio.sleep(0))
    print("ran")


async def the_process_gives_up(what: str) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    def spins():
        while True:
            pass

    keeps_the_gil() if what == "keeps_the_gil" else spins()


async def a_process_that_was_stopped_is_not_blocked() -> None:
    told = []
    watchdog.subscribe(told.append)

    asyncio.get_running_loop().set_watchdog(1)
    print("ready", flush=True)
    # Stopped in the middle of a callback, as far as can be.
    end = time.monotonic() + 0.3
    while time.monotonic() < end:
        pass
    for _ in range(20):
        await asyncio.sleep(0.01)
    print(told)


def a_forked_child_has_a_watchdog_of_its_own() -> None:
    warnings.simplefilter("ignore")
    told = []
    watchdog.subscribe(lambda blocked: told.append((os.getpid(), blocked.serial, blocked.ended)))

    async def main():
        asyncio.get_running_loop().set_watchdog(0.1)
        before = len(told)
        while len(told) == before:
            pass
        while len(told) < before + 2:
            await asyncio.sleep(0.001)

    goloop.run(main())
    pid = os.fork()
    goloop.run(main())
    if pid == 0:
        assert told[2:] == [(os.getpid(), 1, False), (os.getpid(), 1, True)], told
        assert goloop.metrics().blocked_spells == 1
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert goloop.metrics().blocked_spells == 2
    print("well")


if __name__ == "__main__":
    scenario = globals()[sys.argv[1]](*sys.argv[2:])
    if scenario is not None:
        goloop.run(scenario)
