"""The scenarios of test_testing.py: `python testing_scenarios.py NAME` runs one."""

from __future__ import annotations

import asyncio
import sys


def order_of_sets() -> None:
    from goloop import testing

    # Objects that a process has made before decide where later ones lie.
    _kept = [[object() for _ in range(n % 7)] for n in range(int(sys.argv[2]))][::3]

    class Protocol(asyncio.Protocol):
        def connection_made(self, transport):
            self.transport = transport

        def connection_lost(self, exc):
            asyncio.get_running_loop().lost.append(self.transport.get_extra_info("peername"))

    async def last(order, number):
        try:
            await asyncio.sleep(100)
        finally:
            order.append(number)

    async def main():
        loop = asyncio.get_running_loop()
        cancelled, everybody, loop.lost = [], [], []

        async def fails():
            await asyncio.sleep(1)
            raise ValueError

        try:
            async with asyncio.TaskGroup() as group:
                for number in range(12):
                    group.create_task(last(cancelled, number))
                group.create_task(fails())
        except ExceptionGroup:
            pass
        done, _ = await asyncio.wait(
            [asyncio.create_task(asyncio.sleep(1, number)) for number in range(12)]
        )
        tasks = [asyncio.create_task(last(everybody, number)) for number in range(12)]
        await asyncio.sleep(0)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        futures = [loop.create_future() for _ in range(12)]
        shuffled = [futures.index(future) for future in set(futures)]
        server = await loop.create_server(Protocol, "localhost", 80)
        clients = [await asyncio.open_connection("localhost", 80) for _ in range(12)]
        await asyncio.sleep(1)
        # asyncio's clients are a set by address.
        if sys.version_info >= (3, 13) and sys.argv[3] == "goloop":
            server.close_clients()
        await asyncio.sleep(1)
        for _, writer in clients:
            writer.close()
        server.close()
        await asyncio.sleep(1)
        return cancelled, [task.result() for task in done], everybody, shuffled, loop.lost

    print(testing.run(main, loop=sys.argv[3]).value)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
