"""The program `forks_with_a_notifier` of test_systemd.py."""

import asyncio
import os

import goloop
import goloop.systemd


async def main(name):
    goloop.systemd.notify(f"STATUS={name}")
    async with goloop.systemd.watchdog():
        await asyncio.sleep(0.1)


goloop.run(main("parent"))
if child := os.fork():
    assert os.waitpid(child, 0)[1] == 0
    goloop.systemd.notify("STATUS=over")
else:
    goloop.run(main("child"))
    os._exit(0)
