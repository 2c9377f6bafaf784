"""aiohttp 3.15 where aiofastnet is installed: which transports it has on a loop of goloop's.

aiohttp's module of functions that it takes from aiofastnet is played here, until that release can
be had; aiofastnet itself is the released one.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tls_tools import identity

from real_programs.programs import Programs, needs

needs("aiofastnet", "aiohttp")

pytestmark = pytest.mark.real

HELPERS = """
import aiofastnet
create_connection = aiofastnet.create_connection
create_server = aiofastnet.create_server
start_tls = aiofastnet.start_tls
sendfile = aiofastnet.sendfile
"""
USER = """
from .net_helpers import create_connection, create_server, sendfile, start_tls
"""
# The operations of aiohttp with these: a server, a client, the upgrade to TLS, and a file.
PROGRAM = """
import asyncio, ssl, sys
import aiohttp
import goloop
stubs, certificate, key = sys.argv[1:4]
aiohttp.__path__.append(stubs)
EARLY

server_tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
server_tls.load_cert_chain(certificate, key)
client_tls = ssl.create_default_context(cafile=certificate)
text = open(certificate, "rb").read()


class Server(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport = transport
        kinds["server"] = type(transport).__module__.split(".")[0]

    def data_received(self, data):
        task = asyncio.ensure_future(self.answer(data))
        tasks.append(task)

    async def answer(self, data):
        if data == b"file":
            with open(certificate, "rb") as file:
                await use.sendfile(asyncio.get_running_loop(), self.transport, file)
        elif data == b"upgrade":
            self.transport.write(b"yes")
            self.transport = await use.start_tls(
                asyncio.get_running_loop(), self.transport, self, server_tls, server_side=True
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
    kinds["client"] = type(transport).__module__.split(".")[0]
    transport.write(b"file")
    await client.until(text)
    transport.write(b"upgrade")
    await client.until(b"yes")
    transport = await use.start_tls(
        loop, transport, client, client_tls, server_hostname="localhost"
    )
    kinds["tls"] = type(transport).__module__.split(".")[0]
    await client.until(b"by TLS")
    transport.close()
    await asyncio.gather(*tasks)
    server.close()

kinds, tasks = {}, []
"""
SAYS = 'runner(main(), FACTORY); print("transports", *kinds.values(), flush=True)'
GOLOOP = "runner = lambda main, factory: asyncio.Runner(loop_factory=factory).run(main)\n"


def transports(programs: Programs, tmp_path: Path, end: str, **options: str) -> str:
    """The packages of the transports of server, client and TLS."""
    stubs = tmp_path / "stubs"
    stubs.mkdir()
    (stubs / "net_helpers.py").write_text(HELPERS)
    (stubs / "user.py").write_text(USER)
    own = identity()
    source = PROGRAM.replace("EARLY", options.pop("early", ""))
    source += GOLOOP + end
    output = programs.ends_well("-c", source, stubs, own.certificate, own.key, **options)
    return next(line for line in output.splitlines() if line.startswith("transports"))[11:]


LATE = "import aiohttp.user as use\n"
ON_GOLOOP = SAYS.replace("FACTORY", "goloop.new_event_loop")


def test_aiohttp_has_goloops_transports_on_goloop(programs: Programs, tmp_path: Path) -> None:
    """aiohttp is imported while the loop runs; by then the first loop has been made."""
    later = "async def first():\n    global use\n    import aiohttp.user as use\n"
    end = f"{later}goloop.run(first())\n{ON_GOLOOP}"
    assert transports(programs, tmp_path, end) == "goloop goloop goloop"


def test_aiohttp_imported_before_is_patched_too(programs: Programs, tmp_path: Path) -> None:
    """aiohttp's modules have stored the functions before any loop was made."""
    assert transports(programs, tmp_path, ON_GOLOOP, early=LATE) == "goloop goloop goloop"


def test_a_variable_keeps_aiofastnet(programs: Programs, tmp_path: Path) -> None:
    found = transports(programs, tmp_path, ON_GOLOOP, early=LATE, GOLOOP_AIOFASTNET="1")
    assert found == "aiofastnet aiofastnet aiofastnet"


def test_a_loop_of_asyncios_has_aiofastnets(programs: Programs, tmp_path: Path) -> None:
    """In a process that has made a loop of goloop's, too."""
    end = "goloop.new_event_loop().close()\n" + SAYS.replace("FACTORY", "asyncio.new_event_loop")
    found = transports(programs, tmp_path, end, early=LATE)
    assert found == "aiofastnet aiofastnet aiofastnet"


@pytest.mark.parametrize(
    ("use", "factory"),
    [
        ("import aiofastnet as use\n", "goloop.new_event_loop"),
        (f"import aiofastnet\n{LATE}", "aiofastnet.loop_factory(goloop.new_event_loop)"),
    ],
    ids=["its functions", "its patch"],
)
def test_explicit_use_of_aiofastnet_works(
    programs: Programs, tmp_path: Path, use: str, factory: str
) -> None:
    found = transports(programs, tmp_path, SAYS.replace("FACTORY", factory), early=use)
    assert found == "aiofastnet aiofastnet aiofastnet"


def test_aiofastnets_transports_keep_its_functions(programs: Programs, tmp_path: Path) -> None:
    """Made by aiofastnet itself, sent and upgraded by aiohttp: goloop's loop knows none of them."""
    mixed = (
        "import types, aiofastnet, aiohttp.user as user\n"
        "use = types.SimpleNamespace(**{**vars(user), 'create_server': aiofastnet.create_server,"
        " 'create_connection': aiofastnet.create_connection})\n"
    )
    end = f"goloop.new_event_loop().close()\n{mixed}{ON_GOLOOP}"
    assert transports(programs, tmp_path, end) == "aiofastnet aiofastnet aiofastnet"
