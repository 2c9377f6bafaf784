"""Programs of everyday use leak no descriptor, object, block or memory.

Every scenario is one round of an operation that a program repeats thousands of times.  The
suites run each of them once.  `make check CHECKS=leaks` sets GOLOOP_TEST_LEAK_ROUNDS: the rounds
then run in four quarters after a warm-up, and the process is measured after each.  Caches, free
lists and thread pools grow now and then; a leak grows in every quarter.  So the test fails if
descriptors, objects of the collector, blocks of Python's allocator or resident memory have grown
in all four quarters, by more than LIMITS.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from protocols import Echo

import goloop

pytestmark = [
    pytest.mark.goloop_only("the leaks of asyncio's loop are CPython's"),
    pytest.mark.timeout(900),
]

ROUNDS = int(os.environ.get("GOLOOP_TEST_LEAK_ROUNDS", "0"))
DEBUG = os.environ.get("PYTHONASYNCIODEBUG") == "1"

Round = Callable[[], Awaitable[None]]


# ---- scenarios: one round each, on a running loop ----------------------------------


async def streams() -> None:
    """A server, a connection to it by streams, and both closed."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readline())
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(b"x" * 1000 + b"\n")
        assert len(await reader.readline()) == 1001
        assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()


async def stream_readers() -> None:
    """Large receives, a pause, a cancelled read, a replaced method, and a reader that is gone."""
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=ours, limit=1000)
    _, sender = await asyncio.open_connection(sock=theirs)
    for _ in range(3):
        sender.write(b"x" * 100_000)
        assert len(await reader.readexactly(100_000)) == 100_000
    waiting = asyncio.ensure_future(reader.read(1))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    sender.write(b"y")
    assert await reader.read(10) == b"y"
    reader.feed_data = lambda data: None  # type: ignore[method-assign]
    sender.write(b"to the replaced method")
    await asyncio.sleep(0.001)
    del reader, writer._reader  # type: ignore[attr-defined]
    sender.write(b"dropped")
    await asyncio.sleep(0.001)
    for each in (sender, writer):
        each.close()
        await each.wait_closed()


async def protocols() -> None:
    """A connection by protocols; the client's end is aborted."""
    loop = asyncio.get_running_loop()
    came = loop.create_future()
    lost = loop.create_future()

    class Client(asyncio.Protocol):
        def data_received(self, data: bytes) -> None:
            came.set_result(data)

        def connection_lost(self, exc: Exception | None) -> None:
            lost.set_result(exc)

    server = await loop.create_server(Echo, "127.0.0.1", 0)
    address = server.sockets[0].getsockname()
    transport, _ = await loop.create_connection(Client, *address)
    transport.write(b"hello")
    assert await came == b"hello"
    transport.abort()
    await lost
    server.close()
    await server.wait_closed()


async def datagrams() -> None:
    """Two endpoints that exchange data, are paused, receive an error, and are closed."""
    loop = asyncio.get_running_loop()

    server: Any

    class Talker(asyncio.DatagramProtocol):
        def __init__(self) -> None:
            self.came: asyncio.Queue[bytes | Exception] = asyncio.Queue()
            self.lost = loop.create_future()

        def datagram_received(self, data: bytes, addr: object) -> None:
            self.came.put_nowait(data)
            if data == b"pause":
                server.pause_reading()
            elif data == b"hello":
                server.sendto(b"answer", addr)

        def error_received(self, exc: Exception) -> None:
            self.came.put_nowait(exc)

        def connection_lost(self, exc: Exception | None) -> None:
            self.lost.set_result(exc)

    server, hearing = await loop.create_datagram_endpoint(Talker, ("127.0.0.1", 0))
    address = server.get_extra_info("sockname")
    client, asking = await loop.create_datagram_endpoint(Talker, remote_addr=address)
    for data in (b"hello", b"pause", b"held"):
        client.sendto(data)
    assert await asking.came.get() == b"answer"
    assert await hearing.came.get() == b"hello"
    assert await hearing.came.get() == b"pause"
    server.resume_reading()
    assert await hearing.came.get() == b"held"
    server.sendto(b"x" * 70_000, address)
    assert isinstance(await hearing.came.get(), OSError)
    server.close()
    client.abort()
    await asyncio.gather(hearing.lost, asking.lost)


async def blocked_datagrams() -> None:
    """Unix datagrams that wait in the send queue, some of them until an abort."""
    loop = asyncio.get_running_loop()
    with (
        tempfile.TemporaryDirectory() as folder,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as peer,
    ):
        peer.bind(f"{folder}/peer")
        for end in ("close", "abort"):
            transport: Any
            transport, _ = await loop.create_datagram_endpoint(
                asyncio.DatagramProtocol, remote_addr=peer.getsockname(), family=socket.AF_UNIX
            )
            sent = 0
            while transport.get_write_buffer_size() < 100:
                transport.sendto(bytes(20))
                sent += 1
            peer.setblocking(False)
            getattr(transport, end)()
            while end == "close" and sent:
                with contextlib.suppress(BlockingIOError):
                    peer.recv(100)
                    sent -= 1
                await asyncio.sleep(0)
        await asyncio.sleep(0)


async def refused() -> None:
    """A connection that the peer refuses."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        with contextlib.suppress(ConnectionRefusedError):
            await asyncio.open_connection(*unused.getsockname())


async def sockets() -> None:
    """sock_sendall and sock_recv on a socket pair."""
    loop = asyncio.get_running_loop()
    left, right = socket.socketpair()
    with left, right:
        left.setblocking(False)
        right.setblocking(False)
        receiving = loop.create_task(_received(right, 5))
        await asyncio.sleep(0)  # the task waits for data now
        await loop.sock_sendall(left, b"hello")
        assert await receiving == b"hello"
        waiting = loop.create_task(_received(right, 5))
        await asyncio.sleep(0)
        waiting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await waiting


async def _received(sock: socket.socket, size: int) -> bytes:
    return await asyncio.get_running_loop().sock_recv(sock, size)


async def watches() -> None:
    """A reader and a writer on a socket pair."""
    loop = asyncio.get_running_loop()
    left, right = socket.socketpair()
    with left, right:
        readable = loop.create_future()
        writable = loop.create_future()
        loop.add_reader(left, _settle, readable)
        loop.add_writer(left, _settle, writable)
        right.send(b"x")
        await asyncio.gather(readable, writable)
        loop.remove_reader(left)
        loop.remove_writer(left)


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


async def timers() -> None:
    """Timers that run and timers that are cancelled."""
    loop = asyncio.get_running_loop()
    done = loop.create_future()
    loop.call_later(0.00001, done.set_result, None)
    for _ in range(10):
        loop.call_later(1000, print, "never").cancel()
    await done
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0):
            await asyncio.sleep(1000)


async def tasks() -> None:
    """Tasks that end, fail and are cancelled."""

    async def fail() -> None:
        await asyncio.sleep(0)
        raise ValueError("as meant")

    good = [asyncio.create_task(asyncio.sleep(0)) for _ in range(10)]
    await asyncio.gather(*good)
    assert isinstance((await asyncio.gather(fail(), return_exceptions=True))[0], ValueError)
    waiting = asyncio.create_task(asyncio.sleep(1000))
    await asyncio.sleep(0)
    waiting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await waiting


async def beyond_limits() -> None:
    """More stack frames, arguments, handles and nested awaits than the free lists keep."""
    loop = asyncio.get_running_loop()

    def below(depth: int) -> None:
        if depth > 0:
            below(depth - 1)
            return
        for schedule in (loop.call_soon, loop.call_soon_threadsafe):
            schedule(max, 1, 2, 3, 4)
        loop.call_later(1000, max, 1, 2, 3, 4).cancel()
        futures.append(loop.create_future())
        futures.append(loop.create_task(nested(100)))

    async def nested(depth: int) -> None:
        await (nested(depth - 1) if depth else asyncio.sleep(0))

    futures: list[asyncio.Future[None]] = []
    below(40)  # asyncio.constants.DEBUG_STACK_DEPTH is 10
    for _ in range(2500):  # GL_MAX_POOL is 2048
        loop.call_soon(int)
    await futures[1]


async def failing_callbacks() -> None:
    """A callback whose exception goes to the handler."""
    loop = asyncio.get_running_loop()
    reported = loop.create_future()
    loop.set_exception_handler(lambda _loop, context: reported.set_result(context["message"]))
    loop.call_soon(lambda: 1 / 0)
    await reported
    loop.set_exception_handler(None)


async def names() -> None:
    """Names and addresses resolved."""
    loop = asyncio.get_running_loop()
    assert await loop.getaddrinfo("localhost", 80, type=socket.SOCK_STREAM)
    assert await loop.getaddrinfo("127.0.0.1", 80, type=socket.SOCK_STREAM)


async def threads() -> None:
    """A call in the executor and one from a thread into the loop."""
    loop = asyncio.get_running_loop()
    assert await loop.run_in_executor(None, threading.get_ident) != threading.get_ident()
    woken = asyncio.Event()
    await loop.run_in_executor(None, lambda: loop.call_soon_threadsafe(woken.set))
    await woken.wait()


class _End(asyncio.Protocol):
    """A protocol of a pipe; counts received bytes."""

    def __init__(self) -> None:
        self.size = 0
        self.lost: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        self.size += len(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set_result(exc)


async def pipes() -> None:
    """A pipe written and read to its end, and a pipe that loses its reader."""
    loop = asyncio.get_running_loop()
    out, into = os.pipe()
    _, reader = await loop.connect_read_pipe(_End, os.fdopen(out, "rb", 0))
    sink, writer = await loop.connect_write_pipe(_End, os.fdopen(into, "wb", 0))
    sink.write(b"x" * 100_000)
    sink.write_eof()
    await asyncio.gather(reader.lost, writer.lost)
    assert reader.size == 100_000
    out, into = os.pipe()
    sink, writer = await loop.connect_write_pipe(_End, os.fdopen(into, "wb", 0))
    sink.write(b"x" * 100_000)
    await asyncio.sleep(0)
    os.close(out)
    assert isinstance(await writer.lost, BrokenPipeError)


async def children() -> None:
    """A child with three pipes, one that is killed and one that can't be started."""
    child = await asyncio.create_subprocess_exec("cat", stdin=-1, stdout=-1, stderr=-1)
    assert await child.communicate(b"hello") == (b"hello", b"")
    child = await asyncio.create_subprocess_exec("sleep", "60", stdout=-1)
    child.kill()
    assert await child.wait() == -signal.SIGKILL
    with contextlib.suppress(FileNotFoundError):
        await asyncio.create_subprocess_exec("/nowhere/at/all", stdout=-1)


async def signals() -> None:
    """A signal handler of the loop."""
    loop = asyncio.get_running_loop()
    caught = loop.create_future()
    loop.add_signal_handler(signal.SIGUSR1, _settle, caught)
    os.kill(os.getpid(), signal.SIGUSR1)
    await caught
    loop.remove_signal_handler(signal.SIGUSR1)


SCENARIOS: list[Round] = [
    streams,
    stream_readers,
    protocols,
    datagrams,
    blocked_datagrams,
    refused,
    sockets,
    watches,
    timers,
    tasks,
    beyond_limits,
    failing_callbacks,
    names,
    threads,
    pipes,
    children,
    signals,
]


# ---- measuring -----------------------------------------------------------------------


@dataclass
class State:
    """Descriptors, objects and memory of a process."""

    descriptors: int
    objects: int
    blocks: int
    resident: int

    @classmethod
    def now(cls) -> State:
        """Measures this process after garbage collections."""
        for _ in range(3):
            gc.collect()
        with open("/proc/self/statm") as file:
            pages = int(file.read().split()[1])
        return cls(
            len(os.listdir("/proc/self/fd")),
            len(gc.get_objects()),
            sys.getallocatedblocks(),
            pages * os.sysconf("SC_PAGESIZE"),
        )


QUARTERS = 4

# Growth that is accepted for each round of a quarter.  Memory comes in pages, and each thread has
# its own arena of malloc, so small growth of resident memory means nothing.
# In debug mode, rounds of children have 0.1 blocks more at first, and fewer with every quarter; a
# frame that is kept has one for each handle.
LIMITS = {"descriptors": 0.0, "objects": 0.1, "blocks": 0.3 if DEBUG else 0.1, "resident": 256.0}


def growth(states: list[State], rounds: int) -> list[str]:
    """Returns a phrase for each quantity that grew in every quarter by more than its limit."""
    found = []
    for what, limit in LIMITS.items():
        counts = [getattr(state, what) for state in states]
        least = min(after - before for before, after in pairwise(counts))
        a_round = least * QUARTERS / rounds
        if a_round > limit:
            found.append(f"at least {a_round:.2f} {what} more in each round")
    return found


def measure(body: Callable[[], object], rounds: int) -> list[str]:
    """Runs a function once, or for a number of rounds that are measured."""
    for _ in range(rounds // 2 or 1):  # to warm up: caches are filled afterwards
        body()
    states = [State.now()]
    for _ in range(QUARTERS if rounds else 0):
        for _ in range(rounds // QUARTERS):
            body()
        states.append(State.now())
    return growth(states, rounds) if rounds else []


async def measure_rounds(body: Round, rounds: int) -> list[str]:
    """Runs a scenario on the running loop, once or for a number of rounds that are measured."""
    # Debug mode would log the waits of each round.
    asyncio.get_running_loop().slow_callback_duration = float("inf")
    for _ in range(rounds // 2 or 1):
        await body()
    states = [State.now()]
    for _ in range(QUARTERS if rounds else 0):
        for _ in range(rounds // QUARTERS):
            await body()
        states.append(State.now())
    return growth(states, rounds) if rounds else []


# ---- tests -----------------------------------------------------------------------------


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda body: body.__name__)
def test_a_scenario_leaks_nothing(scenario: Round) -> None:
    assert goloop.run(measure_rounds(scenario, ROUNDS)) == []


def test_a_loop_leaks_nothing() -> None:
    """Loops that are made, run and closed."""
    assert measure(lambda: goloop.run(tasks()), ROUNDS) == []


# A process of its own for each: in this one, threads of other tests make blocks too, and
# malloc has memory that they freed.
CHECK = """
import ctypes, os, resource, sys
sys.path += {folders!r}
import test_leaks
resource.setrlimit(resource.RLIMIT_NOFILE, (4000, 4000))
kept, malloc = [], ctypes.CDLL(None).malloc
malloc.restype = ctypes.c_void_p
print(test_leaks.measure(lambda: {body}, 800))
"""


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("descriptors", "os.dup(1)"),
        ("objects", "kept.append([])"),
        ("blocks", "kept.append(object())"),
        ("resident", "ctypes.memset(malloc(ctypes.c_size_t(9000)), 1, 9000)"),
        ("", "[].append([])"),
    ],
)
def test_a_leak_is_found(kind: str, body: str) -> None:
    folder = Path(__file__).parent
    folders = [str(folder), str(folder.parent / "support")]
    script = CHECK.format(folders=folders, body=body)
    output = subprocess.check_output([sys.executable, "-c", script], text=True)
    assert f"{kind} more in each round" in output if kind else output == "[]\n"
