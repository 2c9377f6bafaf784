"""Cancelling create_connection and sock_* at each of their awaits: nothing leaks, nothing is lost.

A task is cancelled after 0, 1, 2, ... turns of the loop, until it is done before
its cancellation: so every await that it has is met once.
"""

from __future__ import annotations

import asyncio
import gc
import os
import socket
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from conftest import tcp_pair
from protocols import Made, Recorder, close_all, close_each, hang_up, turns, until
from receiving import on_both_loops, receivers

Loop = asyncio.AbstractEventLoop

# More turns than any of the operations takes.
MANY = 40


async def cancelled_after(count: int, operation: Coroutine[Any, Any, Any]) -> tuple[bool, Any]:
    """Whether the operation was cancelled after that many turns, and else its result."""
    task = asyncio.ensure_future(operation)
    await turns(count)
    task.cancel()
    try:
        return False, await task
    except asyncio.CancelledError:
        return True, None


async def at_every_await(
    make: Callable[[], Coroutine[Any, Any, Any]], close: Callable[[Any], Coroutine[Any, Any, None]]
) -> int:
    """Cancels at each await; closes the results that came before. Returns the awaits met."""
    met = 0
    for count in range(MANY):
        was_cancelled, result = await cancelled_after(count, make())
        if was_cancelled:
            met += 1
        else:
            await close(result)
    assert met > 0, "the operation was never cancelled"
    return met


async def close_connection(result: Any) -> None:
    _, protocol = result
    await hang_up(protocol)


# If the race of addresses is cancelled just when one has won, asyncio drops the winner's
# socket, and if create_server is cancelled, the server: the garbage collector closes them,
# with a warning.
leaves_a_socket_to_gc = pytest.mark.filterwarnings("ignore::ResourceWarning")


@leaves_a_socket_to_gc
@pytest.mark.parametrize(
    "extra",
    [
        {},
        {"happy_eyeballs_delay": 0.001},
        {"local_addr": ("127.0.0.1", 0)},
    ],
    ids=["plain", "happy eyeballs", "local address"],
)
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_cancelled_create_connection_leaks_nothing(
    loop: Loop, host: str, extra: dict[str, Any]
) -> None:
    served = Made()
    server = await loop.create_server(served, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    await at_every_await(
        lambda: loop.create_connection(Recorder, host, port, **extra), close_connection
    )

    def all_lost() -> bool:
        gc.collect()  # each time: a race that is still under way leaves its socket later
        return all(protocol.lost.done() for protocol in served)

    # Each connection that was made is gone at the other end too.
    await until(all_lost)
    await close_all(server)
    await until(lambda: len(asyncio.all_tasks()) == 1)


@leaves_a_socket_to_gc
async def test_cancelled_create_connection_to_several_addresses_leaks_nothing(
    loop: Loop, listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        refused = gone.getsockname()

    async def resolved(host: Any, port: Any, **kwargs: Any) -> list[Any]:
        await asyncio.sleep(0)
        kind = (socket.AF_INET, socket.SOCK_STREAM, 6, "")
        return [(*kind, refused), (*kind, refused), (*kind, listener.getsockname())]

    monkeypatch.setattr(loop, "getaddrinfo", resolved)
    for extra in ({}, {"happy_eyeballs_delay": 0}):
        await at_every_await(
            lambda extra=extra: loop.create_connection(  # type: ignore[misc]
                Recorder, "any.example", 80, **extra
            ),
            close_connection,
        )


@pytest.mark.parametrize("accepted", [False, True])
async def test_cancelled_connection_by_socket_leaks_nothing(loop: Any, accepted: bool) -> None:
    for count in range(10):
        near, far = tcp_pair()
        making = (
            loop.connect_accepted_socket(Recorder, near)
            if accepted
            else loop.create_connection(Recorder, sock=near)
        )
        was_cancelled, result = await cancelled_after(count, making)
        if was_cancelled:
            near.close()
        else:
            await close_connection(result)
        assert await loop.sock_recv(far, 1) == b""
        far.close()


async def test_cancelled_open_connection_leaks_nothing(loop: Loop) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    address = server.sockets[0].getsockname()

    async def close(result: Any) -> None:
        await close_all(result[1])

    await at_every_await(lambda: asyncio.open_connection(*address), close)
    await close_all(server)
    await until(lambda: len(asyncio.all_tasks()) == 1)


@leaves_a_socket_to_gc
async def test_cancelled_create_server_leaks_nothing(loop: Loop) -> None:
    for count in range(10):
        was_cancelled, server = await cancelled_after(
            count, loop.create_server(Recorder, ["127.0.0.1", "127.0.0.2"], 0)
        )
        if not was_cancelled:
            await close_all(server)
        await turns(3)


RECEIVERS = receivers(100)
NAMES = on_both_loops(RECEIVERS)


@pytest.mark.parametrize("name", NAMES)
async def test_cancelled_receive_loses_no_data(loop: Loop, name: str) -> None:
    first, second = tcp_pair()
    for count in range(5):
        was_cancelled, _ = await cancelled_after(count, RECEIVERS[name](loop, first))
        assert was_cancelled
        assert loop.remove_reader(first) is False
        # Nothing that comes later is swallowed by the one that was cancelled.
        message = b"message %d" % count
        second.send(message)
        assert await loop.sock_recv(first, 100) == message
    close_each(first, second)


@pytest.mark.parametrize("name", NAMES)
async def test_data_that_meets_a_cancellation_is_not_lost(loop: Loop, name: str) -> None:
    """In one turn the data arrives and the task is cancelled: it is lost to neither."""
    for count in range(5):
        first, second = tcp_pair()
        task = asyncio.ensure_future(RECEIVERS[name](loop, first))
        await turns(2)
        second.send(b"data")
        await turns(count)
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            if count == 0:
                # No call can have received it before the cancellation.
                assert await loop.sock_recv(first, 100) == b"data"
        assert loop.remove_reader(first) is False
        close_each(first, second)


async def test_a_cancelled_send_leaves_no_watch(loop: Loop) -> None:
    first, second = tcp_pair()
    first.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65536)
    payload = os.urandom(8 << 20)
    for count in range(5):
        was_cancelled, _ = await cancelled_after(count, loop.sock_sendall(first, payload))
        assert was_cancelled
        assert loop.remove_writer(first) is False
    # The sent bytes are a whole prefix each time, and the stream is still in use.
    end = b"the end of it"
    sender = asyncio.ensure_future(loop.sock_sendall(first, end))
    received = bytearray()
    while not received.endswith(end):
        received += await loop.sock_recv(second, 1 << 20)
    await sender
    assert received.startswith(payload[:1000])
    close_each(first, second)


async def test_a_cancelled_sendto_leaves_no_watch(loop: Loop) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        sock.setblocking(False)
        for count in range(3):
            await cancelled_after(count, loop.sock_sendto(sock, b"x", sock.getsockname()))
            assert loop.remove_writer(sock) is False


async def test_a_cancelled_connect_leaves_no_watch(loop: Loop) -> None:
    """Against a full backlog, where connecting hangs, and against one that has room."""
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen(0)
        fillers = [socket.socket() for _ in range(3)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(mute.getsockname())
        for count in range(5):
            with socket.socket() as sock:
                sock.setblocking(False)
                was_cancelled, _ = await cancelled_after(
                    count, loop.sock_connect(sock, mute.getsockname())
                )
                assert was_cancelled
                assert loop.remove_writer(sock) is False
        close_each(*fillers)


async def test_a_cancelled_accept_takes_no_connection(loop: Loop, listener: socket.socket) -> None:
    listener.setblocking(False)
    for count in range(5):
        was_cancelled, _ = await cancelled_after(count, loop.sock_accept(listener))
        assert was_cancelled
        assert loop.remove_reader(listener) is False
    # No connection is taken by the ones that were cancelled.
    with socket.create_connection(listener.getsockname()) as client:
        served, address = await loop.sock_accept(listener)
        assert address == client.getsockname()
        served.close()


async def test_a_socket_closed_right_after_cancelling_disturbs_no_other(loop: Loop) -> None:
    """A stranger that gets the number is read and written undisturbed."""
    for count in range(5):
        first, second = tcp_pair()
        task = asyncio.ensure_future(loop.sock_recv(first, 10))
        await turns(count)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        first.close()
        stranger, peer = tcp_pair()
        peer.send(b"for the stranger")
        await turns(5)
        assert await loop.sock_recv(stranger, 100) == b"for the stranger"
        close_each(second, stranger, peer)


async def test_waiting_for_a_server_to_close_can_be_cancelled(loop: Loop) -> None:
    server = await loop.create_server(Recorder, "127.0.0.1", 0)
    await cancelled_after(2, server.serve_forever())
    assert not server.is_serving()
    await cancelled_after(2, server.wait_closed())
    await server.wait_closed()


async def test_a_timeout_is_a_cancellation(loop: Loop) -> None:
    first, second = tcp_pair()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.001):
            await loop.sock_recv(first, 10)
    second.send(b"later")
    assert await asyncio.wait_for(loop.sock_recv(first, 10), 10) == b"later"
    close_each(first, second)
