"""Writes of resume_writing() after the transport was closed.

TLS needs these: its close_notify waits until the transport has room again.
"""

from __future__ import annotations

import asyncio
import socket

from protocols import Recorder, until

Loop = asyncio.AbstractEventLoop


class Late(Recorder):
    """Has something left to say."""

    def resume_writing(self) -> None:
        super().resume_writing()
        self.transport.write(b"last words")


async def test_bytes_written_by_resume_writing_after_close_are_sent(
    loop: Loop, pair: tuple[socket.socket, socket.socket]
) -> None:
    near, far = pair
    transport, protocol = await loop.connect_accepted_socket(Late, near)
    sent = 0
    while "pause" not in protocol.names():
        transport.write(bytes(200_000))
        sent += 200_000
        await asyncio.sleep(0)
    # Nothing of the loop runs from here to close(): the kernel has room for all that
    # is queued by then.
    received = 0
    try:
        while True:
            received += len(far.recv(1 << 20))
    except BlockingIOError:
        pass
    transport.close()
    tail = b""
    while data := await loop.sock_recv(far, 1 << 20):
        received += len(data)
        tail = (tail + data)[-len(b"last words") :]
    assert tail == b"last words"
    assert received == sent + len(b"last words")
    assert await protocol.lost is None
    assert protocol.names()[-2:] == ["resume", "lost"]


async def test_sent_last_bytes_end_the_poll(loop: Loop) -> None:
    """The last bytes leave in a turn that could wait for ever: that they have left ends it.

    The connection is an accepted one: a write on a socket of the caller's is sent at once.
    """
    made: list[Late] = []

    def factory() -> Late:
        made.append(Late())
        return made[0]

    server = await loop.create_server(factory, "127.0.0.1", 0)
    far = socket.create_connection(server.sockets[0].getsockname())
    far.setblocking(False)
    await until(lambda: made and "made" in made[0].names())
    server.close()
    protocol, transport = made[0], made[0].transport
    transport.pause_reading()
    while "pause" not in protocol.names():
        transport.write(bytes(200_000))
        await asyncio.sleep(0)
    try:
        while far.recv(1 << 20):
            pass
    except BlockingIOError:
        pass
    transport.close()
    # The peer does not stir any more.
    assert await protocol.lost is None
    assert protocol.names()[-2:] == ["resume", "lost"]
    far.close()
