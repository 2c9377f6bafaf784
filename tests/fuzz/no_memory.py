"""Calls of the extension's entry points while an allocation fails, and then the next one.

    python tests/fuzz/no_memory.py [--types Loop ...] [--name write] [--leaks] [--first N]
                                   [--trail FILE]

Each entry of hostile.py's tables is called with ordinary arguments, again and again: first the
first allocation of the call fails, then the second, until the call has succeeded some times
without a failure; once with a single failure, and once with no more memory from there on.
"a turn" is one iteration of the loop, including the work of the object in it.
Each entry has a world of its own.  The invariants:

* the process lives, and the loop continues;
* no exception is lost, and none is set together with a result (SystemError shows both);
* with --leaks: a round of all this leaks no memory, which takes five times as long.
"""

from __future__ import annotations

import argparse
import array
import asyncio
import contextlib
import faulthandler
import functools
import gc
import itertools
import logging
import os
import sys
import sysconfig
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    TESTS = Path(__file__).resolve().parent.parent
    sys.path[:0] = [str(TESTS), str(TESTS / "support")]

from _testcapi import remove_mem_hooks, set_nomemory

from fuzz import hostile
from fuzz.crash_log import Trail
from fuzz.hostile import World

import goloop

SILENT = 60.0  # seconds: then a call hangs
ENOUGH = 4  # calls without a failure
MOST = 400  # allocations of one call
TURN = "a turn"  # besides the names of the tables

# Entries that are not called, with the reason.
SKIPPED = {
    **hostile.SKIPPED,
    "Loop.__del__": "is asyncio's",
}
FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
if FREE_THREADED:
    SKIPPED["Task.print_stack"] = "prints in Python, where 3.13t's PyList_New() crashes"
OLDER = sys.version_info[:2] in ((3, 12), (3, 13))
if OLDER and not FREE_THREADED:
    SKIPPED["SockOp.throw"] = "is Python's, where PyFunction_NewWithQualName() crashes"


def entries(kinds: list[str]) -> Iterator[hostile.Call]:
    """Each use of each entry."""
    for kind in kinds:
        for name, entry in sorted(hostile.table_of(kind).items()):
            if f"{kind}.{name}" in SKIPPED or isinstance(entry, hostile.PLAIN_DATA):
                continue
            if not hostile.is_entry(entry):
                continue
            uses = ("get", "set", "del") if hostile.is_field(entry) else ("call",)
            for how in uses:
                yield hostile.Call(kind, name, how, -1, "None", 0)
        yield hostile.Call(kind, TURN, "call", -1, "None", 0)


def prepared(call: hostile.Call, world: World, bare: bool) -> Callable[[], Any]:
    """Return the prepared call, so that only the entry itself allocates.

    `bare`: without arguments.
    """
    subject = world.subject
    if call.name == TURN:
        world.loop.stop()  # after one iteration
        return functools.partial(world.loop.run_forever)
    if call.how == "set":
        value = None
        with contextlib.suppress(Exception):
            value = getattr(subject, call.name)
        return functools.partial(setattr, subject, call.name, value)
    if call.how == "del":
        return functools.partial(delattr, subject, call.name)
    if call.how == "get":
        return functools.partial(getattr, subject, call.name)
    arguments = [] if bare else call.arguments(world)
    if call.name == "_run" and call.kind == "Loop":
        subject.stop()
    if call.name == "__new__":
        return functools.partial(type(subject).__new__, type(subject), *arguments)
    if call.name == "__init__" and call.kind != "Loop":
        world.subject = hostile.uninitialised(hostile.TYPES[call.kind])
        return functools.partial(world.subject.__init__, *arguments)
    entry = hostile.table_of(call.kind)[call.name]
    if isinstance(entry, staticmethod):
        entry = entry.__func__
    elif call.kind != "module":
        arguments.insert(0, subject)
    return functools.partial(entry, *arguments)


# Only one allocation fails there, for CPython itself does not live long without any: these warn,
# and PyErr_ResourceWarning() crashes; a turn runs Python code, whose errors find no end.
ONE_FAILURE = {"__del__", TURN}
if OLDER or FREE_THREADED:
    ONE_FAILURE.add("throw")  # warns of three arguments; PyErr_WarnEx() crashes, as by asyncio's
# A function of Python's, where CPython gets no memory for the frame of a traceback.
PYTHONS_OWN = "<function "
WAITS = frozenset({"SockOp", "coroutine", "FutureIter"})


def starved(function: Callable[[], Any], first: int, last: int) -> BaseException | None:
    """Run a call whose allocations fail from number `first` to before `last` (0: all), and also the
    first step of its result if that is awaitable; return the exception.

    All happens in one frame: CPython 3.11 loses an exception if a frame object can't be allocated.
    """
    error = None
    if first:
        set_nomemory(first, last)
    try:
        made = function()
        if type(made).__name__ in WAITS:
            made.send(None)
    except BaseException as told:
        error = told
    remove_mem_hooks()
    return error


class Runner:
    """Make the calls in sequence, and check their results."""

    def __init__(self, trail: Trail) -> None:
        self.trail = trail
        self.innocent = hostile.Innocent()
        self.problems: list[str] = []
        self.system_errors: list[str] = []
        self.bare: set[hostile.Call] = set()  # calls with unfit arguments
        self.faults = 0
        self.came: Counter[str] = Counter()
        sys.unraisablehook = self.unraisable

    def unraisable(self, told: Any) -> None:
        if isinstance(told.exc_value, SystemError):
            self.system_errors.append(repr(told.exc_value))

    def problem(self, call: object, text: str) -> None:
        self.problems.append(f"{call}: {text}")
        print(f"PROBLEM {call}: {text}", flush=True)

    def once(self, call: hostile.Call, first: int, last: int) -> bool:
        """Whether it went as without a failure."""
        where = f"{call} with allocation {first}{'' if last else ' and all behind it'} missing"
        faulthandler.dump_traceback_later(SILENT, exit=True)
        world = World(call.kind)
        try:
            function = prepared(call, world, call in self.bare)
            gc.collect()  # which empties the free lists, too
            error = starved(function, first, last)
            asyncio._set_running_loop(None)  # which run_forever() itself may have failed to do
            world.see(error)
            if isinstance(error, SystemError):
                traceback.print_exception(error)
            del function
            came = type(error).__name__ if error is not None else "success"
            del error
            hostile.quietly(hostile.provoke, world)
            if call.name not in ("_run", "_close_core", TURN):
                self.check_loop(where, world)
            for text in world.system_errors + self.system_errors:
                if PYTHONS_OWN not in text:
                    self.problem(where, text)
        finally:
            self.system_errors.clear()
            world.end()
        self.faults += 1
        self.came[came] += 1
        return came != ("MemoryError" if first else "TypeError")

    def check_loop(self, where: str, world: World) -> None:
        hostile_runner: Any = hostile.Runner.check_loop
        hostile_runner(self, where, world)

    def whole(self, number: int, call: hostile.Call) -> None:
        """Each allocation of the call, one after another."""
        if not self.once(call, 0, 0):
            self.bare.add(call)
        for persists in (False, True) if call.name not in ONE_FAILURE else (False,):
            good = 0
            for first in range(1, MOST):
                self.trail.note(f"{number} {call} {first} {persists}")
                good = good + 1 if self.once(call, first, 0 if persists else first + 1) else 0
                if good == ENOUGH:
                    break
        self.innocent.check()

    def leaks(self, number: int, call: hostile.Call) -> None:
        """Rounds of the same leave the same number of blocks.

        But for CPython's cache of methods: it has 4,096 places, is looked into by the address of a
        name, and keeps each name.  Names that C makes for a call fill it for hundreds of rounds.
        """
        least = 0
        for rounds in (3, 6):  # rarely more than the first three, which fill caches
            counts = array.array("q")  # a list would have new blocks for its numbers
            for _ in range(rounds + 1):
                self.whole(number, call)
                goloop.metrics()  # adds up the counts of closed loops
                gc.collect()
                sys._clear_type_cache()
                counts.append(sys.getallocatedblocks())
            least = min(after - before for before, after in itertools.pairwise(counts))
            if least <= 0:
                return
        self.problem(call, f"at least {least} blocks more in each round")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--types", nargs="+", choices=list(hostile.MAKERS))
    parser.add_argument("--name", default=None)
    parser.add_argument("--leaks", action="store_true", help="look for leaks of memory")
    parser.add_argument("--first", type=int, default=0, metavar="N")
    parser.add_argument("--trail", default=None)
    options = parser.parse_args()
    # The watchdog's report takes the GIL, for which PyGILState_Ensure() needs memory, and crashes.
    os.environ["GOLOOP_WATCHDOG"] = "0"
    logging.disable()
    warnings.simplefilter("ignore")
    faulthandler.enable()
    calls = list(entries(options.types or list(hostile.MAKERS)))
    runner = Runner(Trail(options.trail))
    gc.collect()
    gc.freeze()
    made = 0
    for number, call in enumerate(calls):
        if number < options.first or options.name not in (None, call.name):
            continue
        (runner.leaks if options.leaks else runner.whole)(number, call)
        made += 1
    faulthandler.cancel_dump_traceback_later()
    told = ", ".join(f"{count} {name}" for name, count in runner.came.most_common())
    print(f"{made} calls, {runner.faults} times, {len(runner.problems)} problems: {told}")
    return 1 if runner.problems else 0


if __name__ == "__main__":
    sys.exit(main())
