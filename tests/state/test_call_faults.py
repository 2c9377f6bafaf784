"""Each system call that C makes on a connection fails, with each errno that it may have.

Go's calls are made to fail in netloop's own tests (faults_test.go, ring_linux_test.go);
here are those of pybridge/core/fds/calls.c, by support/failing_calls.py.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Iterator
from typing import Any
from unittest.mock import Mock

import pytest
from conftest import Errors, tcp_pair
from failing_calls import fail_call
from protocols import (
    BufferedRecorder,
    DatagramRecorder,
    Recorder,
    close_each,
    hang_up,
    turns,
    until,
)

Loop = asyncio.AbstractEventLoop
Pair = tuple[socket.socket, socket.socket]

PASSING = [errno.EAGAIN, errno.EINTR]
LASTING = [errno.ENOBUFS, errno.ENOMEM, errno.ECONNRESET, errno.EPIPE, errno.EBADF]


@pytest.fixture(autouse=True)
def no_fault_is_left(loop_name: str) -> Iterator[None]:
    """The faults are goloop's; each test ends its own."""
    if loop_name == "asyncio":
        pytest.skip("asyncio's calls are Python's")
    yield
    fail_call("recv", 0, times=0)


def named(number: int) -> str:
    return errno.errorcode[number]


def raises(number: int) -> Any:
    return pytest.raises(OSError, match=rf"^\[Errno {number}\] {os.strerror(number)}")


# ---- sock_recv, sock_recv_into, sock_sendall ------------------------------------------


async def recv(loop: Loop, near: socket.socket, far: socket.socket) -> bytes:
    return await loop.sock_recv(near, 100)


async def recv_into(loop: Loop, near: socket.socket, far: socket.socket) -> bytes:
    buffer = bytearray(100)
    return bytes(buffer[: await loop.sock_recv_into(near, buffer)])


async def send(loop: Loop, near: socket.socket, far: socket.socket) -> bytes:
    await loop.sock_sendall(near, b"data")
    return await loop.sock_recv(far, 100)


@pytest.mark.parametrize("call", [recv, recv_into, send])
@pytest.mark.parametrize("number", PASSING, ids=named)
async def test_a_call_is_tried_again(loop: Loop, pair: Pair, call: Any, number: int) -> None:
    if call is not send:
        pair[1].send(b"data")
    fail_call(call.__name__[:4], number, times=3)
    assert await call(loop, *pair) == b"data"


@pytest.mark.parametrize("call", [recv, recv_into, send])
@pytest.mark.parametrize("number", LASTING, ids=named)
async def test_a_failed_call_raises_and_the_next_one_succeeds(
    loop: Loop, pair: Pair, call: Any, number: int
) -> None:
    """Nothing that was received is lost, and nothing that was not sent is left over."""
    if call is send:
        fail_call("send", number)
        with raises(number):
            await call(loop, *pair)
    else:
        task = loop.create_task(call(loop, *pair))
        await turns(2)
        fail_call("recv", number)
        pair[1].send(b"data")
        with raises(number):
            await task
    assert await call(loop, *pair) == b"data"


@pytest.mark.parametrize("number", LASTING, ids=named)
async def test_a_send_that_fails_in_the_middle_raises(loop: Loop, number: int) -> None:
    near, far = tcp_pair()
    task = loop.create_task(loop.sock_sendall(near, b"x" * 8_000_000))
    await turns(3)
    fail_call("send", number)

    async def drain() -> None:
        while True:
            await loop.sock_recv(far, 1 << 20)

    reader = loop.create_task(drain())
    with raises(number):
        await task
    reader.cancel()
    await asyncio.wait([reader])
    close_each(near, far)


# ---- a BufferedProtocol that is received into directly -----------------------------------


async def bulk(loop: Loop, near: socket.socket, far: socket.socket) -> BufferedRecorder:
    """A protocol for which C receives the next bytes, after much that came at once."""
    _, protocol = await loop.create_connection(lambda: BufferedRecorder(1 << 18), sock=near)
    for sent in range(200_000, 1_800_000, 200_000):
        await loop.sock_sendall(far, b"x" * 200_000)
        await until(lambda sent=sent: len(protocol.data) == sent)  # type: ignore[misc]
    return protocol


@pytest.mark.parametrize("number", PASSING, ids=named)
async def test_bulk_is_tried_again(loop: Loop, number: int) -> None:
    near, far = tcp_pair()
    protocol = await bulk(loop, near, far)
    before = len(protocol.data)
    fail_call("recv", number, times=2)
    far.send(b"y" * 1000)
    await until(lambda: len(protocol.data) == before + 1000)
    far.close()
    await protocol.lost


@pytest.mark.parametrize("number", LASTING, ids=named)
async def test_a_failed_receive_in_bulk_ends_the_connection_with_its_error(
    loop: Loop, number: int, errors: Errors
) -> None:
    near, far = tcp_pair()
    protocol = await bulk(loop, near, far)
    fail_call("recv", number)
    far.send(b"y" * 1000)
    error = await protocol.lost
    assert isinstance(error, OSError)
    assert error.errno == number
    far.close()


# ---- datagrams ------------------------------------------------------------------------------


@pytest.fixture
def target() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        made.bind(("127.0.0.1", 0))
        made.settimeout(60)
        yield made


async def endpoint(loop: Loop, target: socket.socket, connected: bool) -> tuple[Any, Any]:
    """The protocol of an endpoint, and a function that sends to the target."""
    remote = target.getsockname()
    _, protocol = await loop.create_datagram_endpoint(
        DatagramRecorder, remote_addr=remote if connected else None, local_addr=("127.0.0.1", 0)
    )
    return protocol, lambda data: protocol.transport.sendto(data, None if connected else remote)


@pytest.mark.parametrize("connected", [False, True])
@pytest.mark.parametrize("number", PASSING, ids=named)
async def test_a_datagram_that_would_block_waits_and_is_sent(
    loop: Loop, target: socket.socket, number: int, connected: bool
) -> None:
    """EAGAIN: until the kernel has room; EINTR: the call is made again."""
    protocol, send_datagram = await endpoint(loop, target, connected)
    fail_call("sendto", number)
    send_datagram(b"first")
    send_datagram(b"second")
    await until(lambda: protocol.transport.get_write_buffer_size() == 0)
    assert (target.recv(100), target.recv(100)) == (b"first", b"second")
    assert protocol.errors == []
    await hang_up(protocol)


@pytest.mark.parametrize("connected", [False, True])
@pytest.mark.parametrize("number", [*LASTING, errno.EMSGSIZE, errno.ECONNREFUSED], ids=named)
async def test_failed_datagram_is_reported_and_the_next_one_is_sent(
    loop: Loop, target: socket.socket, number: int, connected: bool
) -> None:
    protocol, send_datagram = await endpoint(loop, target, connected)
    fail_call("sendto", number)
    send_datagram(b"lost")
    assert [error.errno for error in protocol.errors] == [number]
    send_datagram(b"next")
    assert target.recv(100) == b"next"
    await hang_up(protocol)


async def test_failed_queued_datagram_is_reported_and_the_next_one_is_sent(
    loop: Loop, target: socket.socket
) -> None:
    protocol, send_datagram = await endpoint(loop, target, False)
    fail_call("sendto", errno.EAGAIN)
    for word in (b"first", b"second", b"third"):
        send_datagram(word)
    fail_call("sendto", errno.ECONNREFUSED, after=1)
    await until(lambda: protocol.transport.get_write_buffer_size() == 0)
    assert (target.recv(100), target.recv(100)) == (b"first", b"third")
    assert [type(error) for error in protocol.errors] == [ConnectionRefusedError]
    await hang_up(protocol)


# ---- operations done once per connection --------------------------------------------------------


@pytest.mark.parametrize("number", [errno.ENOTCONN, errno.EBADF, errno.ENOBUFS], ids=named)
async def test_a_failed_write_eof_raises(loop: Loop, pair: Pair, number: int) -> None:
    near, _ = pair
    transport, protocol = await loop.create_connection(Recorder, sock=near)
    fail_call("shutdown", number)
    with raises(number):
        transport.write_eof()
    await hang_up(protocol)


def asyncio_closes() -> bool:
    """Whether BaseEventLoop closes a socket that no transport could be made for (gh-153133)."""
    sock = Mock()
    base: Any = asyncio.BaseEventLoop
    making = base._create_connection_transport(Mock(), sock, Mock(side_effect=KeyError), None, None)
    with pytest.raises(KeyError):
        making.send(None)
    return bool(sock.close.called)


@pytest.mark.parametrize("call", ["setsockopt", "fcntl"])
@pytest.mark.parametrize("number", [errno.EBADF, errno.ENOMEM, errno.EPERM], ids=named)
async def test_a_transport_that_cannot_be_made_leaves_the_socket_as_asyncio_does(
    loop: Loop, call: str, number: int
) -> None:
    """Open, and its owner's; newer patch releases close it, by the owner's object."""

    class Refusing(socket.socket):
        def setsockopt(self, *_: Any) -> None:
            raise OSError(number, os.strerror(number))

    near, far = tcp_pair()
    if call == "setsockopt":  # TCP_NODELAY, of which Python's code takes care
        near = Refusing(near.family, near.type, socket.IPPROTO_TCP, near.detach())
    else:
        fail_call(call, number)
    with raises(number):
        await loop.create_connection(Recorder, sock=near)
    await turns(3)
    if asyncio_closes():
        assert near.fileno() == -1
        assert far.recv(100) == b""
        far.close()
        return
    far.send(b"still here")
    assert await loop.sock_recv(near, 100) == b"still here"
    close_each(near, far)
    assert near.fileno() == -1


async def test_an_endpoint_that_cannot_be_made_leaves_the_socket_open(loop: Loop) -> None:
    fail_call("fcntl", errno.EBADF)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        with raises(errno.EBADF):
            await loop.create_datagram_endpoint(DatagramRecorder, sock=sock)
        assert sock.fileno() >= 0
    assert sock.fileno() == -1


async def test_a_pipe_that_cannot_be_duplicated_is_an_error(loop: Loop) -> None:
    class Number:
        def __init__(self, fd: int) -> None:
            self.fd = fd

        def fileno(self) -> int:
            return self.fd

        def close(self) -> None:
            os.close(self.fd)

    reading, writing = os.pipe()
    fail_call("dup", errno.EMFILE)
    with raises(errno.EMFILE):
        await loop.connect_read_pipe(Recorder, Number(reading))
    os.close(reading)
    os.close(writing)
