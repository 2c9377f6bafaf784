"""Random calls and attribute writes on every object of the extension: seeded.

    python tests/fuzz/calls.py [--seed 1] [--steps 2000 | --seconds 5] [--gc 1] [--trail FILE]

Some objects of every type live on one loop; each step calls one of their methods, or
writes or deletes one of their attributes, with ordinary and hostile values and with each
other, from a callback of the loop or outside it.  From time to time the loop turns, is
closed, and all objects are made again.  Nothing may crash, the loop continues or is closed,
no SystemError is raised, and another loop's connection is not disturbed.

The values, the actions and the tables are those of tests/fuzz/hostile.py.  When the interpreter
dies, the trail has the last calls.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import gc
import logging
import random
import sys
import time
import warnings
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    TESTS = Path(__file__).resolve().parent.parent
    sys.path[:0] = [str(TESTS), str(TESTS / "support")]

import hostile
import tls_tools
from fuzz.crash_log import Trail

# Methods that would end the run, not the process: closing the loop is an action of its own.
KEPT = {
    "Loop._close_core", "Loop._run", "Loop.__init__", "Loop._stopping", "Loop._closed",
    "Loop._hosted",
}  # fmt: skip


class Fuzzer:
    """The current objects, and the actions on them."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.seed = options.seed
        self.random = random.Random(options.seed)
        self.trail = Trail(options.trail)
        self.runner = hostile.Runner(self.trail)
        self.world: Any = None
        self.objects: list[tuple[str, Any]] = []
        self.entries = {
            kind: [name for name, entry in sorted(hostile.table_of(kind).items())
                   if hostile.is_entry(entry) and f"{kind}.{name}" not in hostile.SKIPPED
                   and f"{kind}.{name}" not in KEPT and name != "__del__"]
            for kind in hostile.MAKERS
        }  # fmt: skip

    def begin(self) -> None:
        """A loop with one object of each type, or two."""
        faulthandler.dump_traceback_later(hostile.SILENT, exit=True)
        kinds = list(hostile.MAKERS)
        self.world = hostile.World("Loop")
        self.objects = [("Loop", self.world.loop)]
        for kind in self.random.sample(kinds, 8):
            with contextlib.suppress(Exception):
                self.objects.append((kind, hostile.MAKERS[kind](self.world)))

    def end(self) -> None:
        self.objects.clear()
        self.world.end()
        self.world = None
        gc.collect()
        self.runner.innocent.check()

    def value(self) -> Any:
        """An argument: hostile, at an edge, or one of the objects."""
        drawn = self.random.random()
        if drawn < 0.15:
            return self.random.choice(self.objects)[1]
        if drawn < 0.4:
            name = self.random.choice(list(hostile.EDGES))
        else:
            name = self.random.choice(list(hostile.VALUES))
        return hostile.hostile(self.world, name, self.random.choice(hostile.ACTIONS))

    def arguments(self, kind: str, name: str) -> list[Any]:
        plain = hostile.PLAUSIBLE.get(f"{kind}.{name}", hostile.PLAUSIBLE.get(name))
        if plain is None or self.random.random() < 0.1:
            return [self.value() for _ in range(self.random.randrange(4))]
        call = hostile.Call(kind, name, "call", -1, "None", 0)
        made = call.arguments(self.world)
        for at in range(len(made)):
            if self.random.random() < 0.35:
                made[at] = self.value()
        return made[: self.random.choice([len(made)] * 4 + [0, 1, 2])]

    def step(self) -> None:
        kind, subject = self.random.choice(self.objects)
        name = self.random.choice(self.entries[kind])
        entry = hostile.table_of(kind)[name]
        drawn = self.random.random()
        self.world.subject, self.world.kind, self.world.fired = subject, kind, 0
        if not hostile.is_field(entry):
            made = self.arguments(kind, name)
            if name == "remove_done_callback":
                hostile.quietly(subject.add_done_callback, self.value())
            self.trail.note(f"{kind}.{name}({', '.join(type(each).__name__ for each in made)})")
            self.call(kind, name, subject, entry, made)
        elif drawn < 0.5:
            made = self.value()
            self.trail.note(f"{kind}.{name} = {type(made).__name__}")
            setattr(subject, name, made)
        elif drawn < 0.6:
            self.trail.note(f"del {kind}.{name}")
            delattr(subject, name)
        else:
            self.trail.note(f"{kind}.{name}")
            repr(getattr(subject, name))

    def call(self, kind: str, name: str, subject: Any, entry: Any, made: list[Any]) -> None:
        world = self.world
        if isinstance(entry, staticmethod):
            entry = entry.__func__
            world.again = lambda: entry(*made)
        elif kind == "module" or name == "__new__":
            entry = getattr(subject, name) if name != "__new__" else type(subject).__new__
            made = [type(subject), *made] if name == "__new__" else made
            world.again = lambda: entry(*made)
        else:
            made = [subject, *made]
            world.again = lambda: entry(*made)
        result = entry(*made)
        if type(result).__name__ in self.entries and len(self.objects) < 20:
            self.objects.append((type(result).__name__, result))
        else:
            hostile.use_result(world, result)

    def careful(self) -> None:
        """Make a step; only unexpected exceptions leave it."""
        try:
            self.step()
        except hostile.KNOWN:
            pass
        except (Exception, SystemError) as error:
            self.runner.problem(f"seed {self.seed}", repr(error))

    def life(self, steps: int) -> None:
        """Some steps on one set of objects."""
        self.begin()
        loop = self.world.loop
        for _ in range(steps):
            if self.random.random() < 0.5 or loop.is_closed() or loop.is_running():
                self.careful()
            else:
                hostile.quietly(loop.call_soon, self.careful)
            if self.random.random() < 0.2:
                self.trail.note("turns")
                self.world.turns(1)
                for peer in self.world.peers[-2:]:
                    hostile.quietly(getattr(peer, "send", repr), b"to be read")
            if len(self.objects) > 3 and self.random.random() < 0.03:
                del self.objects[self.random.randrange(1, len(self.objects))]
            if self.random.random() < 0.004:
                self.trail.note("loop.close()")
                hostile.quietly(loop.close)
        self.runner.check_loop(f"seed {self.seed}", self.world)
        for error in self.world.system_errors + self.runner.seen_system_errors:
            self.runner.problem(f"seed {self.seed}", error)
        self.runner.seen_system_errors.clear()
        self.end()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=None)
    parser.add_argument("--seconds", type=float, default=None)
    parser.add_argument("--loop", choices=["goloop"], default="goloop")
    parser.add_argument("--gc", type=int, default=0, help="collect at each allocation")
    parser.add_argument("--trail", default=None)
    options = parser.parse_args()
    wanted = options.steps or (1 << 60 if options.seconds else 2000)
    deadline = time.monotonic() + (options.seconds or 1e9)
    logging.disable()
    warnings.simplefilter("ignore")
    tls_tools.identity()
    faulthandler.enable()
    fuzzer = Fuzzer(options)
    gc.collect()
    gc.freeze()
    if options.gc:
        gc.set_threshold(1, 1, 1)
    count = 0
    while count < wanted and time.monotonic() < deadline:
        fuzzer.life(100)
        count += 100
    faulthandler.cancel_dump_traceback_later()
    problems = fuzzer.runner.problems
    print(f"seed {options.seed}: {count} calls, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
