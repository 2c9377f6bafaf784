"""The context of data that TLS kept while its protocol had paused reading.

It is asyncio's, and uvloop's differs: docs/from-uvloop.md.
"""

from __future__ import annotations

import asyncio
import contextvars
from typing import Any

from protocols import Made, Recorder, close_all, turns, until
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
