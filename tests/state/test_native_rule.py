"""C stands in for a method of the stdlib's only where a program has left it alone.

A table, and in it every method that a native path stands in for.  Each is replaced in five ways: by
a subclass, in the class, in the instance, by a wrapper with `__getattr__`, and by a property.
Then the replacement must be called, and the program that uses the object must come to its
usual end.  The same tests run on asyncio's loop.
"""

from __future__ import annotations

import _socket
import asyncio
import contextlib
import socket
import ssl
import sys
import types
from asyncio import sslproto
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ended
import pytest
from conftest import tcp_pair
from protocols import BufferedRecorder, DatagramRecorder, Recorder, close_all, turns, until
from tls_tools import client_context, identity, server_context

SCENARIOS = Path(__file__).with_name("native_rule_scenarios.py")

Loop = asyncio.AbstractEventLoop
WAYS = ["subclass", "class", "instance", "wrapper", "property"]


class Replaced:
    """A way of giving objects of a class another method, which records its calls and delegates."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, way: str, cls: type, name: str) -> None:
        self.calls = 0
        self.arguments: list[tuple[Any, ...]] = []
        self.way, self.cls, self.name = way, cls, name
        self.original: Any = getattr(cls, name)
        self._in_class(monkeypatch)

    def method(self, bound: Any) -> Callable[..., Any]:
        def replacement(*args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            self.arguments.append(args)
            return self.original(bound, *args, **kwargs)

        return replacement

    def _in_class(self, patch: pytest.MonkeyPatch) -> None:
        """Put the replacement into the class itself."""
        method = self.method
        if self.way == "class":
            patch.setattr(
                self.cls, self.name, lambda o, *args, **kwargs: method(o)(*args, **kwargs)
            )
        elif self.way == "property":
            patch.setattr(self.cls, self.name, property(method))

    def subclass(self) -> Any:
        """The class that objects are made of: its own, or one derived from it."""
        if self.way != "subclass":
            return self.cls
        method = self.method
        own = {self.name: lambda o, *args, **kwargs: method(o)(*args, **kwargs)}
        return type(self.cls.__name__, (self.cls,), own)

    def instance(self, made: Any) -> Any:
        """Return the object to use: the original, or a wrapper."""
        if self.way == "instance":
            setattr(made, self.name, self.method(made))
        if self.way != "wrapper":
            return made

        class Wrapper:
            def __getattr__(self, name: str) -> Any:
                return getattr(made, name)

        setattr(Wrapper, self.name, staticmethod(self.method(made)))
        return Wrapper()


# ---- ssl.SSLObject, to which TLS goes --------------------------------------------------

SSL_OBJECT = ["do_handshake", "read", "write"]
by_way = pytest.mark.parametrize("way", WAYS)


def replacing_context(replaced: Replaced) -> ssl.SSLContext:
    class Context(ssl.SSLContext):
        sslobject_class = replaced.subclass()

        def wrap_bio(self, *args: Any, **kwargs: Any) -> Any:
            return replaced.instance(super().wrap_bio(*args, **kwargs))

    context = Context(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(identity().certificate)
    return context


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while line := await reader.readline():
        writer.write(line.upper())
    writer.close()


@by_way
@pytest.mark.parametrize("name", SSL_OBJECT)
async def test_a_method_of_an_ssl_object(
    loop: Loop, monkeypatch: pytest.MonkeyPatch, name: str, way: str
) -> None:
    server = await asyncio.start_server(echo, "127.0.0.1", 0, ssl=server_context())
    address = server.sockets[0].getsockname()
    replaced = Replaced(monkeypatch, way, ssl.SSLObject, name)
    context = replacing_context(replaced)
    reader, writer = await asyncio.open_connection(
        *address, ssl=context, server_hostname="localhost"
    )
    writer.write(b"ask\n")
    assert await reader.readline() == b"ASK\n"
    assert replaced.calls
    replaced.calls = 0
    writer.write(b"again\n")
    assert await reader.readline() == b"AGAIN\n"
    assert replaced.calls or name == "do_handshake"
    await close_all(writer)

    transport, protocol = await loop.create_connection(
        BufferedRecorder, *address, ssl=context, server_hostname="localhost"
    )
    replaced.calls = 0
    transport.write(b"by a buffer\n")
    await until(lambda: protocol.data == b"BY A BUFFER\n")
    assert replaced.calls or name == "do_handshake"
    transport.close()
    await close_all(server)


@by_way
async def test_a_handshake_that_refuses_the_peer_ends_the_connection(
    loop: Loop, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """As a client does that pins certificates: nothing is connected."""
    server = await asyncio.start_server(echo, "127.0.0.1", 0, ssl=server_context())
    replaced = Replaced(monkeypatch, way, ssl.SSLObject, "do_handshake")
    original = replaced.original

    def refuse(self: Any) -> None:
        original(self)
        raise ssl.SSLCertVerificationError("not the pinned one")

    replaced.original = refuse
    address, context = server.sockets[0].getsockname(), replacing_context(replaced)
    with pytest.raises(ssl.SSLCertVerificationError, match="not the pinned one"):
        await asyncio.open_connection(*address, ssl=context, server_hostname="localhost")
    await close_all(server)


@pytest.mark.parametrize("where", ["class", "instance", "behind"])
@pytest.mark.parametrize("name", ["read", "write"])
async def test_a_method_of_an_ssl_object_that_is_replaced_later(
    loop: Loop, monkeypatch: pytest.MonkeyPatch, name: str, where: str
) -> None:
    """Seen from the next call on, and no more once it is the original again."""
    server = await asyncio.start_server(echo, "127.0.0.1", 0, ssl=server_context())
    reader, writer = await asyncio.open_connection(
        *server.sockets[0].getsockname(), ssl=client_context(), server_hostname="localhost"
    )

    async def ask() -> None:
        writer.write(b"ask\n")
        assert await reader.readline() == b"ASK\n"

    await ask()
    sslobj = writer.get_extra_info("ssl_object")
    calls = 0

    def counted(original: Any, *bound: Any) -> Any:
        def replacement(*args: Any) -> Any:
            nonlocal calls
            calls += 1
            return original(*bound, *args)

        return replacement

    for _ in range(2):
        with monkeypatch.context() as patch:
            if where == "class":
                patch.setattr(ssl.SSLObject, name, counted(getattr(ssl.SSLObject, name)))
            elif where == "instance":
                patch.setattr(sslobj, name, counted(getattr(sslobj, name)), raising=False)
            else:  # the methods that ssl.SSLObject calls
                inner = sslobj._sslobj

                class Inner:
                    def __getattr__(self, name: str, inner: Any = inner) -> Any:
                        return getattr(inner, name)

                setattr(Inner, name, staticmethod(counted(getattr(inner, name))))
                patch.setattr(sslobj, "_sslobj", Inner())
            calls = 0
            await ask()
            assert calls
            calls = 0
        await ask()
        assert not calls
    await close_all(writer, server)


# ---- socket.socket, to the sock_ methods -----------------------------------------------


def not_by_instance(names: list[str]) -> Any:
    """Every name with every way; the instance of a class with slots takes no method."""
    return pytest.mark.parametrize(
        ("name", "way"), [(name, way) for name in names for way in WAYS if way != "instance"]
    )


def as_replaced(replaced: Replaced, sock: socket.socket) -> Any:
    """Return the same socket, with the replacement."""
    sock.setblocking(False)
    cls = replaced.subclass()
    if cls is not socket.socket:
        sock = cls(sock.family, sock.type, sock.proto, fileno=sock.detach())
    return replaced.instance(sock)


def test_socket_object_has_no_instance_methods() -> None:
    with socket.socket() as sock, pytest.raises(AttributeError):
        sock.recv = None  # type: ignore[method-assign, assignment]


SOCK_METHODS = ["recv", "recv_into", "send", "fileno", "recvfrom", "recvfrom_into", "sendto"]


@not_by_instance(SOCK_METHODS)
async def test_a_method_of_a_socket_in_sock_methods(
    loop: Loop, monkeypatch: pytest.MonkeyPatch, name: str, way: str
) -> None:
    replaced = Replaced(monkeypatch, way, socket.socket, name)
    a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    b.setblocking(False)
    with contextlib.closing(as_replaced(replaced, a)) as a, b:  # type: ignore[assignment]
        b.bind("")
        buffer = bytearray(10)
        replaced.calls = 0
        if name == "recv":
            assert await asyncio.gather(loop.sock_recv(a, 10), later(b)) == [b"hello", 5]
        elif name == "recv_into":
            assert await asyncio.gather(loop.sock_recv_into(a, buffer), later(b)) == [5, 5]
            assert buffer[:5] == b"hello"
        elif name == "send":
            await loop.sock_sendall(a, b"hello")
            assert await loop.sock_recv(b, 10) == b"hello"
        elif name == "fileno":
            assert await asyncio.gather(loop.sock_recv(a, 10), later(b)) == [b"hello", 5]
        elif name == "recvfrom":
            data, _ = (await asyncio.gather(loop.sock_recvfrom(a, 10), later(b)))[0]
            assert data == b"hello"
        elif name == "recvfrom_into":
            count, _ = (await asyncio.gather(loop.sock_recvfrom_into(a, buffer), later(b)))[0]
            assert count == 5
        else:
            assert await loop.sock_sendto(a, b"hello", b.getsockname()) == 5
            assert await loop.sock_recv(b, 10) == b"hello"
        assert replaced.calls


async def later(sock: socket.socket) -> int:
    """Sends when another task waits."""
    await asyncio.sleep(0)
    return sock.send(b"hello")


@not_by_instance(["accept", "connect"])
async def test_a_method_of_a_socket_that_connects(
    loop: Loop, monkeypatch: pytest.MonkeyPatch, listener: socket.socket, name: str, way: str
) -> None:
    replaced = Replaced(monkeypatch, way, socket.socket, name)
    address = listener.getsockname()
    server = as_replaced(replaced, listener.dup())
    client = as_replaced(replaced, socket.socket())
    with contextlib.closing(server), contextlib.closing(client):
        (accepted, _), _ = await asyncio.gather(
            loop.sock_accept(server), loop.sock_connect(client, address)
        )
        accepted.close()
        assert replaced.calls


# ---- socket.socket, to transports ------------------------------------------------------


@not_by_instance(["recv", "recv_into", "send", "sendmsg", "shutdown", "fileno"])
async def test_a_method_of_a_socket_in_a_stream(
    loop: Loop, monkeypatch: pytest.MonkeyPatch, name: str, way: str
) -> None:
    if name == "sendmsg" and sys.version_info < (3, 12):
        pytest.skip("before Python 3.12 asyncio's writelines() calls send()")
    replaced = Replaced(monkeypatch, way, socket.socket, name)
    a, b = tcp_pair()
    factory: Any = BufferedRecorder if name == "recv_into" else Recorder
    transport, protocol = await loop.create_connection(factory, sock=as_replaced(replaced, a))
    with b:
        b.send(b"hello")
        transport.write(b"one ")
        transport.writelines([b"two ", b"three"])
        transport.write_eof()
        b.settimeout(10)
        got = b""
        while piece := await loop.run_in_executor(None, _socket.socket.recv, b, 100):
            got += piece
        assert got == b"one two three"
        b.shutdown(socket.SHUT_WR)
        await protocol.eof
        assert protocol.data == b"hello"
    assert replaced.calls
    transport.close()
    await loop.shutdown_default_executor()


@not_by_instance(["recvfrom", "send", "sendto", "fileno"])
async def test_a_method_of_a_socket_in_a_datagram_endpoint(
    loop: Loop, monkeypatch: pytest.MonkeyPatch, name: str, way: str
) -> None:
    replaced = Replaced(monkeypatch, way, socket.socket, name)
    with socket.socket(type=socket.SOCK_DGRAM) as peer:
        peer.bind(("127.0.0.1", 0))
        sock = socket.socket(type=socket.SOCK_DGRAM)
        sock.bind(("127.0.0.1", 0))
        own = sock.getsockname()
        if name == "send":
            sock.connect(peer.getsockname())
        transport, protocol = await loop.create_datagram_endpoint(
            DatagramRecorder, sock=as_replaced(replaced, sock)
        )
        transport.sendto(b"there", None if name == "send" else peer.getsockname())
        assert peer.recv(10) == b"there"
        peer.sendto(b"and back", own)
        await until(lambda: protocol.data() == [b"and back"])
        transport.close()
    assert replaced.calls


@not_by_instance(["accept", "fileno"])
async def test_a_method_of_a_listening_socket(
    loop: Loop, monkeypatch: pytest.MonkeyPatch, listener: socket.socket, name: str, way: str
) -> None:
    replaced = Replaced(monkeypatch, way, socket.socket, name)
    sock = as_replaced(replaced, listener.dup())
    server = await asyncio.start_server(echo, sock=sock)
    for _ in range(2):
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        writer.write(b"ask\n")
        assert await reader.readline() == b"ASK\n"
        await close_all(writer)
    assert replaced.calls
    await close_all(server)


@pytest.mark.parametrize("way", ["class", "property"])
@pytest.mark.parametrize("name", ["recv", "send", "shutdown"])
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
async def test_a_method_of_all_sockets_in_accepted_connections(
    loop: Loop, monkeypatch: pytest.MonkeyPatch, name: str, way: str, tls: bool
) -> None:
    """Only the class has them, because only the loop makes their sockets."""
    if tls and name != "send":
        pytest.skip("asyncio receives for TLS by recv_into(), and half-closes nothing")
    context = server_context() if tls else None

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write((await reader.readline()).upper())
        if not tls:
            writer.write_eof()
        await reader.read()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    address = server.sockets[0].getsockname()
    replaced = Replaced(monkeypatch, way, socket.socket, name)

    def client() -> bytes:
        with contextlib.closing(_socket.socket()) as raw:
            raw.connect(address)
            if not tls:
                raw.send(b"ask\n")
                got = raw.recv(10)
                raw.recv(10)
                return got
        with (
            socket.create_connection(address) as sock,
            client_context().wrap_socket(sock, server_hostname="localhost") as both,
        ):
            both.write(b"ask\n")
            return both.read(10)

    assert await loop.run_in_executor(None, client) == b"ASK\n"
    assert replaced.calls
    await close_all(server)
    await loop.shutdown_default_executor()


# ---- the loop --------------------------------------------------------------------------


def callback_name(callback: Any) -> str:
    return str(getattr(callback, "__name__", type(callback).__name__))


@pytest.mark.parametrize("way", ["subclass", "class", "instance", "property"])
@pytest.mark.parametrize("name", ["call_soon", "call_at", "create_future", "is_running"])
def test_a_method_of_the_loop(
    loop_factory: Callable[[], Loop], monkeypatch: pytest.MonkeyPatch, name: str, way: str
) -> None:
    """goloop's own code calls a method that a program has replaced."""
    if name == "is_running" and sys.version_info < (3, 12):
        pytest.skip("eager tasks came with Python 3.12")
    probe = loop_factory()
    probe.close()
    replaced = Replaced(monkeypatch, way, type(probe), name)
    loop = replaced.instance(replaced.subclass()())
    try:
        loop.run_until_complete(exercise_loop(loop, replaced, name))
    finally:
        loop.close()


async def exercise_loop(loop: Any, replaced: Replaced, name: str) -> None:
    replaced.calls = 0
    del replaced.arguments[:]
    if name == "call_soon":
        a, b = tcp_pair()
        transport, _ = await loop.create_connection(asyncio.Protocol, sock=a)
        b.close()
        future = loop.create_future()
        future.add_done_callback(noted)
        loop.create_task(nothing(), name="nothing")
        future.set_result(None)
        transport.close()
        await turns(2)
        names = [callback_name(each[0]) for each in replaced.arguments]
        assert names.count("connection_made") == 1
        assert names.count("_call_connection_lost") == 1
        assert names.count("noted") == 1
        assert "TaskStepMethWrapper" in names
    elif name == "call_at":
        done = loop.create_future()
        loop.call_later(0.001, done.set_result, "by call_later")
        assert await done == "by call_later"
        assert len(replaced.arguments) == 1
        await asyncio.sleep(0.001)
        assert len(replaced.arguments) == 2
        loop.call_later(1000, noted).cancel()
    elif name == "create_future":
        a, b = socket.socketpair()
        with a, b:
            a.setblocking(False)
            assert (await asyncio.gather(loop.sock_recv(a, 10), later(b)))[0] == b"hello"
    else:
        eager: Any = asyncio.Task
        task = eager(nothing(), loop=loop, eager_start=True)
        assert task.done()
        await task
    assert replaced.calls


def noted(*args: Any) -> None:
    pass


async def nothing() -> None:
    pass


async def test_a_wrapper_of_the_loop_schedules_its_futures_callbacks(loop: Loop) -> None:
    scheduled: list[str] = []

    class Wrapper:
        def __getattr__(self, name: str) -> Any:
            return getattr(loop, name)

        def call_soon(self, callback: Any, *args: Any, **kwargs: Any) -> Any:
            scheduled.append(callback_name(callback))
            return loop.call_soon(callback, *args, **kwargs)

    made: Any = type(loop.create_future())
    future = made(loop=Wrapper())
    future.add_done_callback(noted)
    future.set_result(None)
    await asyncio.sleep(0)
    assert scheduled == ["noted"]


def test_call_soon_replaced_on_a_running_loop(
    loop_factory: Callable[[], Loop], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Called from then on, and no more once it is the original again."""
    loop: Any = loop_factory()
    seen: list[str] = []
    original = type(loop).call_soon

    def call_soon(self: Any, callback: Any, *args: Any, **kwargs: Any) -> Any:
        seen.append(callback_name(callback))
        return original(self, callback, *args, **kwargs)

    async def main() -> None:
        for _ in range(2):
            with monkeypatch.context() as patch:
                patch.setattr(type(loop), "call_soon", call_soon)
                await asyncio.sleep(0)
                assert seen
            del seen[:]
            await asyncio.sleep(0)
            assert not seen

    loop.run_until_complete(main())
    loop.close()


# ---- handles, which the loop makes: no subclass, no wrapper, and slots instead of a dict


@pytest.mark.parametrize("way", ["class", "property"])
@pytest.mark.parametrize("cls", [asyncio.Handle, asyncio.TimerHandle])
@pytest.mark.parametrize("name", ["_run", "cancel", "cancelled"])
async def test_a_method_of_handles(
    loop: Loop, monkeypatch: pytest.MonkeyPatch, cls: type, name: str, way: str
) -> None:
    replaced = Replaced(monkeypatch, way, cls, name)
    ran: list[int] = []
    done = loop.create_future()
    for number in range(2):
        if cls is asyncio.Handle:
            handle: asyncio.Handle = loop.call_soon(ran.append, number)
        else:
            handle = loop.call_later(0.001, ran.append, number)
        if number == 0:
            handle.cancel()
        assert handle.cancelled() == (number == 0)
    loop.call_later(0.005, done.set_result, None)
    await done
    assert ran == [1]
    assert replaced.calls


# ---- objects below TLS -----------------------------------------------------------------


async def start_tls(
    loop: Any, listening: socket.socket, change: Callable[[Any], Any]
) -> tuple[Any, Any, asyncio.AbstractServer]:
    """A client that puts TLS over a transport of its own, and the server."""
    server = await asyncio.start_server(echo, sock=listening.dup(), ssl=server_context())
    reader = asyncio.StreamReader()
    transport, protocol = await loop.create_connection(
        lambda: asyncio.StreamReaderProtocol(reader), *listening.getsockname()
    )
    below = change(transport)
    over = await loop.start_tls(below, protocol, client_context(), server_hostname="localhost")
    return over, reader, server


async def ask_over(over: Any, reader: asyncio.StreamReader, server: Any) -> None:
    over.write(b"ask\n")
    assert await reader.readline() == b"ASK\n"
    over.close()
    await close_all(server)


@pytest.mark.parametrize("way", ["class", "instance", "wrapper", "property"])
async def test_the_write_of_a_transport_below_tls(
    loop: Loop, monkeypatch: pytest.MonkeyPatch, listener: socket.socket, way: str
) -> None:
    """No subclass: the loop makes the transport."""
    replaced: Any = None

    def change(transport: Any) -> Any:
        nonlocal replaced
        replaced = Replaced(monkeypatch, way, type(transport), "write")
        return replaced.instance(transport)

    over, reader, server = await start_tls(loop, listener, change)
    assert replaced.calls
    replaced.calls = 0
    await ask_over(over, reader, server)
    assert replaced.calls


@pytest.mark.parametrize("way", ["class", "instance", "property"])
async def test_the_write_of_a_transport_of_tls(
    loop: Loop, monkeypatch: pytest.MonkeyPatch, listener: socket.socket, way: str
) -> None:
    """No subclass and no wrapper: the protocol of TLS makes it, and calls none of it."""
    replaced = Replaced(monkeypatch, way, sslproto._SSLProtocolTransport, "write")
    over, reader, server = await start_tls(loop, listener, lambda transport: transport)
    replaced.instance(over)
    await ask_over(over, reader, server)
    assert replaced.calls == 1 if way == "instance" else replaced.calls


# ---- asyncio's BaseEventLoop, from which goloop's loop derives ----------------------------------


class WrappedCreateTask:
    """A replacement of BaseEventLoop.create_task that records its calls, as tracers do."""

    def __init__(self) -> None:
        self.original: Any = asyncio.BaseEventLoop.create_task
        self.names: list[Any] = []

    def function(self) -> Callable[..., Any]:
        def create_task(loop: Any, coro: Any, **options: Any) -> Any:
            self.names.append(coro.__name__)
            return self.original(loop, coro, **options)

        return create_task


async def create_in_all_ways(loop: Loop) -> list[type]:
    made: list[asyncio.Task[None]] = [
        loop.create_task(nothing()),
        asyncio.create_task(nothing()),
        asyncio.ensure_future(nothing()),
    ]
    async with asyncio.TaskGroup() as group:
        made.append(group.create_task(nothing()))
    await asyncio.gather(*made, nothing())
    return [type(each) for each in made]


@pytest.mark.parametrize("when", ["before the loop is made", "while it runs"])
@pytest.mark.parametrize("kind", ["function", "callable object", "code"])
def test_create_task_replaced_in_base_event_loop_is_called(
    loop_factory: Callable[[], Loop], monkeypatch: pytest.MonkeyPatch, when: str, kind: str
) -> None:
    wrapped = WrappedCreateTask()

    def replace() -> None:
        if kind == "function":
            monkeypatch.setattr(asyncio.BaseEventLoop, "create_task", wrapped.function())
        elif kind == "callable object":
            function = wrapped.function()

            class Wrapper:
                def __get__(self, loop: Any, owner: type) -> Any:
                    return self if loop is None else function.__get__(loop)

            monkeypatch.setattr(asyncio.BaseEventLoop, "create_task", Wrapper())
        else:
            replace_code(monkeypatch, wrapped)

    if when == "before the loop is made":
        replace()
    loop = loop_factory()
    try:
        usual = type(loop.create_future())
        if when != "before the loop is made":
            classes = loop.run_until_complete(create_in_all_ways(loop))
            assert not wrapped.names
            replace()
        loop.run_until_complete(create_in_all_ways(loop))
        assert wrapped.names == ["create_in_all_ways", *["nothing"] * 5]
        loop.set_task_factory(lambda loop, coro, **options: asyncio.Task(coro, loop=loop))
        loop.run_until_complete(nothing())
        assert len(wrapped.names) == 7
        loop.set_task_factory(None)
        monkeypatch.undo()
        restored = loop.run_until_complete(create_in_all_ways(loop))
        assert len(wrapped.names) == 7
        assert when == "before the loop is made" or restored == classes
        assert {each.__module__ for each in restored} == {usual.__module__}
    finally:
        loop.close()


def replace_code(monkeypatch: pytest.MonkeyPatch, wrapped: WrappedCreateTask) -> None:
    """Replace the code of the function in place, as ddtrace does."""
    function: Any = asyncio.BaseEventLoop.create_task
    wrapped.original = types.FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__
    )
    wrapped.original.__kwdefaults__ = function.__kwdefaults__

    def create_task(loop: Any, coro: Any, **options: Any) -> Any:
        wrapper: Any = "wrapper"
        return wrapper(loop, coro, **options)

    code = create_task.__code__
    constants = tuple(wrapped.function() if c == "wrapper" else c for c in code.co_consts)
    code = code.replace(co_consts=constants, co_filename=function.__code__.co_filename)
    monkeypatch.setattr(function, "__kwdefaults__", None)
    monkeypatch.setattr(function, "__code__", code)


def test_create_task_replaced_before_the_import_is_called() -> None:
    told = ended.passes(SCENARIOS, "create_task_replaced_before_the_import_is_called")
    assert told == "True ['main', 'sleep']\n"


@pytest.mark.parametrize("name", ["getaddrinfo", "getnameinfo"])
async def test_resolver_replaced_in_base_event_loop_is_called(
    loop: Loop, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    original: Any = getattr(asyncio.BaseEventLoop, name)
    calls = []

    async def replacement(self: Any, *args: Any, **options: Any) -> Any:
        calls.append(args)
        return await original(self, *args, **options)

    monkeypatch.setattr(asyncio.BaseEventLoop, name, replacement)
    args: tuple[Any, ...] = ("127.0.0.1", 80)
    if name == "getnameinfo":
        args = (args, socket.NI_NUMERICHOST | socket.NI_NUMERICSERV)
    await getattr(loop, name)(*args)
    monkeypatch.undo()
    await getattr(loop, name)(*args)
    assert calls == [args]
