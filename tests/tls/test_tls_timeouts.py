"""Timeouts of TLS: received data is served before the timer."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
from typing import Any

import pytest
from conftest import tcp_pair
from protocols import Recorder, until
from tls_connections import by_version, with_peer
from tls_tools import Peer, client_context, server_context

from goloop._internal.tls.protocol import TLSProtocol

Loop = asyncio.AbstractEventLoop

pytestmark = pytest.mark.goloop_only("asyncio hands out all that has come, and then timers")


class Client:
    """A client whose steps are made by the test."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext) -> None:
        self.sock = sock
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")
        self.done = False

    def step(self) -> bool:
        """Make all possible steps; return true if the client's last message is in flight."""
        with contextlib.suppress(BlockingIOError):
            self.incoming.write(self.sock.recv(65536))
        try:
            self.tls.do_handshake()
            self.done = True
        except ssl.SSLWantReadError:
            pass
        return self.done

    def send(self) -> None:
        if data := self.outgoing.read():
            self.sock.sendall(data)


async def test_handshakes_with_received_last_messages_do_not_time_out(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The handshakes take turns, so most of them are not over when their timers are due."""
    made: list[Any] = []
    connection_made = TLSProtocol.connection_made

    def collect(self: Any, transport: Any) -> None:
        made.append(self)
        connection_made(self, transport)

    monkeypatch.setattr(TLSProtocol, "connection_made", collect)
    server, client = server_context(), client_context()
    pairs = [tcp_pair() for _ in range(40)]
    clients = [Client(far, client) for _, far in pairs]
    waiting = [
        asyncio.ensure_future(loop.connect_accepted_socket(Recorder, near, ssl=server))
        for near, _ in pairs
    ]
    for each in clients:
        each.step()
        each.send()
    for each in clients:
        await until(each.step)  # the last flight is made, and not sent
    for each in clients:
        each.send()
    for tls in made:
        loop.call_later(0, tls._check_handshake_timeout)
    protocols = [protocol for _, protocol in await asyncio.gather(*waiting)]
    for protocol in protocols:
        assert protocol.names() == ["made"]
        protocol.transport.abort()
        assert await protocol.lost is None
    for each in clients:
        each.sock.close()


@by_version
async def test_received_close_notify_precedes_the_shutdown_timeout(
    loop: Loop, version: ssl.TLSVersion
) -> None:
    sent, goes_on = threading.Event(), threading.Event()

    def peer_does(peer: Peer) -> None:
        assert peer.read_all() == b""
        goes_on.wait(60)
        peer.notify()
        sent.set()
        peer.fill()

    protocol, working = await with_peer(loop, "client", peer_does, version=version)
    tls = protocol.transport._ssl_protocol
    protocol.transport.close()
    await until(lambda: tls._state.name == "SHUTDOWN")
    goes_on.set()
    assert sent.wait(60)  # the loop stands still, and the peer's answer comes
    tls._check_shutdown_timeout()
    assert await protocol.lost is None
    await working
