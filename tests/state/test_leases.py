"""A descriptor's number is no identity: a call goes to the descriptor that was meant, or nowhere.

Each test closes a socket at the worst moment and opens another, which as a rule gets the
same number at once.
"""

from __future__ import annotations

import asyncio
import gc
import io
import os
import socket
import struct
import threading
import time
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import Errors, LoopFactory, tcp_pair
from protocols import (
    DatagramRecorder,
    Recorder,
    close_all,
    close_each,
    hang_up,
    receive_all,
    turns,
    until,
)
from receiving import on_both_loops

Loop = asyncio.AbstractEventLoop
Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def strangers() -> Iterator[list[Pair]]:
    """Connections of other code, which a test opens while it runs."""
    made: list[Pair] = []
    yield made
    for pair in made:
        close_each(*pair)


def stranger(strangers: list[Pair]) -> Pair:
    """A new one."""
    pair = tcp_pair()
    strangers.append(pair)
    return pair


def received(sock: socket.socket) -> bytes:
    """Return the socket's available bytes; b"" if there are none."""
    try:
        return sock.recv(1 << 20)
    except BlockingIOError:
        return b""


# ---- sock_recv and its kin ---------------------------------------------------------


def close_between(loop: Loop, sock: socket.socket, strangers: list[Pair]) -> socket.socket:
    """Close a socket after its readiness and before the call that waits for it.

    A stranger with something to read takes the number.  Returns the socket to write to, which
    triggers the close.
    """
    trigger, writer = tcp_pair()

    def close() -> None:
        sock.close()
        _, far = stranger(strangers)
        far.send(b"SECRET")

    def ready() -> None:
        loop.remove_reader(trigger)
        trigger.close()
        loop.call_soon(close)

    loop.add_reader(trigger, ready)
    return writer


@pytest.mark.parametrize(
    "name", on_both_loops(["sock_recv", "sock_recv_into", "sock_recvfrom", "sock_recvmsg"])
)
async def test_a_socket_closed_before_its_bytes_are_taken_gets_its_own(
    loop: Loop, name: str, strangers: list[Pair]
) -> None:
    near, far = tcp_pair()
    buffer = bytearray(100)
    argument: Any = buffer if name == "sock_recv_into" else 100
    task = loop.create_task(getattr(loop, name)(near, argument))
    await turns(3)
    writer = close_between(loop, near, strangers)
    writer.send(b"x")
    far.send(b"own data")
    outcome = await asyncio.wait_for(task, 60)
    if name == "sock_recv_into":
        assert bytes(buffer[:outcome]) == b"own data"
    else:
        assert b"own data" in outcome or outcome[0] == b"own data"
    assert near.fileno() == -1
    assert received(strangers[0][0]) == b"SECRET"
    close_each(writer, far)


async def test_a_socket_closed_in_the_middle_of_sendall_sends_nothing_to_its_successor(
    loop: Loop, strangers: list[Pair]
) -> None:
    """Whether the close comes before or after the socket has turned writable: nothing leaks.

    In the one case goloop raises EBADF, in the other both loops wait for ever.
    """
    near, far = tcp_pair()
    task = loop.create_task(loop.sock_sendall(near, b"PRIVATE " * 2_000_000))
    await turns(3)
    writer = close_between(loop, near, strangers)
    writer.send(b"x")
    while received(far):
        pass
    await until(lambda: bool(strangers))
    await turns(5)
    task.cancel()
    await asyncio.wait([task])
    near_stranger, far_stranger = strangers[0]
    assert received(far_stranger) == b""
    assert received(near_stranger) == b"SECRET"
    close_each(writer, far)


async def test_a_wait_keeps_no_buffer(loop: Loop, pair: Pair) -> None:
    near, far = pair
    buffer = bytearray(1)
    task = loop.create_task(loop.sock_recv_into(near, buffer))
    await turns(2)
    buffer.extend(b"\0" * 9)  # BufferError where it is exported
    far.send(b"0123456789")
    assert await task == 10
    assert buffer == b"0123456789"


# ---- transports over sock= -----------------------------------------------------------


async def test_written_bytes_never_reach_another_peer(loop: Loop, strangers: list[Pair]) -> None:
    near, far = tcp_pair()
    transport, _ = await loop.create_connection(Recorder, sock=near)
    transport.write(b"SECRET")
    near.close()
    _, other = stranger(strangers)
    await turns(5)
    assert received(other) == b""
    await until(lambda: bool(received(far)))
    transport.abort()
    await turns(3)
    far.close()


async def test_a_full_buffer_of_a_closed_socket_reaches_no_other(
    loop: Loop, loop_name: str, strangers: list[Pair]
) -> None:
    """goloop's transport has a reference to the socket: accepted bytes are delivered."""
    near, far = tcp_pair()
    transport, protocol = await loop.create_connection(Recorder, sock=near)
    data = os.urandom(1000) * 8000
    transport.write(data)
    assert transport.get_write_buffer_size() > 0
    close_each(transport, near)
    pairs = [stranger(strangers) for _ in range(4)]
    if loop_name == "goloop":
        assert await receive_all(far) == data
        await protocol.lost
        assert near.fileno() == -1
    else:
        transport.abort()
        await turns(3)
    for first, second in pairs:
        assert received(first) == b""
        assert received(second) == b""
    far.close()


@pytest.mark.goloop_only("asyncio's transport fails with EBADF")
async def test_the_transport_keeps_its_socket_open(loop: Loop, strangers: list[Pair]) -> None:
    """As uvloop's does; asyncio's is lost as soon as it sends."""
    near, far = tcp_pair()
    transport, protocol = await loop.create_connection(Recorder, sock=near)
    number = near.fileno()
    near.close()
    assert near.fileno() == number
    assert stranger(strangers)[0].fileno() != number
    far.send(b"in")
    await until(lambda: protocol.data == b"in")
    transport.write(b"out")
    await until(lambda: received(far) == b"out")
    transport.close()
    await protocol.lost
    assert near.fileno() == -1
    far.close()


async def test_a_detached_socket_ends_its_transport(
    loop: Loop, loop_name: str, strangers: list[Pair]
) -> None:
    """The number belongs to another file by now."""
    near, far = tcp_pair()
    transport, protocol = await loop.create_connection(Recorder, sock=near)
    os.close(near.detach())
    first, second = stranger(strangers)
    transport.write(b"SECRET")
    assert isinstance(await protocol.lost, OSError)
    assert received(first) == received(second) == b""
    second.send(b"for the stranger")
    await turns(5)
    assert received(first) == b"for the stranger"
    assert protocol.data == b""
    far.close()


async def test_bytes_of_a_detached_socket_are_its_new_owners(loop: Loop) -> None:
    near, far = tcp_pair()
    _, protocol = await loop.create_connection(Recorder, sock=near)
    taken = socket.socket(fileno=near.detach())
    far.send(b"for the new owner")
    assert isinstance(await protocol.lost, OSError)
    assert protocol.data == b""
    assert taken.recv(100) == b"for the new owner"
    close_each(taken, far)


async def test_the_socket_of_an_accepted_connection_is_detached(loop: Loop, loop_name: str) -> None:
    accepted = Recorder()
    server = await loop.create_server(lambda: accepted, "127.0.0.1", 0)
    client = socket.create_connection(server.sockets[0].getsockname())
    await accepted.made
    taken = socket.socket(fileno=accepted.transport.get_extra_info("socket")._sock.detach())
    client.send(b"for the new owner")
    assert isinstance(await accepted.lost, OSError)
    assert accepted.data == b""
    assert taken.recv(100) == b"for the new owner"
    close_each(taken, client)
    await close_all(server)


async def test_the_number_of_a_cancelled_connection_is_free(loop: Loop) -> None:
    """aiohttp closes the socket of a connection attempt that it cancels."""
    listening = socket.create_server(("127.0.0.1", 0))

    class Writes(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            transport.write(b"GET")

    async def attempt(sock: socket.socket) -> None:
        try:
            transport, _ = await loop.create_connection(Writes, sock=sock)
            transport.abort()
        except asyncio.CancelledError:
            sock.close()
            other = socket.socket()
            other.setblocking(False)
            await loop.sock_connect(other, listening.getsockname())
            other.close()

    for steps in range(6):
        sock = socket.create_connection(listening.getsockname())
        sock.setblocking(False)
        task = loop.create_task(attempt(sock))
        await turns(steps)
        task.cancel()
        await asyncio.wait([task])
        sock.close()
    await turns(3)
    gc.collect()
    listening.close()


async def test_a_datagram_socket_is_detached(loop: Loop, loop_name: str) -> None:
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind(("127.0.0.1", 0))
    target = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    target.bind(("127.0.0.1", 0))
    target.setblocking(False)
    transport, protocol = await loop.create_datagram_endpoint(DatagramRecorder, sock=sock)
    os.close(sock.detach())
    other = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    transport.sendto(b"SECRET", target.getsockname())
    assert [type(error) for error in protocol.errors] == [OSError]
    assert received(target) == b""
    transport.abort()
    await turns(3)
    close_each(other, target)


@pytest.mark.goloop_only("asyncio's transport fails with EBADF")
async def test_a_datagram_transport_keeps_its_socket_open(loop: Loop) -> None:
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind(("127.0.0.1", 0))
    number = sock.fileno()
    transport, _ = await loop.create_datagram_endpoint(asyncio.DatagramProtocol, sock=sock)
    sock.close()
    assert sock.fileno() == number
    transport.abort()
    await turns(3)
    assert sock.fileno() == -1


async def test_a_socket_that_its_owner_reads_as_a_file_stays_open(loop: Loop, pair: Pair) -> None:
    """makefile() counts as a user of the socket too, and is not disturbed."""
    near, far = pair
    far.setblocking(True)
    file = near.makefile("rb")
    _, protocol = await loop.create_connection(Recorder, sock=near)
    await hang_up(protocol)
    assert near.fileno() >= 0
    file.close()
    assert near.fileno() == -1


class Stand:
    """Stands for a socket, with a number and nothing else that could be asked for it."""

    def __init__(self, sock: socket.socket) -> None:
        self._inner = sock
        self.closed = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def close(self) -> None:
        self.closed = True
        self._inner.close()


async def test_a_transport_over_another_object_sends_nothing_to_its_numbers_next_owner(
    loop: Loop, loop_name: str, strangers: list[Pair]
) -> None:
    """goloop has a duplicate of its own, for nothing tells when the number changes."""
    near, far = tcp_pair()
    stand: Any = Stand(near)
    transport, protocol = await loop.create_connection(Recorder, sock=stand)
    far.send(b"in")
    await until(lambda: protocol.data == b"in")
    transport.write(b"out")
    await until(lambda: received(far) == b"out")
    near.close()
    first, second = stranger(strangers)
    transport.write(b"SECRET")
    await turns(5)
    assert received(first) == received(second) == b""
    await hang_up(protocol)
    assert stand.closed
    far.close()


# ---- listeners ---------------------------------------------------------------------------


@pytest.mark.goloop_only("asyncio's server can't be closed then: Invalid file descriptor: -1")
async def test_a_listening_socket_is_closed_by_its_owner(loop: Loop) -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    address = listening.getsockname()
    server = await loop.create_server(Recorder, sock=listening)
    listening.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address)
    other = socket.create_server(("127.0.0.1", 0))
    other.setblocking(False)
    client = socket.create_connection(other.getsockname())
    await turns(5)
    accepted, _ = await loop.sock_accept(other)
    close_each(accepted, client)
    await close_all(server)
    other.close()


# ---- pipes -----------------------------------------------------------------------------------


@pytest.mark.parametrize("buffering", [0, -1])
@pytest.mark.goloop_only("asyncio reads what it finds behind the number")
async def test_pipe_closed_by_its_owner_reads_nothing_from_the_numbers_successor(
    loop: Loop, buffering: int, errors: Errors
) -> None:
    """asyncio goes on with the number, which is a stranger's."""
    reading, writing = os.pipe()
    pipe = open(reading, "rb", buffering)  # noqa: SIM115
    transport, protocol = await loop.connect_read_pipe(Recorder, pipe)
    pipe.close()
    other_reading, other_writing = os.pipe()
    os.write(other_writing, b"SECRET")
    await turns(5)
    assert protocol.data == b""
    assert os.read(other_reading, 100) == b"SECRET"
    transport.close()
    await protocol.lost
    for fd in (writing, other_reading, other_writing):
        os.close(fd)


async def test_a_pipe_object_that_only_has_a_number_is_read(loop: Loop, loop_name: str) -> None:
    class Number:
        def __init__(self, fd: int) -> None:
            self.file = io.FileIO(fd, "rb")
            self.fileno = self.file.fileno

        def close(self) -> None:
            self.file.close()

    reading, writing = os.pipe()
    transport, protocol = await loop.connect_read_pipe(Recorder, Number(reading))
    os.write(writing, b"in")
    await until(lambda: protocol.data == b"in")
    transport.close()
    await protocol.lost
    os.close(writing)


async def test_connection_made_may_let_go_of_the_pipe(loop: Loop) -> None:
    """A program may set `_pipe = None` in connection_made."""

    class LetsGo(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            self.pipe = transport._pipe
            transport._pipe = None

    reading, writing = os.pipe()
    _, protocol = await asyncio.wait_for(
        loop.connect_read_pipe(LetsGo, os.fdopen(reading, "rb", 0)), 60
    )
    await turns(3)
    loop.remove_reader(reading) if hasattr(loop, "_selector") else None
    os.close(writing)
    protocol.pipe.close()


# ---- closing ------------------------------------------------------------------------------------


def test_a_lingering_close_stops_no_other_thread(loop_factory: LoopFactory) -> None:
    """close(2) of a socket with SO_LINGER waits two seconds for its peer."""
    done = threading.Event()
    ticks: list[float] = []

    def tick() -> None:
        while not done.is_set():
            ticks.append(time.monotonic())
            time.sleep(0.005)

    class Server(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            transport.write(b"x" * 100_000)
            loop.call_later(0.1, transport.close)

        def connection_lost(self, exc: Exception | None) -> None:
            before.append(len(ticks))
            loop.call_soon(lambda: (after.append(len(ticks)), closed.set_result(None)))

    async def main() -> None:
        listening = socket.socket()
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 2))
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 400_000)
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        server = await loop.create_server(Server, sock=listening)
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(listening.getsockname())
        await closed
        client.close()
        await close_all(server)

    loop = loop_factory()
    closed = loop.create_future()
    before: list[int] = []
    after: list[int] = []
    thread = threading.Thread(target=tick)
    thread.start()
    try:
        loop.run_until_complete(main())
    finally:
        done.set()
        thread.join()
        loop.close()
    # The close took about two seconds, in which the thread would have ticked 400 times.
    assert after[0] - before[0] > 20


async def test_lost_stream_releases_its_socket(loop: Loop) -> None:
    near, far = tcp_pair()
    transport, protocol = await loop.create_connection(Recorder, sock=near)
    gone = weakref.ref(near)
    del near
    await hang_up(protocol)
    del transport, protocol
    gc.collect()
    assert gone() is None
    far.close()


@pytest.mark.goloop_only("asyncio's transport is closed under its own selector")
def test_a_connection_that_another_thread_ends_while_go_is_at_work(loop: Loop) -> None:
    """The reactor looks at the socket object as long as it knows the stream."""
    near, far = tcp_pair()
    transport, protocol = loop.run_until_complete(loop.create_connection(Recorder, sock=near))
    del near

    def end() -> None:
        for _ in range(100):
            time.sleep(0.001)
            transport._call_connection_lost(None)
        gc.collect()

    async def main() -> None:
        await loop.run_in_executor(None, end)
        await asyncio.wait_for(protocol.lost, 60)

    loop.run_until_complete(main())
    assert protocol.names().count("lost") == 1
    loop.run_until_complete(loop.shutdown_default_executor())
    far.close()
