"""A server, a client, the upgrade to TLS and a file, as aiohttp has them: CERTIFICATE KEY WAY.

Prints the packages of the transports.  The ways to the functions of aiofastnet:

    early      aiohttp's modules are imported before any loop is made
    late       aiohttp's modules are imported while the first loop runs
    asyncio    the loop is one of asyncio's
    functions  aiofastnet's functions themselves
    patch      the loop is one that aiofastnet patches
    mixed      aiofastnet makes the transports, and aiohttp sends and upgrades
"""

import asyncio
import importlib
import ssl
import sys
import types
from pathlib import Path

import aiofastnet
import aiohttp

import goloop

certificate, key, way = sys.argv[1:]
aiohttp.__path__.append(str(Path(__file__).with_name("aiohttp_stubs")))

server_tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
server_tls.load_cert_chain(certificate, key)
client_tls = ssl.create_default_context(cafile=certificate)
text = Path(certificate).read_bytes()
packages, tasks = {}, []


def note(end, transport):
    packages[end] = type(transport).__module__.split(".")[0]


class Server(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport = transport
        note("server", transport)

    def data_received(self, data):
        tasks.append(asyncio.ensure_future(self.answer(data)))

    async def answer(self, data):
        loop = asyncio.get_running_loop()
        if data == b"file":
            with open(certificate, "rb") as file:
                await use.sendfile(loop, self.transport, file)
        elif data == b"upgrade":
            self.transport.write(b"yes")
            self.transport = await use.start_tls(
                loop, self.transport, self, server_tls, server_side=True
            )
            self.transport.write(b"by TLS")


class Client(asyncio.Protocol):
    def __init__(self):
        self.received = bytearray()
        self.more = asyncio.Event()

    def data_received(self, data):
        self.received += data
        self.more.set()

    async def until(self, data):
        while self.received != data:
            self.more.clear()
            await self.more.wait()
        self.received.clear()


async def main():
    loop = asyncio.get_running_loop()
    server = await use.create_server(loop, Server, "127.0.0.1", 0)
    address = server.sockets[0].getsockname()
    transport, client = await use.create_connection(loop, Client, *address)
    note("client", transport)
    transport.write(b"file")
    await client.until(text)
    transport.write(b"upgrade")
    await client.until(b"yes")
    transport = await use.start_tls(
        loop, transport, client, client_tls, server_hostname="localhost"
    )
    note("tls", transport)
    await client.until(b"by TLS")
    transport.close()
    await asyncio.gather(*tasks)
    server.close()


async def import_late():
    importlib.import_module("aiohttp.user")


if way == "late":
    goloop.run(import_late())
elif way == "mixed":
    goloop.new_event_loop().close()
use = aiofastnet if way == "functions" else importlib.import_module("aiohttp.user")
factory = goloop.new_event_loop
if way == "asyncio":
    goloop.new_event_loop().close()
    factory = asyncio.new_event_loop
elif way == "patch":
    factory = aiofastnet.loop_factory(factory)
elif way == "mixed":
    make = {name: getattr(aiofastnet, name) for name in ("create_server", "create_connection")}
    use = types.SimpleNamespace(**{**vars(use), **make})
with asyncio.Runner(loop_factory=factory) as made:
    made.run(main())
print("transports", *packages.values(), flush=True)
