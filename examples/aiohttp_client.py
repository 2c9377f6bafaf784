"""Requests to aiohttp_app.py: `python examples/aiohttp_client.py PORT`."""

import asyncio
import os
import sys

import aiohttp

import goloop


async def main(port: int) -> None:
    """Request a page, a streamed body and an upload, then make a hundred requests at once."""
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
        async with session.get("/") as response:
            print(f"GET / - {response.status}, {(await response.text()).rstrip()!r}")
        async with session.get("/count/1000") as response:
            lines = (await response.text()).split()
            print(f"GET /count/1000 - {response.status}, {len(lines)} lines")
        block = os.urandom(1 << 20)
        async with session.post("/echo", data=block) as response:
            same = await response.read() == block
            print(f"POST /echo 1 MiB - {response.status}, the same back: {same}")

        async def status() -> int:
            async with session.get("/") as response:
                await response.read()
                return response.status

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(status()) for _ in range(100)]
        good = sum(task.result() == 200 for task in tasks)
        print(f"100 requests at once - {good} times 200")
    if not (same and len(lines) == 1000 and good == 100):
        sys.exit(1)


if __name__ == "__main__":
    goloop.run(main(int(sys.argv[1])))
