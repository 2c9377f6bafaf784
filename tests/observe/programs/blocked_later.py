"""The program `blocked_later` of test_asking_socket.py."""

import asyncio
import re
import sys

import goloop


async def main():
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    re.match("(a+)+$", "a" * 60 + "b")  # holds the GIL for years


goloop.run(main())
