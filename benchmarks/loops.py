"""The compared loops: those that `goloop compare` knows, and uvloop with other transports.

A factory is a ``module:function`` string, because it is resolved in the measuring
child process, under the measured interpreter.  If its import fails there, the loop is
listed with the error and its columns stay empty.
"""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.cases import PYTHON, Case
from goloop.operations.compare import loops
from goloop.operations.compare.loops import ASYNCIO


@dataclass(frozen=True)
class Loop(loops.Loop):
    """A competitor."""

    cases: tuple[str, ...] = ("full",)  # names, patterns, groups of cases it takes part in
    about: str = ""  # a few words about a rival, and its address, for the front page
    home: str = ""

    @property
    def distributions(self) -> tuple[str, ...]:
        """Return the distributions with recorded versions."""
        if self.name == ASYNCIO.name:
            return ()
        return (self.name,) if self.name != AIOFASTNET else (self.name, "uvloop")

    def takes_part(self, case: Case) -> bool:
        """Return true if the case is measured on this loop."""
        return any(case.fits(pattern) for pattern in self.cases)


AIOFASTNET = "aiofastnet"
_RIVALS = {
    "asyncio": ("CPython's own loop", "docs.python.org/3/library/asyncio.html"),
    "uvloop": ("in Cython, on libuv", "github.com/MagicStack/uvloop"),
    "zuvloop": ("in Zig, on libuv", "github.com/Kludex/zuvloop"),
    "blazio": ("in Zig, on zio", "github.com/lalinsky/blazio"),
    "rloop": ("in Rust", "github.com/gi0baro/rloop"),
    "rsloop": ("in Rust", "github.com/RustedBytes/rsloop"),
}
LOOPS = (
    *(
        Loop(loop.name, loop.factory, about=about, home=home and f"https://{home}")
        for loop in loops.KNOWN
        for about, home in [_RIVALS.get(loop.name, ("", ""))]
    ),
    # Cases of transports only: callbacks and tasks are uvloop's.
    Loop(
        AIOFASTNET,
        "benchmarks.factories:uvloop_with_aiofastnet",
        ("protocol", "buffered", "streams", "readline", "sock", "aiohttp", "uvicorn", "fastapi",
         "fastapi-h11", "fastapi-sync", "fastapi-asyncpg", "websockets", "clients", "churn", "tls",
         "unix", "broadcast", "fixed", "latency", "storm", "memory"),
        about="transports in Cython for any loop, here on uvloop",
        home="https://github.com/aio-libs/aiofastnet",
    ),
)  # fmt: skip

BY_NAME = {loop.name: loop for loop in LOOPS}

# Upper bounds that some cases measure in addition to the loops: servers without Python, and the
# Python without a loop.
CEILINGS = ("c-epoll", "c-uring", "gnet", PYTHON)
