"""`loop.sock_connect()` to a link-local address with its interface index.

report: none
asyncio: right
uvloop: EINVAL
"""

import asyncio
import errno
import socket

from showing import show


async def main() -> str:
    loop = asyncio.get_running_loop()
    address = "fe80::1", 9, 0, socket.if_nametoindex("lo")
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as sock:
            sock.setblocking(False)
            await loop.sock_connect(sock, address)
    except OSError as exc:  # a kernel may have no such route, or no IPv6
        return "EINVAL" if exc.errno == errno.EINVAL else "right"
    return "right"


if __name__ == "__main__":
    show(main)
