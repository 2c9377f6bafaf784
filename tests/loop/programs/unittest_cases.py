import asyncio
import sys
import unittest

import goloop

steps = []


class Cases(unittest.IsolatedAsyncioTestCase):
    if sys.version_info >= (3, 13):
        loop_factory = goloop.Loop

    def setUp(self):
        steps.append("setUp")

    async def asyncSetUp(self):
        self.loop = asyncio.get_running_loop()
        assert type(self.loop) is goloop.Loop
        self.addAsyncCleanup(self.clean)
        steps.append("asyncSetUp")

    async def test_first(self):
        assert asyncio.get_running_loop() is self.loop
        await asyncio.sleep(0)
        self.left_behind = asyncio.create_task(asyncio.sleep(3600))
        steps.append("test")

    async def test_second(self):
        with self.assertRaises(TimeoutError):
            async with asyncio.timeout(0.01):
                await asyncio.Event().wait()
        steps.append("test")

    async def asyncTearDown(self):
        steps.append("asyncTearDown")

    async def clean(self):
        steps.append("cleanup")


if sys.version_info < (3, 13):
    goloop.install()
unittest.main(exit=False)
assert steps == ["setUp", "asyncSetUp", "test", "asyncTearDown", "cleanup"] * 2, steps
