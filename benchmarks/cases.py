"""The catalogue of cases: the measured operation, its unit, and the cost that it isolates.

The kind of a case determines the program that measures it:

* ``net``: a server process under the loop (serve.py), pinned to one core, and
  the load generator, pinned to another.  Its samples are load-generator results.
* ``client``: a client process under the loop (clients.py), pinned to one core, and a server
  without Python, pinned to another.  Its samples are of the same form: `server` is the process
  under the loop, `client` the other end.
* ``children``: one process under the loop (children.py) that starts children.  Its
  samples are of the same form.
* ``micro``: one process under the loop (micro.py) that times an operation of
  the loop itself.  Its samples are nanoseconds per operation.
* ``latency``: as ``net``, at a constant rate: a share of uvloop's peak rate in the same
  round.  The result is a latency.
* ``fixed``: as ``net``, at a constant rate, the same for every machine: `pace` messages a
  second.  The result is the server's CPU for a message, and latencies.
* ``memory``: as ``net``, with idle connections.  The result is the server's memory for each
  connection, in bytes.
* ``storm``: one process under the loop (storm.py) that serves TLS and runs a timer, and
  clients.  The result is the delay of the timer.
* ``loops``: several loops in one process, a thread and a core each, and the same with one:
  rows of a group that are measured in the same rounds.  Its program is threads.py, or the
  programs of ``net`` if it has a server.  Its samples have the same form.
* ``startup``: one process (startup.py) that imports the loop's package and runs
  an empty coroutine.  Its samples are milliseconds and KiB.

A case of the groups of SHARING has a second row with the same name and `-same`, in which both ends
share one core.

`all` names the cases that are measured by default, those of ``loops`` where an interpreter
has no GIL among them; `full` names every case.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any, Literal

Kind = Literal[
    "net", "client", "children", "micro", "startup", "latency", "fixed", "memory", "storm", "loops"
]
# The cores of the two ends of a row: one each, or both the same one.
Pinning = Literal["split", "same"]
PINNINGS = ("split", "same", "both")
# Groups whose cases are measured with either pinning, and the end of the second row's name.
SHARING = ("protocol", "streams", "unix", "clients")
SAME = "-same"
SIZES = {"1k": 1024, "100k": 100 * 1024}
MIB = 1024 * 1024
# asyncio's own Python in an operation, without a loop's part: a limit, in the cases that
# micro.LIMITS has.
PYTHON = "asyncio's Python"
PYTHON_IN = {"gather", "event-wake-1k", "event-wake-10k", "event-wake-100k"}
# Cases whose servers make and drop large blocks in each message, and so the rows of the
# table of the allocator as it comes.
ALLOCATES = {
    "protocol-1k-x100", "protocol-100k-x10", "buffered-100k-x10", "streams-1k-x100",
    "readline-1k-x100", "sock-1k-x100", "tls-1k-x100", "tls-100k-x10", "udp-512-x50",
}  # fmt: skip
# Cases that are measured only if they, or every case, are named.
RARE = {
    "protocol-1k-x20", "buffered-1k-x4", "streams-1k-x1", "streams-1k-x2", "streams-1k-x20",
    "sock-1k-x10", "aiohttp-x1", "uvicorn-x1", "uvicorn-x4",
}  # fmt: skip
# Messages a second and connections of the rows at a fixed rate.
PACES = {"100": 100, "1k": 1_000, "2k": 2_000, "10k": 10_000, "40k": 40_000}
FIXED_CONNECTIONS = (4, 10, 100)
# A process with more connections needs a higher limit of open files than the usual soft one.
MANY = 900


@dataclass(frozen=True)
class Case:
    """A row of the report."""

    name: str
    group: str
    kind: Kind
    title: str
    isolates: str
    unit: str
    ceilings: tuple[str, ...] = ()  # servers without Python, as upper bounds
    # net, latency, memory, storm and some of loops only
    server: str = ""  # a server of serve.py, or a client of clients.py
    # The server of real_servers.py that the row needs, or `echo`, the one in C; with `unix`, its
    # Unix socket is used.
    service: str = ""
    unix: bool = False
    pinning: Pinning = "split"
    mode: str = ""  # a mode of the load generator
    connections: int = 0
    size: int = 0
    packages: tuple[str, ...] = ()  # distributions that the server imports
    # the key of the sample with the result
    key: str = "rate"
    # latency only: the share of uvloop's peak rate
    share: float = 0
    # fixed only: messages a second over all connections
    pace: int = 0
    # loops only: the number of loops, and the cores that they and other threads use
    loops: int = 1
    cores: int = 1
    # A row whose best value is a target, not the smallest one (sleep accuracy).
    target: float | None = None

    @property
    def higher_is_better(self) -> bool:
        """Rates are better when higher, times and sizes when lower."""
        return self.kind in ("net", "client", "children", "loops")

    @property
    def rare(self) -> bool:
        """Return true if the case is measured only if it, or every case, is named."""
        return self.split in RARE

    @property
    def allocates(self) -> bool:
        """Return true if the table of the default allocator has the case."""
        return self.name in ALLOCATES

    @property
    def stays(self) -> bool:
        """Return true if the same server can serve several windows.

        A pipe ends with its client, and an earlier window changes the memory of connections.
        """
        paced = self.kind in ("latency", "fixed", "client")
        return paced or (self.kind == "net" and not self.server.startswith("pipe-"))

    @property
    def many_files(self) -> bool:
        """Return true if client and server need a higher limit of open files than usual."""
        return self.connections > MANY

    @property
    def needs_tls(self) -> bool:
        """Return true if the load generator must use TLS."""
        return self.mode.startswith("tls")

    def fits(self, pattern: str, *, free_threaded: bool = False) -> bool:
        """Return true if a pattern of the command line includes this case.

        A pattern for a row with split cores also fits the row of the same core.
        """
        if pattern == "all":
            return not self.rare and (free_threaded or self.kind != "loops")
        if pattern in (self.group, self.kind, "full"):
            return True
        return any(fnmatchcase(name, pattern) for name in {self.name, self.split})

    @property
    def split(self) -> str:
        """Return the name of the same row with split cores."""
        return self.name.removesuffix(SAME) if self.pinning == "same" else self.name


# ---- the catalogue -----------------------------------------------------------------------


def _each(
    name: str, group: str, numbers: Sequence[int], title: str, isolates: str, unit: str, **more: Any
) -> list[Case]:
    """Return a case of the network for each number of connections, which is {n} in the texts."""
    fields: dict[str, Any] = {"kind": "net", "server": group, "mode": "echo", **more}
    return [
        Case(
            name=name.format(n=n), group=group, title=title.format(n=n), isolates=isolates,
            unit=unit, connections=n, **fields,
        )
        for n in numbers
    ]  # fmt: skip


def _plain(
    kind: Kind, group: str, unit: str, rows: Sequence[tuple[str, str, str]], **more: Any
) -> list[Case]:
    """Return cases of name, title and isolated cost."""
    return [Case(name, group, kind, title, why, unit, **more) for name, title, why in rows]


EPOLL = ("c-epoll",)
HTTP = {"mode": "http", "size": 1}
FASTAPI = ("fastapi", "uvicorn", "httptools")
APPLICATIONS = {"aiohttp": ("aiohttp",), "uvicorn": ("uvicorn", "httptools")}


def _echoes() -> Iterator[Case]:
    few = (1, 2, 4, 10, 20, 100)  # few connections are most services' case
    for server, title, cells, isolates in (
        ("protocol", "Protocol echo", {"1k": few, "100k": (10,)},
         "the transport's receive and write path, with the least Python above it"),
        ("buffered", "BufferedProtocol echo", {"1k": (4, 10), "100k": (10,)},
         "receiving straight into a buffer of the protocol's"),
        ("streams", "streams echo, read()", {"1k": few},
         "StreamReader and StreamWriter: a future and a task step for each message"),
        ("readline", "streams echo, readline()", {"1k": (100,)},
         "as streams, plus the search for the line's end in the stream's buffer"),
        ("sock", "sock_recv / sock_sendall echo", {"1k": (4, 10, 100)},
         "readiness of plain sockets: no transport, one future an operation"),
    ):  # fmt: skip
        ceilings = ("c-epoll", "c-uring", "gnet") if server == "protocol" else EPOLL
        for label, numbers in cells.items():
            yield from _each(
                f"{server}-{label}-x{{n}}", server, numbers,
                f"{title}, {label[:-1]} KiB ×{{n}}", isolates, "messages/s",
                ceilings=ceilings, size=SIZES[label],
            )  # fmt: skip


def _applications() -> Iterator[Case]:
    for server, title, packages, numbers, isolates in (
        ("aiohttp", "aiohttp", APPLICATIONS["aiohttp"], (1, 4, 100),
         "a real application: HTTP parsing, a task, a timer and a response per request"),
        ("uvicorn", "uvicorn", APPLICATIONS["uvicorn"], (1, 4, 100),
         "an ASGI server: HTTP parsing by httptools, a task and a response per request"),
        ("fastapi", "FastAPI", FASTAPI, (4, 100),
         "a framework on the ASGI server: routing, validation and JSON beside the loop's part"),
        ("fastapi-h11", "FastAPI, h11", ("fastapi", "uvicorn", "h11"), (100,),
         "the same with uvicorn's parser in Python, as plain `pip install uvicorn` has it"),
        ("fastapi-sync", "FastAPI, def", FASTAPI, (100,),
         "the same with a handler that is a plain function: a thread runs it, and wakes the loop"),
    ):  # fmt: skip
        yield from _each(
            f"{server}-x{{n}}", server, numbers, f"{title} hello ×{{n}}", isolates, "requests/s",
            packages=packages, **HTTP,
        )  # fmt: skip
    yield from _each(
        "fastapi-asyncpg-x{n}", "fastapi-asyncpg", (100,), "FastAPI + asyncpg ×{n}",
        "a server that is a client too: each request queries PostgreSQL by a pool of ten",
        "requests/s", service="postgres", packages=(*FASTAPI, "asyncpg"), **HTTP,
    )  # fmt: skip
    yield from _each(
        "websockets-x{n}", "websockets", (50,), "websockets echo, 1 KiB ×{n}",
        "a server of WebSockets by the package websockets: a task and a queue a connection",
        "messages/s", mode="websocket", size=1024, packages=("websockets",),
    )  # fmt: skip


def _transports() -> Iterator[Case]:
    yield from _each(
        "churn-x{n}", "churn", (10, 100), "connect, echo 64 B, close ×{n}",
        "accepting, making and closing a transport", "connections/s", ceilings=EPOLL,
        server="protocol", mode="churn", size=64,
    )  # fmt: skip
    for label, numbers in (("1k", (4, 100)), ("100k", (10,))):
        yield from _each(
            f"tls-{label}-x{{n}}", "tls", numbers, f"TLS echo, {label[:-1]} KiB ×{{n}}",
            "encryption on the way of a Protocol's bytes, and the copies round it",
            "messages/s", mode="tls", size=SIZES[label],
        )  # fmt: skip
    yield from _each(
        "tls-churn-x{n}", "tls", (10,), "TLS connect, handshake, echo 64 B, close ×{n}",
        "a whole handshake (no resumption) and close_notify in both directions",
        "connections/s", mode="tls-churn", size=64,
    )  # fmt: skip
    yield from _each(
        "udp-512-x{n}", "udp", (4, 50, 100), "UDP echo, 512 B ×{n}",
        "datagrams: their receive and send path, with an address each",
        "datagrams/s", ceilings=EPOLL, mode="udp", size=512,
    )  # fmt: skip
    yield from _each(
        "unix-1k-x{n}", "unix", (4, 10, 100), "Unix socket echo, 1 KiB ×{n}",
        "the transport again, over a kernel path that costs a third of TCP's",
        "messages/s", ceilings=EPOLL, size=1024,
    )  # fmt: skip
    yield from _each(
        "broadcast-x{n}", "broadcast", (1_000, 5_000), "broadcast of 100 B to {n:,} connections",
        "writes to many transports in one callback, as in a chat or a feed of prices",
        "writes/s", ceilings=EPOLL, mode="broadcast", size=100,
    )  # fmt: skip
    for name, server, mode, title, isolates in (
        ("pipe-read", "pipe-read", "feed", "pipe, read, MiB",
         "connect_read_pipe on a pipe of 64 KiB: mostly, being woken"),
        ("pipe-read-wide", "pipe-read", "feed-wide", "pipe of 1 MiB, read, MiB",
         "the same where the pipe is never empty: reading in bulk"),
        ("pipe-write", "pipe-write", "drain", "pipe, write, MiB",
         "connect_write_pipe on a pipe of 64 KiB, with flow control"),
    ):  # fmt: skip
        yield from _each(
            name, "pipes", (1,), title, isolates, "MiB/s", ceilings=EPOLL, server=server,
            mode=mode, size=MIB,
        )  # fmt: skip


def _clients() -> Iterator[Case]:
    for client, service, packages, title, unit, numbers, sockets, isolates in (
        ("protocol", "echo", (), "Protocol clients, 1 KiB", "messages/s", (10, 100), (False, True),
         "the transport's path as a client, its peer a server in C that answers at once"),
        ("aiohttp", "nginx", ("aiohttp",), "aiohttp client of nginx", "requests/s", (10, 100),
         (False,), "a client of HTTP: its pool, a task, timers and a parser per request"),
        ("httpx", "nginx", ("httpx",), "httpx client of nginx", "requests/s", (20,), (False,),
         "a client of HTTP on anyio's streams and locks, with its parser in Python"),
        ("redis", "redis", ("redis",), "redis-py, get", "requests/s", (1, 10, 100), (False, True),
         "a client of Redis on asyncio's streams: a small message each way"),
        ("redis-pipeline", "redis", ("redis",), "redis-py, pipeline of 20", "pipelines/s", (10,),
         (False, True), "20 answers in one read, parsed one by one"),
        ("asyncpg", "postgres", ("asyncpg",), "asyncpg, prepared query", "queries/s", (1, 10, 60),
         (False,),
         "a client of PostgreSQL: a Protocol in Cython, its server a process a connection"),
    ):  # fmt: skip
        for unix in sockets:
            yield from _each(
                f"client-{client}{'-unix' * unix}-x{{n}}", "clients", numbers,
                f"{title}{', Unix' * unix} ×{{n}}", isolates, unit, kind="client", server=client,
                mode="", service=service, unix=unix, packages=packages,
            )  # fmt: skip


def _paced() -> Iterator[Case]:
    for server, packages in APPLICATIONS.items():
        for percent in (30, 60, 90):
            yield from _each(
                f"latency-{server}-{percent}", "latency", (100,),
                f"{server} hello ×{{n}} at {percent} %",
                "a request's waiting time when the server is not saturated, and when it almost is",
                "µs", kind="latency", server=server, mode="http-paced", packages=packages,
                key="p99_us", share=percent / 100,
            )  # fmt: skip
    for label, pace in PACES.items():
        yield from _each(
            f"fixed-{label}-x{{n}}", "fixed",
            FIXED_CONNECTIONS if pace >= 2_000 else FIXED_CONNECTIONS[:1],
            f"Protocol echo, 1 KiB ×{{n}}, {pace:,}/s",
            "a server that is not saturated: CPU for a message when the loop sleeps in between",
            "µs", kind="fixed", ceilings=EPOLL, server="protocol", mode="echo-paced", size=1024,
            key="server_us", pace=pace,
        )  # fmt: skip


def _held() -> Iterator[Case]:
    yield from _each(
        "timer-storm-x{n}", "storm", (200,), "1 ms timer, {n} TLS handshakes at once",
        "how long a handshake, or a turn full of them, keeps the loop from all others",
        "µs", kind="storm", server="", mode="tls-storm", size=64, key="p99_us",
    )  # fmt: skip
    yield from _each(
        "idle-memory", "memory", (10_000,), "an idle accepted connection, of {n:,}",
        "the transport, its buffers and the loop's data for it",
        "bytes", kind="memory", ceilings=EPOLL, server="protocol", mode="idle", size=64,
        key="bytes",
    )  # fmt: skip


CHILDREN = (
    ("spawn", "start /bin/true, wait", "starting a child and learning its return code"),
    ("spawn-x20", "start /bin/true ×20, wait",
     "many children: finding the waiter of an ended child"),
    ("communicate", "start /bin/cat, communicate 64 B", "a child with two pipes and a stream each"),
)  # fmt: skip
CALLBACKS = (
    ("call-soon-chain", "call_soon chain",
     "one turn with one callback: the fixed cost of a turn, its poll included"),
    ("call-soon-bulk", "call_soon, 10,000 at once",
     "one callback, with the turn's cost spread over many"),
    ("call-later-cancel", "call_later + cancel",
     "arming and disarming a timer that never fires: every timeout"),
    ("timers-firing", "timers armed and fired", "5,000 timers spread over 20 ms, each fires"),
    *(
        (f"timers-arm-{label}", f"arm {count} timers",
         "arming, and the turn that takes the timers over: the cost that grows with their number")
        for label, count in (("10k", "10,000"), ("100k", "100,000"), ("1m", "1,000,000"))
    ),
    ("threadsafe", "call_soon_threadsafe from a thread",
     "the wakeup, and the fight for the GIL between the two threads"),
    ("to-thread", "to_thread of a no-op",
     "a call in the executor's thread: posting it, and the wakeup with the result"),
    ("threadsafe-chain", "call_soon_threadsafe chain",
     "the same from the loop's own thread: the wakeup without a fight"),
)  # fmt: skip
TASKS = (
    ("sleep-0", "sleep(0)", "one task step and its way through the ready queue"),
    ("sleep-0-x1000", "1,000 tasks × sleep(0)",
     "task steps, with the turn's cost spread over many"),
    ("create-task", "create_task + await", "making, stepping, finishing and awaiting a task"),
    ("future-call-soon", "create_future + call_soon(set_result) + await",
     "a future, a callback and the waiter's wakeup"),
    ("gather", "gather of 5,000 no-ops", "tasks in bulk and gather's callbacks"),
    *(
        (f"event-wake-{label}", f"wake {count} tasks by one Event",
         "futures' callbacks and task steps in bulk, the Event's own Python beside it")
        for label, count in (("1k", "1,000"), ("10k", "10,000"), ("100k", "100,000"))
    ),
    ("event-ping-pong", "two tasks, two Events", "locks' futures and wakeups, there and back"),
    ("taskgroup", "TaskGroup of 100 tasks", "a task in a group"),
    ("queue", "Queue(100), producer and consumer", "an item through a bounded queue"),
    ("timeout", "async with timeout(60)", "a deadline that is not reached"),
    ("wait-for", "wait_for(no-op, 60)", "the same around an awaitable"),
)  # fmt: skip


def _operations() -> Iterator[Case]:
    for group, rows in (("callbacks", CALLBACKS), ("tasks", TASKS)):
        for case in _plain("micro", group, "ns", rows, key="ns"):
            yield replace(case, ceilings=(PYTHON,) * (case.name in PYTHON_IN))
    for label, seconds in (("200us", 0.0002), ("5ms", 0.005)):
        yield Case(
            f"sleep-{label}", "accuracy", "micro", f"sleep({seconds}), actual",
            "timer accuracy: the nearer to the requested time the better, never earlier",
            "µs", key="us", target=seconds * 1e6,
        )  # fmt: skip


def _several() -> Iterator[Case]:
    """Return the rows of several loops in one process, most of them with one loop and with two."""

    def each(name: str, title: str, unit: str, isolates: str, **more: Any) -> Iterator[Case]:
        for loops, words in ((1, "1 loop"), (2, "2 loops")):
            yield Case(
                f"loops-{name}-x{loops}", f"loops-{name}", "loops", f"{title}, {words}", isolates,
                unit, loops=loops, cores=loops, **more,
            )  # fmt: skip

    yield from each(
        "burn", "a callback that computes", "callbacks/s",
        "50 µs of Python and little of the loop: the limit of interpreter and machine",
    )  # fmt: skip
    yield from each("sleep", "sleep(0)", "steps/s", "a task's step and the turn round it")
    yield from each(
        "tasks", "create_task + await", "tasks/s", "making, stepping and finishing a task"
    )
    yield from each(
        "timers", "call_later, fired and cancelled", "timers/s",
        "a timer that fires, and one that is cancelled, with 2,000 armed",
    )  # fmt: skip
    yield from each(
        "echo", "Protocol echo, 1 KiB ×32, 50 µs of Python", "messages/s",
        "a server whose handler works, with a listening socket for each loop",
        server="burning", mode="echo", connections=32, size=1024,
    )  # fmt: skip
    yield Case(
        "loops-pingpong", "loops-pingpong", "loops",
        "call_soon_threadsafe there and back, 2 loops",
        "waking the other loop, one call under way at any time", "round trips/s", loops=2, cores=2,
    )  # fmt: skip
    yield Case(
        "loops-flood", "loops-flood", "loops",
        "call_soon_threadsafe from a thread without one, 1 loop",
        "posting and serving at once: how the two threads keep each other waiting", "calls/s",
        loops=1, cores=2,
    )  # fmt: skip


def _catalogue() -> Iterator[Case]:
    shared = [*_echoes(), *_applications(), *_transports(), *_clients()]
    yield from shared
    for case in shared:
        if case.group in SHARING:
            yield replace(
                case, name=case.name + SAME, title=f"{case.title}, same core", pinning="same"
            )
    yield from _paced()
    yield from _held()
    yield from _plain("children", "processes", "children/s", CHILDREN)
    yield from _operations()
    yield from _several()
    yield Case(
        "startup-time", "startup", "startup", "interpreter up to first loop",
        "import, library loading, first loop; interpreter start excluded", "ms", key="ms",
    )  # fmt: skip
    yield Case(
        "startup-memory", "startup", "startup", "resident after first loop",
        "the cost of the loop's package for every process that uses it", "KiB", key="kib",
    )  # fmt: skip


CASES = tuple(_catalogue())
BY_NAME = {case.name: case for case in CASES}


def select(
    patterns: Sequence[str], *, free_threaded: bool = False, pinning: str = "both"
) -> list[Case]:
    """Return the cases whose name, group or kind fits a pattern, in catalogue order.

    A word may have several patterns, separated by commas.  The meaning of `all` depends on
    the interpreter.  `pinning` selects the rows with split cores, those of the same core, or both.
    Raises ValueError for a pattern that fits nothing.
    """
    chosen: set[str] = set()
    pinned = [case for case in CASES if pinning in ("both", case.pinning)]
    for pattern in ",".join(patterns).split(","):
        fitting = {case.name for case in pinned if case.fits(pattern, free_threaded=free_threaded)}
        if not fitting:
            rows = "" if pinning == "both" else f" with the pinning {pinning!r}"
            raise ValueError(f"no case{rows} is called {pattern!r}; see: python -m benchmarks list")
        chosen |= fitting
    return [case for case in CASES if case.name in chosen]
