"""A client of Dask's scheduler at ADDRESS: two workers on goloop compute for it."""

import sys

from distributed import Client, as_completed

import goloop


def loop_of_worker(dask_worker):
    kind = type(dask_worker.loop.asyncio_loop)
    return f"{kind.__module__}.{kind.__qualname__}"


def square(x):
    return x * x


async def main():
    async with Client(sys.argv[1], asynchronous=True) as client:
        await client.wait_for_workers(2)
        loops = await client.run(loop_of_worker)
        assert list(loops.values()) == ["goloop.Loop"] * 2, loops
        futures = client.map(square, range(500))
        total = client.submit(sum, futures)
        assert await total == sum(x * x for x in range(500))
        big = await client.scatter(b"x" * 5_000_000, broadcast=True)
        assert await client.submit(len, big) == 5_000_000
        done = [future async for future in as_completed(futures)]
        assert len(done) == 500
        failing = client.submit(lambda: 1 / 0)
        try:
            await failing
        except ZeroDivisionError:
            print("done", flush=True)


if __name__ == "__main__":
    goloop.run(main())
