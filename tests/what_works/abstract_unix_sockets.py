"""A connection to an abstract Unix socket.

report: MagicStack/uvloop#528
asyncio: right
uvloop: EINVAL
"""

import asyncio
import errno
import os

from showing import show


async def main() -> str:
    name = f"\0what-works-{os.getpid()}".encode()
    try:
        server = await asyncio.start_unix_server(lambda reader, writer: writer.close(), name)
        reader, writer = await asyncio.open_unix_connection(name)
    except OSError as exc:
        return errno.errorcode[exc.errno or 0]
    await reader.read()
    writer.close()
    await writer.wait_closed()
    server.close()
    return "right"


if __name__ == "__main__":
    show(main)
