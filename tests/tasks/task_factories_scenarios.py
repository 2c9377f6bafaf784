"""The scenarios of test_task_factories.py: `python task_factories_scenarios.py NAME` runs one."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import goloop


def a_process_with_a_tls_server_and_eager_tasks_ends(loop_name: str) -> None:
    sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
    from tls_tools import client_context, server_context

    async def greet(reader, writer):
        writer.write(b"hello")
        writer.close()

    async def main():
        asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
        serving = await asyncio.start_server(greet, "127.0.0.1", 0, ssl=server_context())
        where = serving.sockets[0].getsockname()
        reader, writer = await asyncio.open_connection(
            *where, ssl=client_context(), server_hostname="localhost"
        )
        print(await reader.read())
        writer.close()
        # A connection whose handshake does not end before the loop.
        await asyncio.open_connection(*where)

    factory = goloop.new_event_loop if loop_name == "goloop" else asyncio.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(main())


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
