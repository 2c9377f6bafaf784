"""Datagrams over a socketpair, which has no addresses.

report: none
asyncio: TypeError
uvloop: right
"""

import asyncio
import socket

from showing import show


async def main() -> str:
    loop = asyncio.get_running_loop()
    failed: list[str] = []
    loop.set_exception_handler(lambda loop, told: failed.append(type(told["exception"]).__name__))
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    far.setblocking(False)
    transport, _ = await loop.create_datagram_endpoint(asyncio.DatagramProtocol, sock=near)
    transport.sendto(b"text")
    await asyncio.sleep(0.05)
    with far:
        word = failed[0] if failed else "right" if far.recv(10) == b"text" else "another text"
    transport.close()
    await asyncio.sleep(0)
    return word


if __name__ == "__main__":
    show(main)
