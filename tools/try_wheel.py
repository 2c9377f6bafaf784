"""Tries every part of an installed goloop; prints one line, or fails.

`make release` runs the program for each wheel in a new environment.  It needs only the
standard library, and no other file.
"""

from __future__ import annotations

import asyncio
import os
import pkgutil
import ssl
import sys
import sysconfig
import tempfile
import warnings
from asyncio.subprocess import PIPE

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import goloop

NATIVE = "--pure" not in sys.argv
FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Echoes received data until EOF."""
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


async def exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Sends a short and a long message to an echo server, and compares the answers."""
    for message in (b"hello", bytes(range(256)) * 4096):
        writer.write(message)
        assert await reader.readexactly(len(message)) == message
    writer.close()
    await writer.wait_closed()


def anonymous(side: int) -> ssl.SSLContext:
    """Returns a context for TLS without a certificate, which would need a file."""
    context = ssl.SSLContext(side)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("aNULL:@SECLEVEL=0")
    return context


async def streams() -> None:
    """Tries TCP, TLS and a Unix socket."""
    async with await asyncio.start_server(echo, "127.0.0.1", 0) as server:
        await exchange(*await asyncio.open_connection(*server.sockets[0].getsockname()))
    tls = anonymous(ssl.PROTOCOL_TLS_SERVER)
    async with await asyncio.start_server(echo, "127.0.0.1", 0, ssl=tls) as server:
        address = server.sockets[0].getsockname()
        client = anonymous(ssl.PROTOCOL_TLS_CLIENT)
        await exchange(*await asyncio.open_connection(*address, ssl=client))
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "socket")
        async with await asyncio.start_unix_server(echo, path):
            await exchange(*await asyncio.open_unix_connection(path))


async def everything() -> None:
    """Tries streams, threads, names, timers, children and tasks."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, goloop.Loop), type(loop)
    await streams()
    assert await asyncio.to_thread(lambda: 5) == 5
    assert (await loop.getaddrinfo("127.0.0.1", 80))[0][4] == ("127.0.0.1", 80)
    try:
        await asyncio.wait_for(asyncio.sleep(3600), 0.01)
    except TimeoutError:
        pass
    else:
        raise AssertionError("wait_for() must time out after 0.01 s")
    child = await asyncio.create_subprocess_exec("/bin/cat", stdin=PIPE, stdout=PIPE)
    assert (await child.communicate(b"child"))[0] == b"child"
    async with asyncio.TaskGroup() as group:
        for _ in range(10):
            group.create_task(asyncio.sleep(0))


def forked() -> None:
    """Tries a loop in a forked child, which starts its own Go runtime."""
    loop = goloop.new_event_loop()
    loop.run_until_complete(asyncio.sleep(0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads, Go's among them
        child = os.fork()
    if child == 0:
        status = 1
        try:
            goloop.run(streams())
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    loop.close()


def importable() -> None:
    """Checks that the Go library is not found as a module."""
    names = {each.name for each in pkgutil.iter_modules(goloop.__path__, "goloop.")}
    assert not [name for name in names if "libgoloop" in name], names


def main() -> None:
    """Tries everything and prints the platform."""
    assert goloop.native is NATIVE
    texts = [str(each.message) for each in caught if each.category is RuntimeWarning]
    facts = goloop.diagnostics()
    if NATIVE:
        assert not caught, texts
        assert facts["tls"] == "OpenSSL called directly", facts
        # The import of an extension without support for free threading enables the GIL.
        assert not FREE_THREADED or not vars(sys)["_is_gil_enabled"]()
    else:
        assert len(texts) == 1, texts
        assert texts[0].endswith(facts["reason"])
        assert caught[0].filename == __file__
    importable()
    goloop.run(everything())
    forked()
    print(f"goloop {goloop.__version__} on Python {facts['python']}, {facts['platform']}")
    print(f"  from {os.path.dirname(goloop.__file__)}; tasks: {facts.get('tasks')}")
    if not NATIVE:
        print(f"  {facts['reason']}")


if __name__ == "__main__":
    main()
