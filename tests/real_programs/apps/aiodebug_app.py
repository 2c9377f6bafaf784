"""aiodebug looks at slow callbacks, lags and a hang, which it writes into FOLDER."""

import asyncio
import os
import sys
import time

from aiodebug import hang_inspection, log_slow_callbacks, monitor_loop_lag

import goloop

folder = sys.argv[1]
slow, lags = [], []
log_slow_callbacks.enable(0.02, on_slow_callback=lambda name, seconds: slow.append(name))


def too_slow():
    time.sleep(0.03)


async def slow_step():
    time.sleep(0.03)


def hangs():
    while not any(os.path.getsize(os.path.join(folder, name)) for name in os.listdir(folder)):
        time.sleep(0.01)


class Statsd:
    def timing(self, name, value):
        lags.append(name)


async def main():
    loop = asyncio.get_running_loop()
    loop.call_soon(too_slow)
    await asyncio.create_task(slow_step())
    monitor_loop_lag.enable(Statsd(), interval=0.01)
    while not lags:
        await asyncio.sleep(0.01)
    watch = hang_inspection.start(folder, interval=0.1)
    await asyncio.sleep(0.01)
    hangs()
    await hang_inspection.stop_wait(watch)
    assert any("too_slow" in name for name in slow), slow
    assert any("slow_step" in name for name in slow), slow
    print("found by", type(loop).__module__)


goloop.run(main())
