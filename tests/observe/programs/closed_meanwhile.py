"""Four threads run and close 600 loops; four others ask for the metrics of all."""

import asyncio
import faulthandler
import threading

import goloop

faulthandler.enable()


async def work():
    for task in [asyncio.create_task(asyncio.sleep(0)) for _ in range(5)]:
        await task


def opens():
    for _ in range(150):
        goloop.run(work())


def asks():
    while any(thread.is_alive() for thread in openers):
        assert goloop.metrics().loops <= len(openers)


openers = [threading.Thread(target=opens) for _ in range(4)]
askers = [threading.Thread(target=asks) for _ in range(4)]
for thread in openers + askers:
    thread.start()
for thread in openers + askers:
    thread.join()
