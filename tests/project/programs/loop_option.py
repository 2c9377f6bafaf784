import asyncio
import os


def test_loop():
    async def module():
        return type(asyncio.get_running_loop()).__module__.partition(".")[0]

    assert asyncio.run(module()) == os.environ["EXPECTED"]
