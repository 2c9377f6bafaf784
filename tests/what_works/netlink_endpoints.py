"""A datagram endpoint of a netlink socket.

report: MagicStack/uvloop#676
asyncio: right
uvloop: ValueError
"""

import asyncio
import socket

from showing import show


async def main() -> str:
    loop = asyncio.get_running_loop()
    sock = socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, 0)
    sock.bind((0, 0))
    sock.setblocking(False)
    transport, _ = await loop.create_datagram_endpoint(asyncio.DatagramProtocol, sock=sock)
    transport.close()
    await asyncio.sleep(0)
    return "right"


if __name__ == "__main__":
    show(main)
