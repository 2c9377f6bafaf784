"""A Dask scheduler, two workers and a client, each a process on goloop."""

from __future__ import annotations

import pytest

from real_programs.programs import APPS, LOOP, TIME_LIMIT, Programs, free_port, needs

needs("distributed")

pytestmark = pytest.mark.real

CLIENT = """
import asyncio, sys, goloop
from distributed import Client, as_completed

def loop_of_worker(dask_worker):
    kind = type(dask_worker.loop.asyncio_loop)
    return f"{kind.__module__}.{kind.__qualname__}"

def square(x):
    return x * x

async def main():
    async with Client(sys.argv[1], asynchronous=True) as client:
        await client.wait_for_workers(2)
        loops = await client.run(loop_of_worker)
        assert list(loops.values()) == ["LOOP"] * 2, loops
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
"""


def test_dask_computes_on_two_workers(programs: Programs) -> None:
    port = free_port()
    scheduler = programs.python(APPS / "dask_node.py", "scheduler", str(port))
    scheduler.until_says("node is up")
    address = f"tcp://127.0.0.1:{port}"
    workers = [programs.python(APPS / "dask_node.py", "worker", address) for _ in range(2)]
    for worker in workers:
        worker.until_says("node is up")
    client = programs.python("-c", CLIENT.replace("LOOP", LOOP), address)
    client.process.wait(TIME_LIMIT)
    assert client.process.returncode == 0, client.output
    assert "done" in client.output
    for node in (*workers, scheduler):
        node.end()


SYNCHRONOUS = """
import goloop
from distributed import Client, LocalCluster

def loop_of_worker(dask_worker):
    return loop_name(dask_worker.loop)

def loop_name(loop):
    kind = type(loop.asyncio_loop)
    return f"{kind.__module__}.{kind.__qualname__}"

if __name__ == "__main__":
    goloop.install()
    with (
        LocalCluster(n_workers=2, processes=False, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        print(loop_name(client.loop), *client.run(loop_of_worker).values())
        assert client.submit(sum, range(10)).result() == 45
"""


def test_a_client_of_dask_that_is_synchronous_has_its_loop_in_a_thread(
    programs: Programs,
) -> None:
    program = programs.python("-W", "ignore::DeprecationWarning", "-c", SYNCHRONOUS)
    program.process.wait(TIME_LIMIT)
    assert program.process.returncode == 0, program.output
    # Dask may leave a connection that it was making as it ended, and Python tells of that.
    lines = program.output.splitlines()
    told = [line for line in lines if line.startswith(("goloop.", "asyncio.", "uvloop."))]
    assert told == [" ".join([LOOP] * 3)], program.output
