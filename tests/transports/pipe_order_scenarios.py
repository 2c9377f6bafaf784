"""The scenarios of test_pipe_order.py: `python pipe_order_scenarios.py NAME` runs one."""

from __future__ import annotations

import asyncio
import os
import socket
import sys


def child(received: str, written: str) -> None:
    """Answers each message of a connection with the bytes from stdin until then."""
    signals, answers = socket.socket(fileno=int(received)), int(written)
    os.set_blocking(0, False)
    while signals.recv(10):
        try:
            job = os.read(0, 100)
        except BlockingIOError:
            job = b"nothing"
        os.write(answers, job)


def print_follows_the_transport_of_stdout(loop_name: str) -> None:
    if loop_name == "goloop":
        from goloop import new_event_loop
    else:
        from asyncio import new_event_loop

    async def main():
        loop = asyncio.get_running_loop()
        out, _ = await loop.connect_write_pipe(asyncio.Protocol, os.fdopen(os.dup(1), "wb", 0))
        out.write(b"first\n")
        print("second", flush=True)
        out.write(b"third\n")
        os._exit(0)

    new_event_loop().run_until_complete(main())


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
