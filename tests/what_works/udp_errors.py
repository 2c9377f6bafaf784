"""A queued datagram that can't be sent prints nothing to the standard output.

report: none
asyncio: right
uvloop: prints
"""

import asyncio
import os
import socket
import sys
import tempfile

from showing import show


async def main() -> str:
    loop = asyncio.get_running_loop()
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    loop.set_exception_handler(lambda loop, told: None)
    transport, _ = await loop.create_datagram_endpoint(asyncio.DatagramProtocol, sock=near)
    kept = os.dup(1)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 1)
        for _ in range(1000):  # more than the kernel keeps for the peer
            transport.sendto(b"text")
        far.close()
        await asyncio.sleep(0.05)
        transport.close()
        await asyncio.sleep(0)
        sys.stdout.flush()
        os.dup2(kept, 1)
        file.seek(0)
        return "prints" if file.read() else "right"


if __name__ == "__main__":
    show(main)
