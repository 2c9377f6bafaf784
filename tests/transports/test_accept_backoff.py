"""A server that has no file descriptor left reports it, waits without spinning, and recovers."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from conftest import Errors, open_fds
from protocols import Made, Recorder, close_all, close_each, hang_up, until

Loop = asyncio.AbstractEventLoop


@contextmanager
def no_descriptor_left() -> Iterator[None]:
    """Every further descriptor fails with EMFILE."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # The holes below the highest number are filled, so that the limit is the next.
    fillers: list[int] = []
    highest = max(open_fds())
    while True:
        fd = os.open("/dev/null", os.O_RDONLY)
        fillers.append(fd)
        if fd > highest:
            break
    resource.setrlimit(resource.RLIMIT_NOFILE, (fd + 1, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for fd in fillers:
            os.close(fd)


def counter_of_waits(loop: Any, loop_name: str, patch: pytest.MonkeyPatch) -> Callable[[], int]:
    """How often the loop has asked the kernel for events."""
    if loop_name == "goloop":
        return lambda: int(loop._diagnostics()["polls"])
    count = 0
    select = loop._selector.select

    def counted(timeout: float | None) -> Any:
        nonlocal count
        count += 1
        return select(timeout)

    patch.setattr(loop._selector, "select", counted)
    return lambda: count


async def test_a_server_out_of_descriptors_reports_it_and_recovers(
    loop: Loop, loop_name: str, errors: Errors, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Made()
    server = await loop.create_server(made, "127.0.0.1", 0, backlog=50)
    address = server.sockets[0].getsockname()
    clients = [socket.socket() for _ in range(20)]
    # Descriptors that the loop opens for its first accept and timer are open by now.
    _, near = await loop.create_connection(Recorder, *address)
    await until(lambda: made and made[0].transport)
    await hang_up(near, made[0])
    await asyncio.sleep(0)
    waits = counter_of_waits(loop, loop_name, monkeypatch)
    waits()  # imports the modules that it needs
    with no_descriptor_left():
        for client in clients:
            client.connect(address)
        await until(lambda: errors.contexts)
        context = errors.expect(OSError, "socket.accept() out of system resource")
        assert isinstance(context["socket"], asyncio.trsock.TransportSocket)
        # From here on the loop has nothing to do but this timer: it must not be
        # woken by the connections that wait.
        before = waits()
        await asyncio.sleep(0.3)
        assert waits() - before < 20
        # asyncio tries, and reports, as often as its backlog is long.
        assert len(errors.contexts) <= (51 if loop_name == "asyncio" else 0)
        errors.contexts.clear()
        assert len(made) == 1
    # The server accepts them all by itself, within asyncio's second.
    await until(lambda: len(made) == 21 and all(protocol.transport for protocol in made))
    if loop_name == "asyncio":
        # Each report arms a timer; those that find the server closed fail.
        scheduled: list[asyncio.TimerHandle] = loop._scheduled  # type: ignore[attr-defined]
        await until(lambda: not any("_start_serving" in repr(timer) for timer in scheduled))
    errors.contexts.clear()
    close_each(*clients)
    for protocol in made:
        await protocol.lost
    await close_all(server)


@pytest.mark.goloop_only("asyncio's timer tries to listen on the closed socket, and fails")
async def test_a_server_can_be_closed_while_it_backs_off(loop: Loop, errors: Errors) -> None:
    server = await loop.create_server(Recorder, "127.0.0.1", 0, backlog=50)
    with socket.socket() as client:
        with no_descriptor_left():
            client.connect(server.sockets[0].getsockname())
            await until(lambda: errors.contexts)
            errors.contexts.clear()
            await close_all(server)
        # A remaining timer of a second, if there is one, finds no server.
        await asyncio.sleep(1.1)
    assert errors.contexts == []


@pytest.mark.parametrize("another_loop", [False, True])
@pytest.mark.goloop_only("asyncio sleeps")
async def test_a_transport_that_closes_makes_room_at_once(
    loop: Loop, errors: Errors, another_loop: bool
) -> None:
    """asyncio sleeps a second for each of these; here that would be longer than the limit."""
    rounds = 30
    made = Made()
    server = await loop.create_server(made, "127.0.0.1", 0, backlog=50)
    address = server.sockets[0].getsockname()
    clients = [socket.socket() for _ in range(2 * rounds)]
    for client in clients[:rounds]:
        client.connect(address)
    await until(lambda: len(made) == rounds and all(protocol.transport for protocol in made))
    holders = made[:rounds]
    thread: LoopThread | None = None
    if another_loop:
        thread = LoopThread(rounds)
        holders = thread.protocols
    start = loop.time()
    with no_descriptor_left():
        for client, holder in zip(clients[rounds:], holders, strict=True):
            client.connect(address)
            await asyncio.sleep(0.02)  # the accept finds no free descriptor, and backs off
            before = len(made)
            if thread is not None:
                thread.loop.call_soon_threadsafe(holder.transport.abort)
            else:
                holder.transport.abort()
            await until(lambda before=before: len(made) > before)  # type: ignore[misc]
    assert loop.time() - start < rounds / 2
    assert 1 <= len(errors.contexts) <= 1 + rounds / 2
    errors.contexts.clear()
    for protocol in made:
        await hang_up(protocol)
    close_each(*clients)
    if thread is not None:
        thread.close()
    await close_all(server)


class LoopThread:
    """A loop that runs in another thread, with some connections."""

    def __init__(self, n: int) -> None:
        import goloop

        self.protocols = [Recorder() for _ in range(n)]
        self.ends: list[socket.socket] = []
        self.loop = goloop.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()
        asyncio.run_coroutine_threadsafe(self.connect(), self.loop).result()

    async def connect(self) -> None:
        """Gives each protocol a connection."""
        for protocol in self.protocols:
            near, far = socket.socketpair()
            self.ends.append(far)
            await self.loop.create_connection(lambda p=protocol: p, sock=near)  # type: ignore[misc]

    def close(self) -> None:
        """Ends it."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()
        for end in self.ends:
            end.close()


async def test_other_connections_continue_during_backoff(loop: Loop, errors: Errors) -> None:
    made = Made()
    server = await loop.create_server(made, "127.0.0.1", 0)
    address = server.sockets[0].getsockname()
    _, near = await loop.create_connection(Recorder, *address)
    await until(lambda: made and made[0].transport)
    with socket.socket() as client:
        with no_descriptor_left():
            client.connect(address)
            await until(lambda: errors.contexts)
            near.transport.write(b"x")
            await until(lambda: made[0].data == b"x")
            fired: list[int] = []
            loop.call_later(0.001, fired.append, 1)
            await until(lambda: fired)
        server.close()
    errors.contexts.clear()
    near.transport.abort()
    for protocol in [near, *made]:
        await hang_up(protocol)
    await server.wait_closed()
