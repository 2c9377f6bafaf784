"""TLS while the protocol has paused reading: waiting data, and the context of its delivery.

Both are asyncio's, and uvloop's differ: docs/from-uvloop.md.
"""

from __future__ import annotations

import asyncio
import contextvars
import socket
import ssl
import threading
from typing import Any

from protocols import Made, Recorder, close_all, hang_up, turns, until
from tls_tools import client_context, server_context

Loop = asyncio.AbstractEventLoop

WHERE: contextvars.ContextVar[str] = contextvars.ContextVar("WHERE", default="nowhere")


async def test_data_kept_while_paused_arrives_in_the_context_of_the_resumer(loop: Loop) -> None:
    """The next data comes in the connection's again."""
    got: asyncio.Queue[str] = asyncio.Queue()

    class Server(Recorder):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            WHERE.set("connection")

        def data_received(self, data: bytes) -> None:
            got.put_nowait(WHERE.get())

    accepted = Made(Server)

    def resume() -> None:
        WHERE.set("resumer")
        accepted[0].transport.resume_reading()

    server = await loop.create_server(accepted, "127.0.0.1", 0, ssl=server_context())
    _reader, writer = await asyncio.open_connection(
        *server.sockets[0].getsockname(), ssl=client_context(), server_hostname="localhost"
    )
    writer.write(b"1")
    assert await got.get() == "connection"
    accepted[0].transport.pause_reading()
    writer.write(b"2")
    protocol = accepted[0].transport._ssl_protocol
    await until(lambda: protocol._incoming.pending or not protocol._transport.is_reading())
    await turns(5)
    assert got.empty()
    contextvars.copy_context().run(resume)
    assert await got.get() == "resumer"
    writer.write(b"3")
    assert await got.get() == "connection"
    await close_all(writer)
    await accepted[0].lost
    await close_all(server)


async def test_eof_waits_for_data_while_reading_is_paused(loop: Loop) -> None:
    """The peer sends and ends; nothing of it is lost, and nothing told before resume_reading()."""
    listening = socket.create_server(("127.0.0.1", 0))
    ended = threading.Event()

    def serve() -> None:
        plain, _ = listening.accept()
        with server_context().wrap_socket(plain, server_side=True) as sock:
            sock.send(b"hello")
            assert sock.recv(100) == b"world"
            sock.send(b"extra")
            sock.shutdown(socket.SHUT_WR)
            ended.wait(60)

    class Client(Recorder):
        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if data == b"hello":
                self.transport.write(b"world")
                self.transport.pause_reading()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    context: ssl.SSLContext = client_context()
    transport, protocol = await loop.create_connection(
        Client, *listening.getsockname(), ssl=context, server_hostname="localhost"
    )
    await until(lambda: protocol.data)
    below: Any = transport._ssl_protocol._transport  # type: ignore[attr-defined]
    sock = below.get_extra_info("socket")
    # Both, data and end, are in the kernel or in TLS by then.
    await until(lambda: _has_ended(sock))
    await turns(10)
    assert protocol.names() == ["made", "data"]
    assert not protocol.lost.done()
    transport.resume_reading()
    await protocol.eof
    assert protocol.data == b"helloextra"
    ended.set()
    await hang_up(protocol)
    thread.join()
    listening.close()


def _has_ended(sock: Any) -> bool:
    """Whether the peer has half-closed the connection: TCP_INFO's state is CLOSE_WAIT."""
    state: int = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
    return state == 8
