"""The scenarios of test_task_safety.py: `python task_safety_scenarios.py NAME` runs one."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import warnings

import goloop


def tasks_that_die() -> None:
    loop = None
    warnings.simplefilter("ignore")
    kept, seen = [], 0

    class Looks:
        __slots__ = ()

        def __del__(self):
            nonlocal seen
            seen += 1
            kept.extend(asyncio.all_tasks(loop))

    class Slotted(goloop.Task):
        __slots__ = ("looks",)

    class Finalized(goloop.Task):
        __slots__ = ("looks",)

        def __del__(self):
            pass

    class Resurrected(goloop.Task):
        __slots__ = ("looks",)

        def __del__(self):
            kept.append(self)

    class WithDict(goloop.Task):
        pass

    async def waits():
        await loop.create_future()

    def make(cls):
        # Only the caller has the task: it was never run, and its loop is closed.
        nonlocal loop
        loop = goloop.new_event_loop()
        loop.set_exception_handler(lambda loop, context: None)
        task = cls(waits(), loop=loop)
        loop.close()
        task.looks = Looks()
        return task

    classes = {each.__name__: each for each in (Slotted, Finalized, Resurrected, WithDict)}
    how, cls = sys.argv[2], classes[sys.argv[3]]
    for depth in (0, 3, 30, 60, 120, 300, 3000):
        task = make(cls)
        if how == "cycle":
            task.looks = [task, Looks()]
        # Objects that look go before the task and after it; deep down the trashcan has them all.
        nested = [Looks(), task, Looks()]
        task = None
        for _ in range(depth):
            nested = [nested]
        nested = None
        gc.collect()
        for task in kept:
            repr(task), task.done(), task.cancel()
        task = None
        kept.clear()
        gc.collect()
    assert seen
    print("alive")


def tasks_in_the_trashcan() -> None:
    warnings.simplefilter("ignore")
    loop = goloop.new_event_loop()

    class Task(goloop.Task):
        pass

    class Looks:
        __slots__ = ()

        def __del__(self):
            found.extend(asyncio.all_tasks(loop))
            counts.append(len(asyncio.all_tasks(loop)))

    async def waits():
        await asyncio.sleep(1000)

    found, counts = [], []
    for depth in (3, 60, 120, 3000, 20_000):
        loop = goloop.new_event_loop()
        loop.set_exception_handler(lambda loop, context: None)
        task = Task(waits(), loop=loop)
        loop.close()
        nested = [Looks(), task, Looks()]
        del task
        for _ in range(depth):
            nested = [nested]
        nested = None
        gc.collect()
        found.clear()
        gc.collect()
    print("alive", len(counts))


def future_without_a_loop() -> None:
    # asyncio.Future.__init__ in a thread without a loop clears the future and then fails, so
    # that it has no loop.
    warnings.simplefilter("ignore")
    loop = goloop.new_event_loop()
    loop.set_exception_handler(lambda loop, context: None)
    what, yielded = sys.argv[2:]

    def undo(future):
        def run():
            try:
                asyncio.Future.__init__(future)
            except RuntimeError:
                pass

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()

    class Yields:
        def __init__(self, value):
            self.value = value

        def __await__(self):
            yield self.value

    async def body():
        future = loop.create_future()
        values = {
            "none": Yields(None),
            "future": future,
            "other": Yields(7),
            "asyncio": asyncio.Future(loop=loop),
            "sleep": asyncio.sleep(0),
            "done": finished,
            "itself": task,
        }
        loop.call_soon(undo if what == "later" else int, task)
        if what == "task":
            undo(task)
        if what == "future" and isinstance(values[yielded], asyncio.Future):
            undo(values[yielded])
        await values[yielded]

    async def nothing():
        pass

    finished = loop.create_task(nothing())
    task = loop.create_task(body())
    task._log_destroy_pending = False
    loop.call_later(0.02, loop.stop)
    loop.run_forever()
    for call in (
        task.cancel,
        task.done,
        task.get_coro,
        lambda: repr(task),
        lambda: task.add_done_callback(print),
        lambda: task.remove_done_callback(print),
    ):
        try:
            call()
        except Exception:
            pass
    loop.call_soon(loop.stop)
    loop.run_forever()
    loop.close()
    print("alive")


def a_long_chain_of_tasks_does_not_overflow_the_stack() -> None:
    gc.disable()
    loop = goloop.new_event_loop()

    async def value(keep):
        return keep

    last = None
    for _ in range(200_000):
        last = loop.create_task(value(last))
        if _ % 1000 == 0:
            loop.call_soon(loop.stop)
            loop.run_forever()
    loop.call_soon(loop.stop)
    loop.run_forever()
    loop.close()
    last = None
    print("alive")


def write_to_the_list_of_callbacks_does_not_crash() -> None:
    loop = goloop.new_event_loop()
    loop.set_exception_handler(lambda loop, context: None)
    for wrong in (1, (), (print,), [1, 2], "ab", None):
        for finish in ("set_result", "remove_done_callback", "cancel"):
            future = goloop.Future(loop=loop)
            for callback in (print, len, repr):
                future.add_done_callback(callback)
            future.remove_done_callback(print)
            inner = asyncio.Future._callbacks.__get__(future)
            if isinstance(inner, list):
                inner.append(wrong)
            try:
                future.cancel() if finish == "cancel" else getattr(future, finish)(None)
            except RuntimeError:
                pass
            if isinstance(inner, list):
                inner.clear()
    loop.close()
    print("alive")


def reinitialising_a_future_during_collection_does_not_crash() -> None:
    warnings.simplefilter("ignore")

    async def waits(future):
        await future

    for which in range(20):
        loop = goloop.new_event_loop()
        loop.set_exception_handler(lambda loop, context: None)
        future = goloop.Future(loop=loop)
        task = loop.create_task(waits(future))
        task._log_destroy_pending = False
        loop.call_soon(loop.stop)
        loop.run_forever()
        for _ in range(3):
            future.add_done_callback(lambda future: None)
        left, armed = which, True

        def strike(phase, info, future=future, task=task):
            nonlocal left, armed
            if armed and phase == "start":
                left -= 1
                if left < 0:
                    armed = False
                    other = goloop.new_event_loop()
                    future.__init__(loop=other)
                    task.__init__(waits(future), loop=other)
                    task._log_destroy_pending = False
                    other.close()

        gc.callbacks.append(strike)
        gc.set_threshold(1, 1, 1)
        try:
            future.set_result(None)
            loop.call_soon(loop.stop)
            loop.run_forever()
        except RuntimeError:
            pass
        armed = False
        gc.set_threshold(700, 10, 10)
        gc.callbacks.remove(strike)
        loop.close()
    print("alive")


if __name__ == "__main__":
    globals()[sys.argv[1]]()
