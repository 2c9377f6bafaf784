"""The scenarios of test_tls_safety.py: `python tls_safety_scenarios.py NAME` runs one."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import ssl
import sys
import warnings

import goloop


def a_struck_connection() -> None:
    warnings.simplefilter("ignore")
    certificate, key, action, moment, buffered = sys.argv[2:]

    server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_context.load_cert_chain(certificate, key)
    client_context = ssl.create_default_context(cafile=certificate)
    struck, inside = 0, []

    def seen(connection, direction, *rest):
        if inside and not struck:
            strike(inside[0])

    if moment == "callback":
        client_context._msg_callback = seen

    class Fake:
        """As long as an _ssl._SSLSocket, with its context where that has it."""

        __slots__ = ("a", "b", "context", "d", "e", "f")

    def strike(transport):
        nonlocal struck
        struck += 1
        protocol = transport._ssl_protocol
        sslobj = protocol._sslobj
        if action == "inner":
            sslobj._sslobj = None
        elif action == "inner, fake":
            fake = Fake()
            fake.context = sslobj.context
            fake.b = b"no SSL at all"
            sslobj._sslobj = fake
            protocol._sslobj = sslobj
        elif action == "inner, other":
            incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            other = client_context.wrap_bio(incoming, outgoing, server_hostname="localhost")
            sslobj._sslobj = other._sslobj
        elif action == "sslobj":
            protocol._sslobj = None
        elif action == "bios":
            protocol._incoming = ssl.MemoryBIO()
            protocol._outgoing = ssl.MemoryBIO()
        elif action == "no bios":
            del protocol._incoming
            del protocol._outgoing
        elif action == "backlog":
            del protocol._write_backlog
        elif action == "app":
            protocol._app_protocol = None
            protocol._app_protocol_get_buffer = None
            protocol._app_protocol_buffer_updated = None
        elif action == "buffer":
            protocol._app_protocol_is_buffer = True
        elif action == "transport":
            protocol._transport = None
        sslobj = None
        gc.collect()

    class Client(asyncio.Protocol):
        def connection_made(self, transport):
            self.transport = transport
            transport.write(b"x" * 100_000)
            if moment == "pause":
                sock = transport.get_extra_info("socket")
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
                transport.set_write_buffer_limits(0)
                transport.write(b"y" * 1_000_000)
            if moment == "callback":
                inside.append(transport)  # the next record calls it, within OpenSSL
                transport.write(b"y")

        def data_received(self, data):
            if moment == "data" and not struck:
                strike(self.transport)
            self.transport.write(b"more")
            if moment == "after" and not struck:
                strike(self.transport)
            self.transport.write(data[:2000])

        def pause_writing(self):
            if moment == "pause" and not struck:
                strike(self.transport)

    class Buffered(asyncio.BufferedProtocol):
        connection_made = Client.connection_made
        pause_writing = Client.pause_writing
        room = bytearray(5000)

        def get_buffer(self, hint):
            if moment == "data" and not struck:
                strike(self.transport)
            return self.room

        def buffer_updated(self, n):
            if moment == "after" and not struck:
                strike(self.transport)
            self.transport.write(b"z" * 1000)

    class Server(asyncio.Protocol):
        def connection_made(self, transport):
            self.transport = transport

        def data_received(self, data):
            self.transport.write(data)

    async def main():
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda loop, context: None)
        server = await loop.create_server(Server, "127.0.0.1", 0, ssl=server_context)
        port = server.sockets[0].getsockname()[1]
        # A connection that is broken within connection_made() may never be made.
        with contextlib.suppress(TimeoutError, OSError):
            transport, _ = await asyncio.wait_for(
                loop.create_connection(
                    Buffered if buffered == "True" else Client,
                    "127.0.0.1",
                    port,
                    ssl=client_context,
                    server_hostname="localhost",
                ),
                2,
            )
            await asyncio.sleep(0.05)
            if moment == "idle":
                strike(transport)
                with contextlib.suppress(Exception):
                    transport.write(b"w" * 100_000)
                await asyncio.sleep(0.05)
            transport.abort()
        server.close()
        await asyncio.sleep(0.02)

    goloop.run(main())
    gc.collect()
    print("alive", struck)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
