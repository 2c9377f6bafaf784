"""The scenarios of test_without_files.py: a process loses its files, and makes loops.

`python without_files_scenarios.py NAME LOOP first|between FOLDER CERTIFICATE KEY` runs one; it has
run a loop before with `between`.
"""

from __future__ import annotations

import asyncio
import concurrent.futures.thread  # noqa: F401
import encodings.idna  # noqa: F401
import os
import selectors  # noqa: F401
import ssl
import sys
import traceback  # noqa: F401
import warnings

warnings.simplefilter("ignore")  # of os.fork() beside threads
LOOP, WHEN, FOLDER, CERTIFICATE, KEY = sys.argv[2:]

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
        writer.write(b"x\n")
        assert await reader.read() == b"x\n"
        writer.close()
        server.close()
    await asyncio.to_thread(int)
    loop = asyncio.get_running_loop()
    ends = zip((loop.connect_read_pipe, loop.connect_write_pipe), os.pipe(), strict=True)
    for connect, end in ends:
        pipe = open(end, "wb" if transports else "rb", 0)  # noqa: SIM115
        transport, _ = await connect(asyncio.Protocol, pipe)
        transports.append(transport)
    endpoint = await loop.create_datagram_endpoint(asyncio.DatagramProtocol, ("127.0.0.1", 0))
    for transport in transports.pop(), transports.pop(), endpoint[0]:
        transport.close()
    await asyncio.sleep(0.01)


def run():
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(main())


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


def in_child(then):
    child = os.fork()
    if child == 0:
        then()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


def chroot() -> None:
    os.chroot(FOLDER)
    os.chdir("/")
    drop_rights()


def other_user() -> None:
    os.chmod(FOLDER, 0o700)
    drop_rights()


def upgraded() -> None:
    os.rename(FOLDER + "/goloop", FOLDER + "/gone")
    os.makedirs(FOLDER + "/goloop/_internal/observe")
    for name in "__init__", "_internal/__init__", "_internal/observe/metrics":
        with open(FOLDER + f"/goloop/{name}.py", "w") as file:
            file.write("1 / 0  # the module of another version")


def drop_rights():
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)


if __name__ == "__main__":
    if WHEN == "between":
        run()
    globals()[sys.argv[1]]()
    in_child(ask)
    in_child(run)
    run()
    in_child(lambda: (run(), in_child(run)))
    print("fine")
