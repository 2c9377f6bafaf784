"""The scenarios of test_busy_poll.py: `python busy_poll_scenarios.py NAME` runs one."""

from __future__ import annotations

import asyncio
import socket
import sys
import threading

import goloop


def the_variable_reaches_the_loops_of_a_program() -> None:
    async def main():
        here, there = socket.socketpair()
        reader, writer = await asyncio.open_connection(sock=here)

        def client():
            for _ in range(100):
                there.send(b"x")
                there.recv(1)

        thread = threading.Thread(target=client)
        thread.start()
        for _ in range(100):
            writer.write(await reader.read(1))
        await asyncio.to_thread(thread.join)
        assert (
            asyncio.get_running_loop().metrics().busy_polls > 0
        )  # attempts, with a hit or without
        writer.close()
        there.close()

    goloop.run(main())


if __name__ == "__main__":
    globals()[sys.argv[1]]()
