"""An echo server of the websockets package: PORT CERTIFICATE KEY."""

import asyncio
import signal
import ssl
import sys

from websockets.asyncio.server import serve

import goloop


async def echo(socket):
    async for message in socket:
        await socket.send(message)


async def main():
    port, certificate, key = sys.argv[1:]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    async with serve(echo, "127.0.0.1", int(port), ssl=context, max_size=None):
        await stopping.wait()


goloop.run(main())
