"""A datagram endpoint at the path of a Unix socket.

report: MagicStack/uvloop#403
asyncio: right
uvloop: TypeError
"""

import asyncio
import os
import socket
import tempfile

from showing import show


async def main() -> str:
    loop = asyncio.get_running_loop()
    with tempfile.TemporaryDirectory() as folder:
        transport, _ = await loop.create_datagram_endpoint(
            asyncio.DatagramProtocol, os.path.join(folder, "socket"), family=socket.AF_UNIX
        )
        transport.close()
        await asyncio.sleep(0)
    return "right"


if __name__ == "__main__":
    show(main)
