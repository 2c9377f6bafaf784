"""The scenarios of test_lock_waits.py: `python lock_waits_scenarios.py NAME` runs one."""

from __future__ import annotations

import asyncio
import faulthandler
import sys
import threading

import goloop


def another_thread_asks_a_busy_loop() -> None:
    faulthandler.dump_traceback_later(100, exit=True)

    def asks(transport, done):
        for _ in range(300):
            assert not transport.is_closing()
        done.append(True)

    async def main():
        loop = asyncio.get_running_loop()
        server = await loop.create_server(asyncio.Protocol, "127.0.0.1", 0)
        transport, _ = await loop.create_connection(
            asyncio.Protocol, *server.sockets[0].getsockname()
        )
        done = []
        thread = threading.Thread(target=asks, args=(transport, done))
        thread.start()
        while not done:
            for _ in range(100):  # computes, so that the lock is often taken
                loop.call_soon(sum, range(100))
            await asyncio.sleep(0)
        thread.join()
        transport.abort()
        server.close()

    goloop.run(main())


if __name__ == "__main__":
    globals()[sys.argv[1]]()
