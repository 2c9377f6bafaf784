"""A write to a lost connection is dropped.

report: MagicStack/uvloop#506
asyncio: right
uvloop: RuntimeError
"""

import asyncio
import logging
import socket

from showing import show


async def main() -> str:
    logging.disable(logging.WARNING)
    near, far = socket.socketpair()
    _, writer = await asyncio.open_connection(sock=near)
    far.close()
    writer.transport.abort()
    await asyncio.sleep(0.01)
    for _ in range(3):
        writer.transport.write(b"late")
    return "right"


if __name__ == "__main__":
    show(main)
