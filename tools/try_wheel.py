"""A round of everything with an installed goloop; prints one line, or fails.

`make wheels` runs this with each wheel in an environment of its own.  It needs nothing
but the standard library, and no file but itself.
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
    """Sends back what comes, until it ends."""
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


async def exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A short message and a long one, to an echoing peer and back."""
    for message in (b"hello", bytes(range(256)) * 4096):
        writer.write(message)
        assert await reader.readexactly(len(message)) == message
    writer.close()
    await writer.wait_closed()


def anonymous(side: int) -> ssl.SSLContext:
    """TLS without a certificate, which would be a file more."""
    context = ssl.SSLContext(side)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("aNULL:@SECLEVEL=0")
    return context


async def streams() -> None:
    """TCP, TLS and a Unix socket."""
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
    """What a loop is used for, in short."""
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
        raise AssertionError("the timer did not strike")
    child = await asyncio.create_subprocess_exec("/bin/cat", stdin=PIPE, stdout=PIPE)
    assert (await child.communicate(b"child"))[0] == b"child"
    async with asyncio.TaskGroup() as group:
        for _ in range(10):
            group.create_task(asyncio.sleep(0))


def forked() -> None:
    """A child has a loop of its own, with a Go runtime of its own."""
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
    """Nothing looks like a module that is none."""
    names = {each.name for each in pkgutil.walk_packages(goloop.__path__, "goloop.")}
    assert not [name for name in names if "libgoloop" in name], names


def main() -> None:
    """Prints what it ran on."""
    assert goloop.native is NATIVE
    texts = [str(each.message) for each in caught if each.category is RuntimeWarning]
    facts = goloop.diagnostics()
    if NATIVE:
        assert not caught, texts
        assert facts["tls"] == "OpenSSL called directly", facts
        # The import of an extension that wants a GIL switches it on.
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
