"""A handler of `signal.signal()` raises: the exception leaves the loop.

report: MagicStack/uvloop#94
asyncio: right
uvloop: is swallowed
process: its own
"""

import asyncio
import os
import signal
import threading

from showing import new_loop, show


class Stop(Exception):
    pass


def handler(number: int, frame: object) -> None:
    raise Stop


def runs() -> str:
    loop = new_loop()
    signal.signal(signal.SIGUSR1, handler)
    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGUSR1)).start()
    try:
        loop.run_until_complete(asyncio.sleep(0.4))
    except Stop:
        return "right"
    finally:
        loop.close()
    return "is swallowed"


async def main() -> str:
    return word


if __name__ == "__main__":
    word = runs()
    show(main)
