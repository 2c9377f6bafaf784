"""The scenarios of test_replaced_resolvers.py, each run by its name."""

from __future__ import annotations

import socket
import sys
import threading


def getaddrinfo_replaced_before_the_import_is_called() -> None:
    def getaddrinfo(host, *rest):
        assert threading.current_thread() is not threading.main_thread()
        return [host]

    socket.getaddrinfo = getaddrinfo
    import asyncio

    module = asyncio if sys.argv[2] == "asyncio" else __import__("goloop")

    async def main():
        loop = asyncio.get_running_loop()
        return await loop.getaddrinfo("127.0.0.1", 80), await loop.getaddrinfo("x.invalid", 80)

    assert module.run(main()) == (["127.0.0.1"], ["x.invalid"])


if __name__ == "__main__":
    globals()[sys.argv[1]]()
