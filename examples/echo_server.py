"""An echo server: `python examples/echo_server.py [PORT]`, on 127.0.0.1.

Everything but the last lines is plain asyncio; `goloop.run` instead of
`asyncio.run` is what puts it on goloop.  Port 0 lets the system choose; the
first line of output names the port.
"""

import asyncio
import contextlib
import sys

import goloop


class Echo(asyncio.Protocol):
    """Sends back what it gets, and reads no more while the peer doesn't."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keeps the transport."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """Sends it back."""
        self.transport.write(data)

    def pause_writing(self) -> None:
        """The peer does not keep up: what it sends now would only pile up here."""
        self.transport.pause_reading()

    def resume_writing(self) -> None:
        """The peer caught up."""
        self.transport.resume_reading()


async def main(port: int) -> None:
    """Serves until it is interrupted."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Echo, "127.0.0.1", port)
    print(f"listening on port {server.sockets[0].getsockname()[1]}", flush=True)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        goloop.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 8888))
