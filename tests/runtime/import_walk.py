"""A walk over a loop's methods, in a process that records each import after its first loop.

As a program: `python import_walk.py LOOP CERTIFICATE KEY`. It prints the imported modules.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import io
import logging
import os
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator
from typing import Any

Context = tuple[ssl.SSLContext, ssl.SSLContext]


def contexts(certificate: str, key: str) -> Context:
    """The contexts of a server, and of a client that trusts it."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate, key)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.load_verify_locations(certificate)
    return server, client


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    line = await reader.readline()
    if line == b"upgrade\n":
        writer.write(b"do\n")
        await writer.start_tls(_server_context)
        line = await reader.readline()
    writer.write(line)
    writer.close()


_server_context: ssl.SSLContext


async def streams(server: ssl.SSLContext, client: ssl.SSLContext) -> None:
    """TCP, TLS, an upgrade to TLS, a refused certificate, and Unix sockets."""
    global _server_context
    _server_context = server
    named: dict[str, Any] = {"ssl": client, "server_hostname": "localhost"}
    for on, by in (None, {}), (server, named):
        async with await asyncio.start_server(_answer, "127.0.0.1", 0, ssl=on) as listening:
            port = listening.sockets[0].getsockname()[1]
            reader, writer = await asyncio.open_connection("127.0.0.1", port, **by)
            writer.get_extra_info("socket").getsockname()
            writer.write(b"x\n")
            assert await reader.read() == b"x\n"
            writer.close()
            if on is None:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(b"upgrade\n")
                assert await reader.readline() == b"do\n"
                await writer.start_tls(client, server_hostname="localhost")
                writer.write(b"x\n")
                assert await reader.read() == b"x\n"
                writer.close()
            else:
                untrusting = ssl.create_default_context()
                with contextlib.suppress(ssl.SSLError):
                    await asyncio.open_connection("127.0.0.1", port, ssl=untrusting,
                                                  server_hostname="localhost")  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        async with await asyncio.start_unix_server(_answer, f"{folder}/socket"):
            reader, writer = await asyncio.open_unix_connection(f"{folder}/socket")
            writer.write(b"x\n")
            assert await reader.read() == b"x\n"
            writer.close()


class Replaced(socket.socket):
    """A socket with a method of its own, which loops must call."""

    def send(self, *args: Any) -> int:
        """Send by the original method."""
        return super().send(*args)

    def recvfrom(self, *args: Any) -> Any:
        """Receive by the original method."""
        return super().recvfrom(*args)


class Buffers:
    """A protocol with buffers and without a base class."""

    def connection_made(self, transport: Any) -> None: ...
    def connection_lost(self, exc: Exception | None) -> None: ...
    def eof_received(self) -> None: ...
    def buffer_updated(self, size: int) -> None: ...

    def get_buffer(self, size: int) -> bytearray:
        """Return a new buffer."""
        return bytearray(100)


class Descriptors(asyncio.Protocol):
    """A protocol that receives descriptors from goloop's transports."""

    def fds_received(self, numbers: list[int]) -> None:
        """Close the received descriptors."""
        for number in numbers:
            os.close(number)


async def other_transports(loop: asyncio.AbstractEventLoop) -> None:
    """Datagrams, pipes, replaced methods, protocols without a base class, descriptors."""
    transport: Any
    for family in socket.AF_INET, socket.AF_UNIX:
        local = ("127.0.0.1", 0) if family == socket.AF_INET else None
        datagrams = socket.socket(family, socket.SOCK_DGRAM)
        datagrams.setblocking(False)
        if local:
            datagrams.bind(local)
        transport, _ = await loop.create_datagram_endpoint(asyncio.DatagramProtocol, sock=datagrams)
        transport.close()
    a, b = socket.socketpair(type=socket.SOCK_DGRAM)
    other = Replaced(fileno=a.detach())
    transport, _ = await loop.create_datagram_endpoint(asyncio.DatagramProtocol, sock=other)
    transport.close()
    b.close()
    kinds: list[Any] = [asyncio.Protocol, Buffers, Descriptors]
    for kind in kinds:
        for replaced in False, True:
            a, b = socket.socketpair()
            a.setblocking(False)
            sock = Replaced(fileno=a.detach()) if replaced else a
            transport, _ = await loop.create_connection(kind, sock=sock)
            transport.write(b"x")
            with contextlib.suppress(TypeError):
                transport.write("text")
            b.sendall(b"y")
            if kind is Descriptors:
                socket.send_fds(b, [b"z"], [1])
            await asyncio.sleep(0.01)
            transport.close()
            b.close()
    readable, writable = os.pipe()
    ends = os.fdopen(readable, "rb", 0), os.fdopen(writable, "wb", 0)
    reading, _ = await loop.connect_read_pipe(asyncio.Protocol, ends[0])
    writing, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, ends[1])
    writing.write(b"x")
    await asyncio.sleep(0)
    writing.close()
    reading.close()


async def children() -> None:
    """Child processes, by their arguments and by the shell."""
    child = await asyncio.create_subprocess_exec(
        "cat", stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert await child.communicate(b"x") == (b"x", None)
    child = await asyncio.create_subprocess_shell("exec sleep 60")
    child.kill()
    assert await child.wait() == -signal.SIGKILL


async def sockets(loop: asyncio.AbstractEventLoop) -> None:
    """The sock_ methods, add_reader() and sendfile."""
    a, b = socket.socketpair()
    a.setblocking(False)
    b.setblocking(False)
    receiving = asyncio.create_task(loop.sock_recv(a, 10))
    await asyncio.sleep(0)
    await loop.sock_sendall(b, b"x")
    assert await receiving == b"x"
    receiving = asyncio.create_task(loop.sock_recv_into(a, bytearray(10)))
    await asyncio.sleep(0)
    receiving.cancel()
    await asyncio.wait([receiving])
    ready = asyncio.Event()
    loop.add_reader(a, ready.set)
    loop.add_writer(a, int)
    b.send(b"x")
    await ready.wait()
    loop.remove_reader(a)
    loop.remove_writer(a)
    with open(__file__, "rb") as file:
        await loop.sock_sendfile(b, file, 0, 10)
        transport, _ = await loop.create_connection(asyncio.Protocol, sock=b)
        await loop.sendfile(transport, file, 0, 10)
    transport.close()
    waiting = asyncio.create_task(loop.sock_recv(a, 1 << 20))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    a.close()
    listening = socket.create_server(("127.0.0.1", 0))
    listening.setblocking(False)
    connecting = socket.socket()
    connecting.setblocking(False)
    await loop.sock_connect(connecting, listening.getsockname())
    accepted, _ = await loop.sock_accept(listening)
    for each in listening, connecting, accepted:
        each.close()
    one = socket.socket(type=socket.SOCK_DGRAM)
    one.bind(("127.0.0.1", 0))
    one.setblocking(False)
    await loop.sock_sendto(one, b"x", one.getsockname())
    await loop.sock_recvfrom(one, 10)
    one.close()


async def names(loop: asyncio.AbstractEventLoop) -> None:
    """Look-ups of names."""
    for name in "localhost", "127.0.0.1", "b\u00fccher.invalid", "xn--bcher-kva.invalid":
        with contextlib.suppress(OSError):
            await loop.getaddrinfo(name, 80, type=socket.SOCK_STREAM)
    with contextlib.suppress(OSError):
        await loop.getnameinfo(("127.0.0.1", 80))


async def _numbers() -> AsyncIterator[int]:
    yield 1
    yield 2


async def other_methods(loop: asyncio.AbstractEventLoop) -> None:
    """Signals, threads, failures, wrong calls, debug mode."""
    came = asyncio.Event()
    loop.add_signal_handler(signal.SIGUSR1, came.set)
    os.kill(os.getpid(), signal.SIGUSR1)
    await came.wait()
    loop.remove_signal_handler(signal.SIGUSR1)
    await asyncio.to_thread(int)
    thread = threading.Thread(target=loop.call_soon_threadsafe, args=(int,))
    thread.start()
    thread.join()
    loop.call_exception_handler({"message": "said", "exception": ValueError("why")})
    for call in loop.call_soon, loop.create_connection, loop.add_reader, loop.sock_recv:
        with contextlib.suppress(TypeError):
            untyped: Any = call
            untyped()
    loop.set_debug(True)
    loop.slow_callback_duration = 0.001
    loop.call_soon(time.sleep, 0.01)
    loop.call_soon(lambda: 1 / 0)
    await asyncio.sleep(0.02)
    with contextlib.suppress(RuntimeError):
        untyped = loop
        await asyncio.to_thread(untyped.call_soon, int)
    await loop.getaddrinfo("127.0.0.1", 80)
    loop.set_debug(False)
    async for _ in _numbers():
        break


async def walk(loop: asyncio.AbstractEventLoop, both: Context) -> None:
    """All of the above."""
    await streams(*both)
    await other_transports(loop)
    await children()
    await sockets(loop)
    await names(loop)
    await other_methods(loop)


def own_methods(loop: Any) -> None:
    """The methods that only goloop's loops have, and the report of a blocked loop."""
    import goloop

    seen: list[str] = []
    ended = threading.Event()

    def see(blocked: Any) -> None:
        seen.append(f"{blocked} {blocked!r} {blocked.format_stack()}")
        if blocked.ended:
            ended.set()

    stop = goloop.watchdog.subscribe(see)  # type: ignore[attr-defined]
    loop.set_watchdog(0.05)
    loop.set_slow_limit(0.01)
    loop.call_soon(time.sleep, 0.3)
    loop.run_until_complete(asyncio.sleep(0.01))
    loop.run_until_complete(asyncio.sleep(0.01))
    assert ended.wait(10)
    stop()
    for _ in range(70):  # whose metrics are added up
        goloop.new_event_loop().close()
    earlier = loop.metrics()
    shown: list[object] = [loop.metrics() - earlier, goloop.metrics(), *loop.slow_iterations()]
    profile = goloop.profile()
    shown += [profile, repr(profile), profile.folded(), profile.flame_graph(), profile - profile]
    shown += [goloop.diagnostics(loop)]
    print(*map(str, shown), seen, file=io.StringIO())
    goloop.dump()


def run(loop: asyncio.AbstractEventLoop, both: Context) -> None:
    """Walk on the loop, and close it."""
    loop.run_until_complete(walk(loop, both))
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.run_until_complete(loop.shutdown_default_executor())
    if type(loop).__module__.partition(".")[0] == "goloop":
        own_methods(loop)
    loop.close()


class Recorder:
    """A finder that finds nothing, and records the modules that are looked for."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def find_spec(self, name: str, path: object, target: object = None) -> None:
        """Record the name."""
        self.names.append(name)


def main() -> None:
    logging.disable(logging.CRITICAL)
    name, certificate, key = sys.argv[1:]
    both = contexts(certificate, key)
    array.array("i")
    if name == "goloop":
        import goloop

        loop: asyncio.AbstractEventLoop = goloop.new_event_loop()
    else:
        loop = asyncio.SelectorEventLoop()
    recorder: Any = Recorder()
    sys.meta_path.insert(0, recorder)
    loaded = set(sys.modules)
    names = recorder.names

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if event == "import":
            names.append(args[0])

    sys.addaudithook(hook)
    run(loop, both)
    found = {*names, *(sys.modules.keys() - loaded)}
    print("imported:", *sorted(found))


if __name__ == "__main__":
    main()
