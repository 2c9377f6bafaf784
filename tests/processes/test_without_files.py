"""A process that has imported goloop, and can't read its files any more.

Servers import as root, and then change the root directory, become another user, or are upgraded on
disk, before their first loop or between two.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import ended
import pytest
from tls_tools import identity

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux's ways to lose files")

PROGRAM = """
import asyncio, encodings.idna, os, selectors, ssl, sys, traceback, warnings
import concurrent.futures.thread
warnings.simplefilter("ignore")  # of os.fork() beside threads

if LOOP == "asyncio":
    new_event_loop = asyncio.SelectorEventLoop
else:
    import goloop
    new_event_loop = goloop.new_event_loop

accepting = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
accepting.load_cert_chain(CERTIFICATE, KEY)
connecting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
connecting.load_verify_locations(CERTIFICATE)

transports = []

async def serve(reader, writer):
    writer.write(await reader.readline())
    writer.close()

async def main():
    for on, by in (None, {}), (accepting, {"ssl": connecting, "server_hostname": "localhost"}):
        server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=on)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname(), **by)
        writer.write(b"x\\n")
        assert await reader.read() == b"x\\n"
        writer.close()
        server.close()
    await asyncio.to_thread(int)
    loop = asyncio.get_running_loop()
    for connect, end in zip((loop.connect_read_pipe, loop.connect_write_pipe), os.pipe()):
        transport, _ = await connect(asyncio.Protocol, open(end, "wb" if transports else "rb", 0))
        transports.append(transport)
    endpoint = await loop.create_datagram_endpoint(asyncio.DatagramProtocol, ("127.0.0.1", 0))
    for transport in transports.pop(), transports.pop(), endpoint[0]:
        transport.close()
    await asyncio.sleep(0.01)

def run():
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(main())

def in_child(then):
    child = os.fork()
    if child == 0:
        then()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0

if WHEN == "between":
    run()
"""

LOST = {
    "chroot": """
os.chroot(FOLDER)
os.chdir("/")
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
""",
    "other user": """
os.chmod(FOLDER, 0o700)
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
""",
    "upgraded": """
os.rename(FOLDER + "/goloop", FOLDER + "/gone")
os.makedirs(FOLDER + "/goloop/_internal/metrics")
for name in "__init__", "_internal/__init__", "_internal/metrics/metrics":
    with open(FOLDER + f"/goloop/{name}.py", "w") as file:
        file.write("1 / 0  # the module of another version")
""",
}

AFTER = """
def ask():
    if LOOP == "asyncio":
        return
    loop = new_event_loop()
    loop.run_until_complete(asyncio.sleep(0))
    assert loop.metrics().turns > 0
    loop.close()
    for _ in range(70):  # whose figures are added up
        new_event_loop().close()
    assert goloop.metrics().turns > 0

in_child(ask)
in_child(run)
run()
in_child(lambda: (run(), in_child(run)))
print("fine")
"""


@pytest.fixture
def folder(loop_name: str, tmp_path: Path) -> Path:
    """An empty folder, or one with a copy of goloop."""
    if loop_name == "goloop":
        import goloop

        source = Path(goloop.__file__).parent
        shutil.copytree(source, tmp_path / "goloop", ignore=shutil.ignore_patterns("*.pyc"))
    else:
        (tmp_path / "goloop").mkdir()
    return tmp_path


@pytest.mark.forks
@pytest.mark.parametrize("when", ["first", "between"])
@pytest.mark.parametrize("lost", LOST)
def test_loops_are_made_without_files(loop_name: str, lost: str, when: str, folder: Path) -> None:
    if lost != "upgraded" and os.geteuid() != 0:
        pytest.skip("only root may do this")
    words = f"LOOP, WHEN, FOLDER = {loop_name!r}, {when!r}, {str(folder)!r}\n"
    words += f"CERTIFICATE, KEY = {identity().certificate!r}, {identity().key!r}\n"
    done = ended.python(
        *("-c", words + PROGRAM + LOST[lost] + AFTER), limit=100, PYTHONPATH=str(folder)
    )
    assert (done.returncode, done.stdout) == (0, "fine\n"), done.stdout
