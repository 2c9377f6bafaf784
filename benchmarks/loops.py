"""The compared loops: their names and factories.

A factory is a ``module:function`` string, because it is resolved in the measuring
child process, under the measured interpreter.  If its import fails there, the loop is
listed with the error and its columns stay empty.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from benchmarks.cases import PYTHON, Case


@dataclass(frozen=True)
class Loop:
    """A competitor."""

    name: str
    factory: str  # module:function, called without arguments
    distributions: tuple[str, ...]  # distributions with recorded versions
    cases: tuple[str, ...] = ("full",)  # names, patterns, groups of cases it takes part in
    environment: dict[str, str] = field(default_factory=dict)  # beside the usual one
    # The name of the loop of which this one is a variant with other settings.  A variant is
    # not a peer, and has a table of its own.
    variant_of: str = ""
    about: str = ""  # a few words about a rival, and its address, for the front page
    home: str = ""

    def takes_part(self, case: Case) -> bool:
        """Return true if the case is measured on this loop."""
        return any(case.fits(pattern) for pattern in self.cases)


LOOPS = (
    Loop("goloop", "goloop:new_event_loop", ("goloop",)),
    Loop(
        "asyncio", "asyncio:new_event_loop", (),
        about="CPython's own loop", home="https://docs.python.org/3/library/asyncio.html",
    ),
    *(
        Loop(name, f"{name}:new_event_loop", (name,), about=about, home=f"https://github.com/{home}")
        for name, about, home in (
            ("uvloop", "in Cython, on libuv", "MagicStack/uvloop"),
            ("zuvloop", "in Zig, on libuv", "Kludex/zuvloop"),
            ("blazio", "in Zig, on zio", "lalinsky/blazio"),
            ("rloop", "in Rust", "gi0baro/rloop"),
            ("rsloop", "in Rust", "RustedBytes/rsloop"),
        )
    ),
    # Cases of transports only: callbacks and tasks are uvloop's.
    Loop(
        "aiofastnet",
        "benchmarks.factories:uvloop_with_aiofastnet",
        ("aiofastnet", "uvloop"),
        ("protocol", "buffered", "streams", "readline", "sock", "aiohttp", "uvicorn", "fastapi",
         "fastapi-h11", "fastapi-sync", "fastapi-asyncpg", "websockets", "clients", "churn", "tls",
         "unix", "broadcast", "fixed", "latency", "storm", "memory"),
        about="transports in Cython for any loop, here on uvloop",
        home="https://github.com/aio-libs/aiofastnet",
    ),
    # Shows the effect of goloop's own tasks: the same loop with asyncio's tasks.
    Loop(
        "goloop-stdlib-tasks",
        "goloop:new_event_loop",
        ("goloop",),
        ("streams-1k-x100", "aiohttp-x100", "uvicorn-x100"),
        {"GOLOOP_TASKS": "stdlib"},
        variant_of="goloop",
    ),
    # Shows the effect of busy polling before a sleep.
    Loop(
        "goloop-busy-poll",
        "goloop:new_event_loop",
        ("goloop",),
        ("protocol-1k-x1", "protocol-1k-x4", "streams-1k-x4", "aiohttp-x4", "fixed-2k-x4",
         "fixed-10k-x4", "fixed-10k-x10"),
        {"GOLOOP_BUSY_POLL": "50us"},
        variant_of="goloop",
    ),
    # Shows the effect of goloop's own transports: the same loop with aiofastnet's, on add_reader.
    Loop(
        "goloop-aiofastnet",
        "benchmarks.factories:goloop_with_aiofastnet",
        ("goloop", "aiofastnet"),
        ("protocol-1k-x10", "protocol-1k-x100", "protocol-100k-x10", "buffered-1k-x10",
         "buffered-100k-x10", "tls-1k-x100", "tls-100k-x10", "aiohttp-x100"),
        variant_of="goloop",
    ),
)  # fmt: skip

BY_NAME = {loop.name: loop for loop in LOOPS}

# Upper bounds that some cases measure in addition to the loops: servers without Python, and the
# Python without a loop.
CEILINGS = ("c-epoll", "c-uring", "gnet", PYTHON)
