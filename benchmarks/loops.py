"""The loops that are compared: what each is called and how one is made.

A factory is a ``module:function`` string, because it is resolved in the child
process that measures, under the interpreter that is measured.  Where it does
not import there, the loop is listed with the error and its columns stay empty.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Loop:
    """One competitor."""

    name: str
    factory: str  # module:function, called without arguments
    distributions: tuple[str, ...]  # whose versions are recorded
    groups: frozenset[str] | None = None  # case groups it takes part in; None: all


LOOPS = (
    Loop("goloop", "goloop:new_event_loop", ("goloop",)),
    Loop("asyncio", "asyncio:new_event_loop", ()),
    Loop("uvloop", "uvloop:new_event_loop", ("uvloop",)),
    Loop("zuvloop", "zuvloop:new_event_loop", ("zuvloop",)),
    Loop("blazio", "blazio:new_event_loop", ("blazio",)),
    Loop("rloop", "rloop:new_event_loop", ("rloop",)),
    Loop("rsloop", "rsloop:new_event_loop", ("rsloop",)),
    # Transports only: its callbacks and tasks are uvloop's.
    Loop(
        "aiofastnet",
        "benchmarks.factories:uvloop_with_aiofastnet",
        ("aiofastnet", "uvloop"),
        frozenset({"protocol", "buffered", "streams", "readline", "sock", "aiohttp", "churn"}),
    ),
)

BY_NAME = {loop.name: loop for loop in LOOPS}

# Servers without Python, run beside the loops in the cases that they can serve.
CEILINGS = ("c-epoll", "gnet")
