"""The scenarios of test_datagram_object.py, each run by its name."""

from __future__ import annotations

import asyncio
import socket
import sys


def audited() -> None:
    module = asyncio if sys.argv[2] == "asyncio" else __import__("goloop")
    events = []

    def hook(event, args):
        if event == "socket.sendto":
            events.append(args[1])

    async def main():
        loop = asyncio.get_running_loop()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
            udp.bind(("127.0.0.1", 0))
            transport, _ = await loop.create_datagram_endpoint(
                asyncio.DatagramProtocol, local_addr=("127.0.0.1", 0)
            )
            sys.addaudithook(hook)
            addresses = [udp.getsockname(), ("127.1", udp.getsockname()[1])]
            for address in addresses:
                transport.sendto(b"x", address)
            assert events == addresses, events
            transport.close()
            await asyncio.sleep(0)

    module.run(main())


if __name__ == "__main__":
    globals()[sys.argv[1]]()
