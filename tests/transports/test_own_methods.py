"""A socket with methods of its own: transports and sock_* calls go through them.

asyncio calls sock.recv(), sock.send() and their kin; libraries and tests put something between.
"""

from __future__ import annotations

import asyncio
import os
import socket
from typing import Any

import pytest
from protocols import BufferedRecorder, Recorder, hang_up, receive_exactly, until
from tls_tools import client_context, server_context

Loop = asyncio.AbstractEventLoop


class Counting(socket.socket):
    """Counts the bytes of its methods' calls, and sends and receives by small pieces."""

    received = sent = 0

    def recv(self, size: int, flags: int = 0) -> bytes:
        data = super().recv(min(size, 1000), flags)
        self.received += len(data)
        return data

    def recv_into(self, buffer: Any, nbytes: int = 0, flags: int = 0) -> int:
        count = super().recv_into(buffer, min(len(buffer), 1000), flags)
        self.received += count
        return count

    def send(self, data: Any, flags: int = 0) -> int:
        count = super().send(memoryview(data)[:1000], flags)
        self.sent += count
        return count

    def sendmsg(self, buffers: Any, *args: Any) -> int:
        return self.send(b"".join(bytes(each) for each in buffers)[:1000])


def pair(kind: Any = Counting) -> tuple[Any, socket.socket]:
    near, far = socket.socketpair()
    made = kind(near.family, near.type, near.proto, near.detach())
    made.setblocking(False)
    far.setblocking(False)
    return made, far


PAYLOAD = os.urandom(30_000)


async def exchange(loop: Loop, protocol: Any, far: socket.socket) -> None:
    protocol.transport.write(PAYLOAD)
    assert await receive_exactly(far, len(PAYLOAD)) == PAYLOAD
    await loop.sock_sendall(far, PAYLOAD)
    await until(lambda: len(protocol.data) == len(PAYLOAD))
    assert protocol.data == PAYLOAD


class ByMethods:
    """Buffered by its methods alone."""

    def __init__(self) -> None:
        self.inner = BufferedRecorder()

    def __getattr__(self, name: str) -> Any:
        if name == "data_received":
            raise AttributeError(name)
        return getattr(self.inner, name)


@pytest.mark.goloop_only("looks at the class (docs/compatibility.md)")
async def test_a_protocol_may_have_a_buffers_methods_alone(loop: Loop) -> None:
    near, far = pair()
    protocol: Any = ByMethods()
    await loop.create_connection(lambda: protocol, sock=near)
    await exchange(loop, protocol, far)
    far.close()
    assert await protocol.lost is None


@pytest.mark.parametrize("accepted", [False, True])
@pytest.mark.parametrize("kind", [Recorder, BufferedRecorder])
async def test_transport_calls_the_overridden_methods(loop: Any, kind: Any, accepted: bool) -> None:
    near, far = pair()
    if accepted:
        transport, protocol = await loop.connect_accepted_socket(kind, near)
    else:
        transport, protocol = await loop.create_connection(kind, sock=near)
    assert str(near.fileno()) in repr(transport)
    await exchange(loop, protocol, far)
    assert (near.received, near.sent) == (len(PAYLOAD), len(PAYLOAD))
    transport.pause_reading()
    assert not transport.is_reading()
    transport.resume_reading()
    far.close()
    assert await protocol.lost is None


async def test_a_method_of_the_instance_counts(loop: Loop) -> None:
    class Holder(socket.socket):
        pass

    holder, far = pair(Holder)
    seen: list[int] = []
    holder.recv = lambda size: seen.append(size) or socket.socket.recv(holder, size)
    protocol = Recorder()
    await loop.create_connection(lambda: protocol, sock=holder)
    far.send(b"seen")
    await until(lambda: protocol.data == b"seen")
    assert seen
    far.close()
    await protocol.lost


async def test_tls_uses_the_overridden_methods(loop: Loop) -> None:
    near, far = pair()
    accepted, protocol = Recorder(), Recorder()
    far.setblocking(False)
    serving = asyncio.ensure_future(
        loop.connect_accepted_socket(lambda: accepted, far, ssl=server_context())
    )
    await loop.create_connection(
        lambda: protocol, sock=near, ssl=client_context(), server_hostname="localhost"
    )
    await serving
    protocol.transport.write(PAYLOAD)
    accepted.transport.write(PAYLOAD)
    await until(lambda: len(protocol.data) == len(accepted.data) == len(PAYLOAD))
    assert (protocol.data, accepted.data) == (PAYLOAD, PAYLOAD)
    assert near.received > len(PAYLOAD)
    assert near.sent > len(PAYLOAD)
    await hang_up(protocol, accepted)


async def test_a_subclass_without_methods_of_its_own_is_native(loop: Loop, loop_name: str) -> None:
    class Plain(socket.socket):
        pass

    plain, far = pair(Plain)
    protocol = Recorder()
    transport, _ = await loop.create_connection(lambda: protocol, sock=plain)
    if loop_name == "goloop":
        assert type(transport).__module__ == "goloop._internal.net.stream_transport"
    far.close()
    await protocol.lost
