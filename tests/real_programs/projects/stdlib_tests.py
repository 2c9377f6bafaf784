"""Tests without a plugin: asyncio's own ways to run a coroutine, on the loop named by LOOP."""

import asyncio
import os
import unittest

from asyncio_works import asyncio_works


async def is_on_the_loop():
    assert await asyncio_works() == os.environ["LOOP"]


def test_run():
    asyncio.run(is_on_the_loop())


def test_runner():
    with asyncio.Runner() as runner:
        runner.run(is_on_the_loop())


class Case(unittest.IsolatedAsyncioTestCase):
    async def test_loop(self):
        await is_on_the_loop()
