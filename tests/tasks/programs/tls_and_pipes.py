"""The program `tls_and_pipes` of test_introspect.py."""

import asyncio
import os

import tls_tools

import goloop

writers = []


async def serve(reader, writer):
    writers.append(writer)
    await reader.read()


async def main():
    loop = asyncio.get_running_loop()
    path = f"\0goloop-test-{os.getpid()}"
    _server = await asyncio.start_unix_server(serve, path)
    _plain = await asyncio.open_unix_connection(path)
    secure = await asyncio.start_server(serve, "::1", 0, ssl=tls_tools.server_context())
    client = await asyncio.open_connection(
        "::1",
        secure.sockets[0].getsockname()[1],
        ssl=tls_tools.client_context(),
        server_hostname="localhost",
    )
    client[1].write(b"x")
    _child = await asyncio.create_subprocess_exec("cat", stdin=-1, stdout=-1)
    print("ready", flush=True)
    await loop.create_future()


goloop.run(main())
