"""A TCP proxy with faults: python faulty_proxy.py PORT UPSTREAM LARGEST_SLICE RESET_AFTER.

It forwards connections of PORT to the port UPSTREAM, in slices of 1 to LARGEST_SLICE bytes.  If
RESET_AFTER is not 0, it resets both ends of each connection after a random number of bytes:
RESET_AFTER on average, 2 * RESET_AFTER at most.
"""

import asyncio
import random
import socket
import struct
import sys

PORT, UPSTREAM, LARGEST_SLICE, RESET_AFTER = map(int, sys.argv[1:])
rng = random.Random(51)


class Connection:
    """A client's connection, and its connection to the server."""

    def __init__(self, *writers):
        self.writers = writers
        self.left = rng.randint(1, 2 * RESET_AFTER) if RESET_AFTER else None

    async def forward(self, reader, writer):
        """Forwards one direction until its end, or until the connection is reset."""
        try:
            while data := await reader.read(65_536):
                while data:
                    size = rng.randint(1, LARGEST_SLICE)
                    part, data = data[:size], data[size:]
                    if self.left is not None:
                        self.left -= len(part)
                        if self.left <= 0:
                            self.reset()
                            return
                    writer.write(part)
                    await writer.drain()
                    await asyncio.sleep(0)
            writer.write_eof()
        except OSError:
            self.reset()

    def reset(self):
        """Ends both connections by a packet RST, without the bytes that are still to be sent."""
        for writer in self.writers:
            if not writer.is_closing():
                sock = writer.get_extra_info("socket")
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                writer.transport.abort()


async def serve(reader, writer):
    try:
        server_reader, server_writer = await asyncio.open_connection("127.0.0.1", UPSTREAM)
    except OSError:
        writer.transport.abort()
        return
    connection = Connection(writer, server_writer)
    await asyncio.gather(
        connection.forward(reader, server_writer), connection.forward(server_reader, writer)
    )
    for each in connection.writers:
        each.close()


async def main():
    async with await asyncio.start_server(serve, "127.0.0.1", PORT) as server:
        await server.serve_forever()


asyncio.run(main())
