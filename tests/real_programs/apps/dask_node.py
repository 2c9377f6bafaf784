"""A node of a Dask cluster on goloop: `scheduler PORT`, or `worker ADDRESS`."""

import asyncio
import signal
import sys

from distributed import Scheduler, Worker

import goloop


async def main():
    kind, where = sys.argv[1:]
    if kind == "scheduler":
        node = Scheduler(host="127.0.0.1", port=int(where), dashboard=False, dashboard_address=":0")
    else:
        node = Worker(where, nthreads=1, dashboard=False)
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    async with node:
        print("node is up", flush=True)
        await stopping.wait()


if __name__ == "__main__":
    goloop.run(main())
