"""Readers and writers: numbers that are no file's, other threads, places that change hands."""

from __future__ import annotations

import asyncio
import contextvars
import os
import resource
import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest
from conftest import Errors, LoopFactory, tcp_pair
from protocols import close_each, in_thread, turns, until

Loop = asyncio.AbstractEventLoop
Pair = tuple[socket.socket, socket.socket]


# ---- numbers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [10**5, 10**9, 2_000_000_000, 2**31 - 1])
@pytest.mark.parametrize("method", ["add_reader", "add_writer"])
async def test_unopened_fd_number_is_refused_without_allocation(
    loop: Loop, method: str, number: int
) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(OSError, match="Bad file descriptor"):
        getattr(loop, method)(number, print)
    assert loop.remove_reader(number) is False
    # KiB: nothing was made for the numbers below.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000


async def test_the_highest_number_is_watched(loop: Loop, pair: Pair) -> None:
    near, far = pair
    high = resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 1
    os.dup2(near.fileno(), high)
    called: list[int] = []
    loop.add_reader(high, called.append, 1)
    far.send(b"x")
    await until(lambda: bool(called))
    assert loop.remove_reader(high)
    os.close(high)


# ---- other threads -------------------------------------------------------------------------------


def in_a_thread(function: Callable[[], Any]) -> Any:
    """Call it in another thread; return its result or exception."""
    outcome: list[Any] = []

    def call() -> None:
        try:
            outcome.append(function())
        except BaseException as error:
            outcome.append(error)

    in_thread(call)
    return outcome[0]


def run_beside(loop: Loop, other: Callable[[], Any]) -> Any:
    """Runs `other` in another thread once the loop sleeps in the poller; its outcome."""
    outcome: list[Any] = []

    def call() -> None:
        wait_until_it_sleeps()
        try:
            outcome.append(other())
        except BaseException as error:
            outcome.append(error)
            loop.call_soon_threadsafe(loop.stop)

    def wait_until_it_sleeps() -> None:
        """The state that the kernel shows for the loop's thread."""
        status = f"/proc/self/task/{runner}/stat"
        while True:
            with open(status) as file:
                if file.read().rsplit(")", 1)[1].split()[0] == "S":
                    return

    runner = threading.get_native_id()
    thread = threading.Thread(target=call)
    loop.call_soon(thread.start)
    loop.run_forever()
    thread.join()
    return outcome[0]


def test_a_reader_added_by_another_thread_wakes_the_loop(loop: Loop, pair: Pair) -> None:
    """ipykernel does that; the loop is asleep, and nothing else would wake it."""
    near, far = pair
    far.send(b"x")
    got: list[bytes] = []

    def readable() -> None:
        got.append(near.recv(10))
        loop.stop()

    assert run_beside(loop, lambda: loop.add_reader(near, readable)) is None
    assert got == [b"x"]
    assert loop.remove_reader(near)


def test_a_writer_added_by_another_thread_wakes_the_loop(loop: Loop, pair: Pair) -> None:
    near, _ = pair

    def writable() -> None:
        loop.remove_writer(near)
        loop.stop()

    assert run_beside(loop, lambda: loop.add_writer(near, writable)) is None
    assert loop.remove_writer(near) is False


def test_another_thread_may_remove_a_reader(loop: Loop, pair: Pair) -> None:
    near, far = pair
    called: list[int] = []
    loop.add_reader(near, called.append, 1)

    def other() -> bool:
        removed = loop.remove_reader(near)
        far.send(b"x")
        loop.call_soon_threadsafe(loop.call_later, 0.05, loop.stop)
        return removed

    assert run_beside(loop, other) is True
    assert called == []


@pytest.mark.parametrize("method", ["add_reader", "add_writer"])
def test_regular_files_and_closed_numbers_are_refused_to_another_thread(
    loop: Loop, method: str
) -> None:
    with open(__file__) as file:
        error = run_beside(loop, lambda: getattr(loop, method)(file, print))
    assert isinstance(error, PermissionError)
    error = run_beside(loop, lambda: getattr(loop, method)(10**6, print))
    assert isinstance(error, OSError)


def test_readers_added_by_many_threads_are_all_called(loop: Loop) -> None:
    pairs = [tcp_pair() for _ in range(40)]
    left = set(range(40))

    def readable(i: int) -> None:
        loop.remove_reader(pairs[i][0])
        left.discard(i)
        if not left:
            loop.stop()

    def add(first: int) -> None:
        for i in range(first, first + 10):
            loop.add_reader(pairs[i][0], readable, i)
            pairs[i][1].send(b"x")

    threads = [threading.Thread(target=add, args=(i,)) for i in range(0, 40, 10)]
    for thread in threads:
        loop.call_later(0.01, thread.start)
    loop.run_forever()
    for thread in threads:
        thread.join()
    for near, far in pairs:
        close_each(near, far)


def test_a_closed_loop_refuses_another_threads_reader(
    loop_factory: LoopFactory, pair: Pair
) -> None:
    loop = loop_factory()
    loop.close()
    assert isinstance(in_a_thread(lambda: loop.add_reader(pair[0], print)), RuntimeError)


# ---- places that change hands -----------------------------------------------------------------


async def test_reader_that_replaced_another_in_the_turn_is_not_called(loop: Loop) -> None:
    """The turn's event belongs to the earlier reader; asyncio calls neither."""
    (a, to_a), (b, to_b) = tcp_pair(), tcp_pair()
    calls: list[str] = []

    def first(name: str, other: socket.socket) -> None:
        calls.append(name)
        loop.remove_reader({"a": a, "b": b}[name])
        # Nothing is there to read for the new one: it was taken away.
        other.recv(10)
        loop.add_reader(other, calls.append, "called too early")

    loop.add_reader(a, first, "a", b)
    loop.add_reader(b, first, "b", a)
    to_a.send(b"x")
    to_b.send(b"x")
    await until(lambda: bool(calls))
    await turns(5)
    assert calls in (["a"], ["b"])
    for sock in (a, b, to_a, to_b):
        loop.remove_reader(sock)
        sock.close()


async def test_waiter_that_replaced_a_reader_in_the_turn_waits(loop: Loop, pair: Pair) -> None:
    """A sock_recv whose fd was ready for a reader waits."""
    near, far = pair
    got: list[bytes] = []
    tasks: list[asyncio.Task[bytes]] = []

    def readable() -> None:
        loop.remove_reader(near)
        got.append(near.recv(10))
        tasks.append(loop.create_task(loop.sock_recv(near, 10)))

    loop.add_reader(near, readable)
    far.send(b"first")
    await until(lambda: bool(tasks))
    await turns(3)
    assert not tasks[0].done()
    far.send(b"second")
    assert await tasks[0] == b"second"
    assert got == [b"first"]


# ---- conversions that close the loop -------------------------------------------------------------


@pytest.mark.parametrize("method", ["add_reader", "add_writer", "remove_reader"])
def test_fileno_that_closes_the_loop_does_not_crash(
    loop_factory: LoopFactory, method: str, pair: Pair
) -> None:
    loop = loop_factory()

    class Evil:
        def fileno(self) -> int:
            loop.close()
            return pair[0].fileno()

    if method == "remove_reader":
        assert loop.remove_reader(Evil()) is False
    else:
        with pytest.raises(RuntimeError):
            getattr(loop, method)(Evil(), print)


@pytest.mark.parametrize("attribute", ["family", "getsockname", "fileno"])
@pytest.mark.goloop_only("goloop's constructors")
def test_a_socket_that_closes_the_loop_is_an_error(
    loop_factory: LoopFactory, attribute: str, errors: Errors
) -> None:
    from goloop._internal.net.datagrams import DatagramTransport
    from goloop._internal.net.server import Listener
    from goloop._internal.net.stream_transport import StreamTransport

    loop: Any = loop_factory()

    class Evil(socket.socket):
        def __getattribute__(self, name: str) -> Any:
            if name == attribute and not loop.is_closed():
                loop.close()
            return super().__getattribute__(name)

    stream = Evil(socket.AF_INET, socket.SOCK_STREAM)
    datagram = Evil(socket.AF_INET, socket.SOCK_DGRAM)
    with pytest.raises(RuntimeError):
        StreamTransport(loop, stream, asyncio.Protocol())
    loop = loop_factory()
    with pytest.raises(RuntimeError):
        DatagramTransport(loop, datagram, asyncio.DatagramProtocol())
    if attribute != "getsockname":
        loop = loop_factory()
        with pytest.raises(RuntimeError):
            Listener(loop, stream, asyncio.Protocol, None, 1, contextvars.Context())
    close_each(stream, datagram, loop)
