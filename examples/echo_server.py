"""An echo server: `python examples/echo_server.py [PORT]`, on 127.0.0.1.

The server is plain asyncio; only the last lines choose goloop, by `goloop.run`
instead of `asyncio.run`.  Port 0 lets the system choose; the first line of output has
the port.
"""

import asyncio
import contextlib
import sys

import goloop


class Echo(asyncio.Protocol):
    """Echoes received bytes, and stops reading while the peer does not read."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keeps the transport."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """Sends it back."""
        self.transport.write(data)

    def pause_writing(self) -> None:
        """Stop reading: the peer does not read, so further answers would only pile up."""
        self.transport.pause_reading()

    def resume_writing(self) -> None:
        """Read again: the peer has read the answers."""
        self.transport.resume_reading()


async def main(port: int) -> None:
    """Serve until interrupted."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Echo, "127.0.0.1", port)
    print(f"listening on port {server.sockets[0].getsockname()[1]}", flush=True)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        goloop.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 8888))
