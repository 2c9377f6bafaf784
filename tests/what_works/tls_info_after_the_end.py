"""The peer's name of a closed TLS connection can be read, for example for a log.

report: none
asyncio: AttributeError
uvloop: right
"""

import asyncio
import os
import socket
import sys

sys.path.append(os.path.join(os.path.dirname(__file__), "..", "support"))
from showing import show
from tls_tools import client_context, server_context


async def main() -> str:
    near, far = socket.socketpair()

    async def serves(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda loop, told: None)
    server = asyncio.StreamReaderProtocol(asyncio.StreamReader(), serves)
    accepting = loop.connect_accepted_socket(lambda: server, far, ssl=server_context())
    connecting = asyncio.open_connection(
        sock=near, ssl=client_context(), server_hostname="localhost"
    )
    (reader, writer), _ = await asyncio.gather(connecting, accepting)
    await reader.read()
    writer.close()
    await asyncio.sleep(0.05)
    try:
        writer.get_extra_info("peername")
        writer.transport.is_closing()
        writer.transport.get_write_buffer_size()
    except AttributeError:
        return "AttributeError"
    return "right"


if __name__ == "__main__":
    show(main)
