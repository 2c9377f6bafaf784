"""A task that computes for 0.15 s at times, for the applications culprit_*.py."""

import asyncio
import os
import threading
import time


def compute(seconds):
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


async def recompute():
    while True:
        compute(0.15)
        await asyncio.sleep(0.1)


def begin():
    """The task, which its caller keeps."""
    return asyncio.get_running_loop().create_task(recompute(), name="nightly figures")


def told():
    return {"pid": os.getpid(), "thread": threading.current_thread().name}
