"""The scenarios of test_loop_safety.py: `python loop_safety_scenarios.py NAME` runs one."""

from __future__ import annotations

import contextlib
import gc
import sys
import threading
import time
import warnings

import goloop


def a_time_that_closes_the_loop_is_an_error() -> None:
    # asyncio does not convert it.
    class Closes:
        def __float__(self):
            loop.close()
            return 1.0

    loop = goloop.new_event_loop()
    try:
        loop.call_at(Closes(), print)
    except RuntimeError as exc:
        print(exc)


def debug_checks_that_close_the_loop_are_an_error() -> None:
    class Loop(goloop.Loop):
        def _check_callback(self, callback, method):
            self.close()

    loop = Loop()
    loop.set_debug(True)
    arguments = (print,) if sys.argv[2].startswith("call_soon") else (0, print)
    try:
        getattr(loop, sys.argv[2])(*arguments)
    except RuntimeError as exc:
        print(exc)


def collection_that_closes_the_loop_does_not_crash() -> None:
    warnings.simplefilter("ignore")

    async def nothing():
        pass

    entry, debug = sys.argv[2], sys.argv[3] == "True"
    code = compile(entry, "entry", "exec")
    for which in range(12):
        loop = goloop.new_event_loop()
        loop.set_debug(debug)
        loop.set_exception_handler(lambda loop, context: None)
        waiting = loop.create_future()
        waiting.add_done_callback(print)
        coro = nothing()
        left = which
        armed = False

        def strike(phase, info):
            nonlocal left, armed
            if armed and phase == "start":
                left -= 1
                if left < 0:
                    armed = False
                    loop.close()  # noqa: B023

        gc.callbacks.append(strike)
        gc.set_threshold(1, 1, 1)
        armed = True
        with contextlib.suppress(RuntimeError):
            exec(code)
        armed = False
        gc.set_threshold(700, 10, 10)
        gc.callbacks.remove(strike)
        coro.close()
        loop.close()
        waiting = coro = None
        gc.collect()
    print("alive")


def close_while_another_thread_schedules_does_not_crash() -> None:
    warnings.simplefilter("ignore")
    sys.setswitchinterval(1e-6)
    current, stop = None, False

    def use():
        while not stop:
            loop = current
            if loop is None:
                continue
            try:
                loop.call_later(100, int)
                loop.call_soon(int)
            except RuntimeError:
                pass

    thread = threading.Thread(target=use)
    thread.start()
    end = time.monotonic() + 3
    while time.monotonic() < end:
        loop = goloop.new_event_loop()
        loop.set_debug(True)
        current = loop
        for _ in range(300):
            pass
        loop.close()
    stop = True
    thread.join()
    print("alive")


if __name__ == "__main__":
    globals()[sys.argv[1]]()
