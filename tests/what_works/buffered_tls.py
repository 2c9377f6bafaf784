"""TLS with a `BufferedProtocol`: all bytes that the peer sent before its end arrive.

report: none
asyncio: loses bytes
uvloop: loses bytes
"""

import asyncio
import contextlib
import os
import socket
import ssl
import sys
import threading

sys.path.append(os.path.join(os.path.dirname(__file__), "..", "support"))
from showing import show
from tls_tools import client_context, server_context

SIZE = 50_000
greeted, paused, sent = threading.Event(), threading.Event(), threading.Event()


def serves(sock: socket.socket) -> None:
    connection = server_context().wrap_socket(sock, server_side=True)
    connection.recv(5)
    greeted.set()
    paused.wait(10)
    connection.sendall(bytes(SIZE))
    connection.setblocking(False)
    with contextlib.suppress(ssl.SSLWantReadError):
        connection.unwrap()
    connection.shutdown(socket.SHUT_WR)
    sent.set()


async def main() -> str:
    loop = asyncio.get_running_loop()
    near, far = socket.socketpair()
    # All bytes and the end have to be in the kernel before the first is read.
    far.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8 * SIZE)

    class Receiver(asyncio.BufferedProtocol):
        def __init__(self) -> None:
            self.buffer, self.count = bytearray(500), 0
            self.lost = loop.create_future()

        def get_buffer(self, hint: int) -> bytearray:
            return self.buffer

        def buffer_updated(self, size: int) -> None:
            self.count += size

        def connection_lost(self, exc: Exception | None) -> None:
            self.lost.set_result(exc)

    thread = threading.Thread(target=serves, args=(far,))
    thread.start()
    options = {"ssl": client_context(), "server_hostname": "localhost"}
    transport, receiver = await loop.create_connection(Receiver, sock=near, **options)
    # The greeting takes along the handshake's last message, which these loops hold back.
    transport.write(b"hello")
    await asyncio.to_thread(greeted.wait, 10)
    transport.pause_reading()
    paused.set()
    if not await asyncio.to_thread(sent.wait, 10):
        return "the peer cannot send"
    transport.resume_reading()
    await asyncio.wait_for(receiver.lost, 20)
    far.close()
    await asyncio.to_thread(thread.join)
    return "right" if receiver.count == SIZE else "loses bytes"


if __name__ == "__main__":
    show(main)
