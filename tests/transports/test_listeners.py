"""Listeners: factories that raise, unaccepted connections, and the object itself."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import socket
from typing import Any

import pytest
from conftest import Errors
from protocols import Recorder, close_all, close_each, until
from stream_tools import received

Loop = asyncio.AbstractEventLoop


@pytest.mark.parametrize("debug", [False, True])
@pytest.mark.filterwarnings("ignore::ResourceWarning")
async def test_a_factory_that_raises_closes_its_connection(
    loop_name: str, loop: Loop, errors: Errors, debug: bool
) -> None:
    loop.set_debug(debug)

    def factory() -> asyncio.Protocol:
        raise ZeroDivisionError

    server = await loop.create_server(factory, "127.0.0.1", 0)
    client = socket.create_connection(server.sockets[0].getsockname())
    if loop_name == "goloop" or not debug:
        # asyncio leaves the socket to the garbage collector, and its report references it.
        assert await loop.run_in_executor(None, received, client) == b""
    if debug:
        await until(lambda: errors.contexts)
        context = errors.expect(
            ZeroDivisionError, "Error on transport creation for incoming connection"
        )
        assert set(context) == {"message", "exception"}
        del context
    client.close()
    loop.set_debug(False)
    with socket.create_connection(server.sockets[0].getsockname()) as again:  # the server goes on
        assert await loop.run_in_executor(None, received, again) == b""
    await close_all(server)


@pytest.mark.goloop_only("asyncio leaves the socket to the garbage collector")
async def test_a_protocol_without_connection_made_is_reported_and_its_socket_closed(
    loop: Loop, errors: Errors
) -> None:
    loop.set_debug(True)

    class NoProtocol:
        pass

    server = await loop.create_server(NoProtocol, "127.0.0.1", 0)  # type: ignore[arg-type]
    client = socket.create_connection(server.sockets[0].getsockname())
    assert await loop.run_in_executor(None, received, client) == b""
    client.close()
    await close_all(server)
    context = errors.expect(AttributeError, "Error on transport creation")
    assert type(context["protocol"]) is NoProtocol


@pytest.mark.goloop_only("asyncio leaves the sockets to the garbage collector")
def test_unaccepted_connections_are_closed_with_the_server(loop: Loop) -> None:
    made: list[Recorder] = []

    def factory() -> Recorder:
        server.close()
        made.append(Recorder())
        return made[-1]

    async def run() -> None:
        nonlocal server
        server = await loop.create_server(factory, "127.0.0.1", 0, start_serving=False)
        address = server.sockets[0].getsockname()
        server.sockets[0]._sock.listen(5)
        clients = [socket.create_connection(address) for _ in range(3)]
        await server.start_serving()
        for client in clients:
            # Nothing was ever sent: an end of file, or a reset where the kernel's queue
            # of the listening socket held it.
            with contextlib.suppress(ConnectionResetError):
                assert await loop.run_in_executor(None, received, client) == b""
            client.close()
        assert len(made) == 1

    server: Any = None
    loop.run_until_complete(run())


@pytest.mark.goloop_only("goloop's type")
async def test_a_listener_alone_gives_sockets_and_can_be_stopped(
    loop: Loop, listener: socket.socket
) -> None:
    from goloop._internal.net.server import Listener

    taken: list[tuple[socket.socket, Any]] = []
    made = Listener(
        loop,  # type: ignore[arg-type]
        listener,
        Recorder,
        None,
        5,
        contextvars.copy_context(),
        lambda sock, address: taken.append((sock, address)),
    )
    client = socket.create_connection(listener.getsockname())
    await until(lambda: taken)
    (sock, address) = taken.pop()
    assert address == client.getsockname()
    assert sock.gettimeout() == 0
    close_each(sock, client)
    assert "Listener on" in repr(made)
    made.stop()
    made.stop()
    assert "stopped" in repr(made)
    assert listener.fileno() >= 0
    with pytest.raises(RuntimeError):
        made.__init__(loop, listener, Recorder, None, 5, contextvars.copy_context())  # type: ignore[misc,arg-type]


# ---- a server's descriptor, watched by the program -------------------------------------------


@pytest.mark.parametrize("named", ["number", "socket"])
async def test_remove_reader_of_a_listening_descriptor_stops_accepting(
    loop: Loop, named: str
) -> None:
    made: list[Recorder] = []
    server = await loop.create_server(lambda: made.append(Recorder()) or made[-1], "127.0.0.1", 0)
    listening = server.sockets[0]
    watched: Any = listening.fileno() if named == "number" else listening
    assert loop.remove_writer(watched) is False
    assert loop.remove_reader(watched) is True
    assert loop.remove_reader(watched) is False
    with socket.create_connection(listening.getsockname()):
        called: list[int] = []
        loop.add_reader(watched, called.append, 1)
        await until(lambda: called)
        assert made == []
        assert loop.remove_reader(watched) is True
    assert server.is_serving()
    server.close()
    await server.wait_closed()


async def test_add_reader_of_a_listening_descriptor_takes_the_servers_place(loop: Loop) -> None:
    made: list[Recorder] = []
    listening = socket.create_server(("127.0.0.1", 0))
    server = await loop.create_server(
        lambda: made.append(Recorder()) or made[-1],
        sock=listening,
    )
    accepted: list[socket.socket] = []
    loop.add_reader(listening, lambda: accepted.append(listening.accept()[0]))
    with socket.create_connection(listening.getsockname()):
        await until(lambda: accepted)
    assert made == []
    assert loop.remove_reader(listening) is True
    waiting = asyncio.ensure_future(loop.sock_accept(listening))
    await asyncio.sleep(0)
    with socket.create_connection(listening.getsockname()) as client:
        connection, address = await waiting
        assert address == client.getsockname()
        connection.close()
    accepted[0].close()
    server.close()
    await server.wait_closed()


async def test_sock_accept_of_a_listening_descriptor_takes_the_servers_place(loop: Loop) -> None:
    made: list[Recorder] = []
    listening = socket.create_server(("127.0.0.1", 0))
    server = await loop.create_server(
        lambda: made.append(Recorder()) or made[-1],
        sock=listening,
    )
    waiting = asyncio.ensure_future(loop.sock_accept(listening))
    await asyncio.sleep(0)
    with socket.create_connection(listening.getsockname()):
        connection, _ = await waiting
        connection.close()
    assert made == []
    server.close()
    await server.wait_closed()
