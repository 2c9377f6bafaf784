"""The program `one_loop_after_another` of test_top.py."""

import asyncio
import sys

import goloop


async def main():
    print("ready", flush=True)
    while not stop:
        await asyncio.sleep(0.01)


stop = []


def watch():
    sys.stdin.readline()
    stop.append(1)


import threading

threading.Thread(target=watch).start()
goloop.run(main())
stop.clear()
goloop.run(main())
