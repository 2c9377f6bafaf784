"""An endpoint connected to the broadcast address.

report: none
asyncio: right
uvloop: EACCES
"""

import asyncio
import errno

from showing import show


async def main() -> str:
    loop = asyncio.get_running_loop()
    try:
        transport, _ = await loop.create_datagram_endpoint(
            asyncio.DatagramProtocol, remote_addr=("127.255.255.255", 9), allow_broadcast=True
        )
    except OSError as exc:
        return errno.errorcode[exc.errno or 0]
    transport.close()
    await asyncio.sleep(0)
    return "right"


if __name__ == "__main__":
    show(main)
