"""A signal handler runs at once, even if a library has set its own wakeup descriptor.

report: none
asyncio: right
uvloop: runs late
"""

import asyncio
import os
import signal
import socket
import threading
import time

from showing import show


async def main() -> str:
    ran: list[float] = []
    near, far = socket.socketpair()
    near.setblocking(False)
    before = signal.set_wakeup_fd(near.fileno())
    signal.signal(signal.SIGUSR1, lambda *args: ran.append(time.monotonic()))
    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGUSR1)).start()
    began = time.monotonic()
    await asyncio.sleep(1)
    signal.set_wakeup_fd(before)
    near.close()
    far.close()
    return "right" if ran and ran[0] < began + 0.8 else "runs late"


if __name__ == "__main__":
    show(main)
