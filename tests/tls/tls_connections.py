"""Tools of the TLS tests: a connection whose other side is a `tls_tools.Peer`.

A Peer is blocking OpenSSL in a thread.
"""

from __future__ import annotations

import asyncio
import hashlib
import socket
import ssl
from collections.abc import Callable
from typing import Any

import pytest
from conftest import tcp_pair
from protocols import BufferedRecorder, Recorder
from tls_tools import VERSIONS, Peer, client_context, server_context

Loop = asyncio.AbstractEventLoop
ROLES = ["client", "server"]
# Seconds, for a thread that waits for the loop: a test that failed must not hang too.
TIME_LIMIT = 30
# OpenSSL's reason, from 3.2 on, for every record that it can't read.
RECORD_LAYER = "RECORD_LAYER_FAILURE"
by_role = pytest.mark.parametrize("role", ROLES)
by_version = pytest.mark.parametrize("version", VERSIONS, ids=lambda v: str(v.name))


def contexts(
    role: str, version: ssl.TLSVersion | None = None
) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """The context of the loop's side, which has that role, and of the peer."""
    client, server = client_context(version=version), server_context(version=version)
    return (client, server) if role == "client" else (server, client)


async def over(
    loop: Loop, factory: Callable[[], Any], sock: socket.socket, context: ssl.SSLContext,
    role: str, **options: Any,
) -> Any:  # fmt: skip
    """TLS on a connected socket; the protocol, once the handshake is done."""
    if role == "server":
        _, protocol = await loop.connect_accepted_socket(factory, sock, ssl=context, **options)
    else:
        options.setdefault("server_hostname", "localhost")
        _, protocol = await loop.create_connection(factory, sock=sock, ssl=context, **options)
    return protocol


async def with_peer(
    loop: Loop,
    role: str,
    peer_does: Callable[[Peer], Any],
    *,
    factory: Callable[[], Any] = Recorder,
    version: ssl.TLSVersion | None = None,
    own: ssl.SSLContext | None = None,
    others: ssl.SSLContext | None = None,
    **options: Any,
) -> tuple[Any, asyncio.Future[Any]]:
    """A connection whose other side is a Peer that shakes hands and goes on in a thread."""
    first, second = contexts(role, version)
    near, far = tcp_pair()
    peer = Peer(far, others or second, server_side=role == "client")

    def run() -> Any:
        with far:
            peer.handshake()
            return peer_does(peer)

    working = asyncio.ensure_future(asyncio.to_thread(run))
    try:
        return await over(loop, factory, near, own or first, role, **options), working
    except BaseException:
        near.close()
        await asyncio.gather(working, return_exceptions=True)
        raise


def hexdigest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class ViewRecorder(BufferedRecorder):
    """asyncio's TLS slices the buffer, and a slice of a bytearray is a copy of it."""

    def __init__(self, size: int = 1000) -> None:
        super().__init__(size)

    def get_buffer(self, sizehint: int) -> Any:
        return memoryview(super().get_buffer(sizehint))
