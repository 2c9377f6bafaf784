"""A client that closes a TLS connection during a download stops reading.

report: MagicStack/uvloop#471
asyncio: SSLError
uvloop: reads on
"""

import asyncio
import os
import socket
import ssl
import sys
import threading

sys.path.append(os.path.join(os.path.dirname(__file__), "..", "support"))
from showing import show
from tls_tools import client_context, server_context


async def main() -> str:
    near, far = socket.socketpair()
    sent = 0

    def serves() -> None:
        nonlocal sent
        try:
            with server_context().wrap_socket(far, server_side=True) as connection:
                while sent < 300_000_000:
                    sent += connection.send(bytes(100_000))
        except OSError:
            pass

    thread = threading.Thread(target=serves)
    thread.start()
    reader, writer = await asyncio.open_connection(
        sock=near, ssl=client_context(), server_hostname="localhost"
    )
    await reader.readexactly(100_000)
    writer.close()
    try:
        await asyncio.wait_for(writer.wait_closed(), 20)
        word = "right"
    except ssl.SSLError:
        word = "SSLError"
    except OSError as exc:
        word = type(exc).__name__
    await asyncio.to_thread(thread.join)
    return "reads on" if sent > 100_000_000 else word


if __name__ == "__main__":
    show(main)
