"""TCP_NODELAY on every TCP connection, as under uvloop.

asyncio sets it where `sock.proto` says TCP, and a socket that is made without a protocol says 0:
servers bind such ones (uvicorn, gunicorn), and so does socket.create_server(). goloop sets it
there, too.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest
from protocols import Recorder, close_all, hang_up, until
from tls_tools import client_context, server_context

Loop = asyncio.AbstractEventLoop


def no_delay(protocol: Any) -> bool:
    sock = protocol.transport.get_extra_info("socket")
    return bool(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_connections_of_a_protocol_0_listener_have_no_delay(
    loop: Loop, loop_name: str, tls: bool, host: str
) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, 0), family=family)
    except OSError:
        pytest.skip("no IPv6 here")
    assert listening.proto == 0
    accepted = Recorder()
    server = await loop.create_server(
        lambda: accepted, sock=listening, ssl=server_context() if tls else None
    )
    near = Recorder()
    await loop.create_connection(
        lambda: near,
        *listening.getsockname()[:2],
        ssl=client_context() if tls else None,
        server_hostname="localhost" if tls else None,
    )
    await accepted.made
    assert no_delay(accepted) == (loop_name == "goloop")
    assert no_delay(near)
    await hang_up(near, accepted)
    await close_all(server)
    await until(lambda: not asyncio.all_tasks() - {asyncio.current_task()})


class OwnMethod(socket.socket):
    def send(self, data: Any, flags: int = 0) -> int:
        return super().send(data, flags)


@pytest.mark.parametrize("kind", [socket.socket, OwnMethod])
@pytest.mark.parametrize("way", ["create_connection", "connect_accepted_socket"])
async def test_connection_on_a_protocol_0_socket_has_no_delay(
    loop: Loop, loop_name: str, way: str, kind: Any
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        sock = kind(socket.AF_INET, socket.SOCK_STREAM)
        sock.connect(listening.getsockname())
        far, _ = listening.accept()
    sock.setblocking(False)
    assert sock.proto == 0
    protocol = Recorder()
    await getattr(loop, way)(lambda: protocol, sock=sock)
    assert no_delay(protocol) == (loop_name == "goloop")
    far.close()
    await protocol.lost


async def test_unix_connection_is_made_without_no_delay(loop: Loop) -> None:
    near, far = socket.socketpair()
    assert near.proto == 0
    near.setblocking(False)
    protocol = Recorder()
    await loop.create_connection(lambda: protocol, sock=near)
    far.close()
    assert await protocol.lost is None
