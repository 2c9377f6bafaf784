"""A datagram endpoint with an error queue, as for ping or QUIC: an error does not make it spin.

report: none
asyncio: spins
uvloop: crashes
"""

import asyncio
import socket
import time

from showing import show

IP_RECVERR = 11


async def main() -> str:
    loop = asyncio.get_running_loop()
    sock, closed = (socket.socket(type=socket.SOCK_DGRAM) for _ in range(2))
    closed.bind(("127.0.0.1", 0))
    sock.bind(("127.0.0.1", 0))
    sock.setsockopt(socket.IPPROTO_IP, IP_RECVERR, 1)
    where = closed.getsockname()
    closed.close()
    transport, _ = await loop.create_datagram_endpoint(asyncio.DatagramProtocol, sock=sock)
    transport.sendto(b"text", where)
    await asyncio.sleep(0.1)
    used = time.process_time()
    await asyncio.sleep(0.5)
    spins = time.process_time() - used > 0.04
    transport.abort()
    await asyncio.sleep(0)
    return "spins" if spins else "right"


if __name__ == "__main__":
    show(main)
