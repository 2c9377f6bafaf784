"""C stands in for a method of the stdlib's only where a program has left it alone.

A table, and in it every method that a native path stands in for.  Each is replaced in five ways: by
a subclass, in the class, in the instance, by a wrapper with `__getattr__`, and by a property.
Then the replacement must be called, and the program that uses the object must come to its
usual end.  The same tests run on asyncio's loop.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Any

import pytest
from tls_tools import client_context, identity, server_context

Loop = asyncio.AbstractEventLoop
WAYS = ["subclass", "class", "instance", "wrapper", "property"]


class Replaced:
    """One way of giving objects of a class another method, which notes its calls and goes on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, way: str, cls: type, name: str) -> None:
        self.calls = 0
        self.way, self.cls, self.name = way, cls, name
        self.original: Any = getattr(cls, name)
        self._patch = monkeypatch

    def method(self, bound: Any) -> Callable[..., Any]:
        def replacement(*args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            return self.original(bound, *args, **kwargs)

        return replacement

    def in_class(self) -> None:
        """What is put into the class itself."""
        method = self.method
        if self.way == "class":
            self._patch.setattr(
                self.cls, self.name, lambda o, *args, **kwargs: method(o)(*args, **kwargs)
            )
        elif self.way == "property":
            self._patch.setattr(self.cls, self.name, property(method))

    def subclass(self) -> Any:
        """The class that objects are made of: its own, or one derived from it."""
        if self.way != "subclass":
            return self.cls
        method = self.method
        own = {self.name: lambda o, *args, **kwargs: method(o)(*args, **kwargs)}
        return type(self.cls.__name__, (self.cls,), own)

    def instance(self, made: Any) -> Any:
        """The object that is used: what was made, or a wrapper."""
        if self.way == "instance":
            setattr(made, self.name, self.method(made))
        if self.way != "wrapper":
            return made

        class Wrapper:
            def __getattr__(self, name: str) -> Any:
                return getattr(made, name)

        setattr(Wrapper, self.name, staticmethod(self.method(made)))
        return Wrapper()


# ---- ssl.SSLObject, to which TLS goes ------------------------------------------------------

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


class BufferedEcho(asyncio.BufferedProtocol):
    """Takes its bytes by a buffer of its own."""

    def __init__(self) -> None:
        self.buffer = bytearray(100)
        self.got = asyncio.get_running_loop().create_future()

    def get_buffer(self, sizehint: int) -> bytearray:
        return self.buffer

    def buffer_updated(self, count: int) -> None:
        self.got.set_result(bytes(self.buffer[:count]))


@by_way
@pytest.mark.parametrize("name", SSL_OBJECT)
async def test_a_method_of_an_ssl_object(
    loop: Loop, monkeypatch: pytest.MonkeyPatch, name: str, way: str
) -> None:
    server = await asyncio.start_server(echo, "127.0.0.1", 0, ssl=server_context())
    address = server.sockets[0].getsockname()
    replaced = Replaced(monkeypatch, way, ssl.SSLObject, name)
    replaced.in_class()
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
    writer.close()
    await writer.wait_closed()

    transport, protocol = await loop.create_connection(
        BufferedEcho, *address, ssl=context, server_hostname="localhost"
    )
    replaced.calls = 0
    transport.write(b"by a buffer\n")
    assert await protocol.got == b"BY A BUFFER\n"
    assert replaced.calls or name == "do_handshake"
    transport.close()
    server.close()
    await server.wait_closed()


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
    replaced.in_class()
    address, context = server.sockets[0].getsockname(), replacing_context(replaced)
    with pytest.raises(ssl.SSLCertVerificationError, match="not the pinned one"):
        await asyncio.open_connection(*address, ssl=context, server_hostname="localhost")
    server.close()
    await server.wait_closed()


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
            else:  # what the methods of ssl.SSLObject call
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
    writer.close()
    await writer.wait_closed()
    server.close()
    await server.wait_closed()
