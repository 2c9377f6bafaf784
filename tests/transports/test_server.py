"""create_server and Server: addresses, options, and its methods in each version."""

from __future__ import annotations

import asyncio
import errno
import functools
import gc
import itertools
import socket
import struct
import sys
from asyncio import trsock
from pathlib import Path
from typing import Any

import pytest
from conftest import Errors, tcp_pair
from protocols import Echo, Made, Recorder, close_all, hang_up, turns, until
from tls_tools import client_context, server_context

Loop = asyncio.AbstractEventLoop

# wait_closed waits for the connections since 3.12.1.
WAITS_FOR_CONNECTIONS = sys.version_info >= (3, 12, 1)


def can_connect(address: Any) -> bool:
    try:
        socket.create_connection(address[:2], timeout=5).close()
    except ConnectionRefusedError:
        return False
    return True


async def test_server_has_loop_sockets_and_state(loop: Loop) -> None:
    server = await loop.create_server(Recorder, "127.0.0.1", 0)
    assert isinstance(server, asyncio.AbstractServer)
    assert isinstance(server, asyncio.Server)
    assert server.get_loop() is loop
    assert server.is_serving()
    assert isinstance(server.sockets, tuple)
    (view,) = server.sockets
    assert isinstance(view, trsock.TransportSocket)
    assert view.family == socket.AF_INET
    assert view.getsockname()[0] == "127.0.0.1"
    assert view.gettimeout() == 0
    assert repr(server).startswith("<Server sockets=")
    await close_all(server)
    assert server.sockets == ()
    assert not server.is_serving()
    server.close()


async def test_a_server_listens_on_several_hosts(loop: Loop) -> None:
    server = await loop.create_server(Recorder, ["127.0.0.1", "127.0.0.2", "::1"], 0)
    addresses = [sock.getsockname() for sock in server.sockets]
    assert {address[0] for address in addresses} == {"127.0.0.1", "127.0.0.2", "::1"}
    assert all(can_connect(address) for address in addresses)
    await close_all(server)
    await until(lambda: len(asyncio.all_tasks()) == 1)


async def test_a_server_without_host_listens_on_every_interface(loop: Loop) -> None:
    with socket.create_server(("", 0)) as probe:
        port = probe.getsockname()[1]
    server = await loop.create_server(Recorder, None, port)
    hosts = {sock.getsockname()[0] for sock in server.sockets}
    assert hosts == {"0.0.0.0", "::"}
    assert {sock.getsockname()[1] for sock in server.sockets} == {port}
    # Both can have the port because the one is for IPv6 alone.
    for sock in server.sockets:
        if sock.family == socket.AF_INET6:
            assert sock.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY) == 1
    await close_all(server)
    server = await loop.create_server(Recorder, "", port)
    assert {sock.getsockname()[0] for sock in server.sockets} == {"0.0.0.0", "::"}
    await close_all(server)


async def test_a_family_chooses_the_addresses(loop: Loop) -> None:
    for family, host in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
        server = await loop.create_server(Recorder, None, 0, family=family)
        assert {sock.getsockname()[0] for sock in server.sockets} == {host}
        await close_all(server)
    with pytest.raises(socket.gaierror):
        await loop.create_server(Recorder, "127.0.0.1", 0, family=socket.AF_INET6)


async def test_an_address_in_use_is_an_error(loop: Loop, listener: socket.socket) -> None:
    with pytest.raises(OSError, match="error while attempting to bind on address") as caught:
        await loop.create_server(Recorder, *listener.getsockname())
    assert caught.value.errno == errno.EADDRINUSE


async def test_an_error_on_one_host_closes_the_others(loop: Loop, listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    with pytest.raises(OSError, match="error while attempting to bind"):
        await loop.create_server(Recorder, ["127.0.0.9", "127.0.0.1"], port)
    assert not can_connect(("127.0.0.9", port))


@pytest.mark.parametrize(
    ("arguments", "option", "expected"),
    [
        ({}, socket.SO_REUSEADDR, True),
        ({"reuse_address": False}, socket.SO_REUSEADDR, False),
        ({"reuse_address": True}, socket.SO_REUSEADDR, True),
        ({}, socket.SO_REUSEPORT, False),
        ({"reuse_port": True}, socket.SO_REUSEPORT, True),
        ({}, socket.SO_KEEPALIVE, False),
        pytest.param(
            {"keep_alive": True},
            socket.SO_KEEPALIVE,
            True,
            marks=pytest.mark.skipif(sys.version_info < (3, 13), reason="new in 3.13"),
        ),
    ],
)
async def test_socket_options_are_set_as_asked(
    loop: Loop, arguments: dict[str, Any], option: int, expected: bool
) -> None:
    server = await loop.create_server(Recorder, "127.0.0.1", 0, **arguments)
    assert bool(server.sockets[0].getsockopt(socket.SOL_SOCKET, option)) is expected
    await close_all(server)


async def test_reuse_port_shares_a_port(loop: Loop) -> None:
    first = await loop.create_server(Recorder, "127.0.0.1", 0, reuse_port=True)
    port = first.sockets[0].getsockname()[1]
    second = await loop.create_server(Recorder, "127.0.0.1", port, reuse_port=True)
    await close_all(first)
    await close_all(second)


async def test_a_server_accepts_only_once_it_serves(loop: Loop) -> None:
    server = await loop.create_server(Recorder, "127.0.0.1", 0, start_serving=False)
    address = server.sockets[0].getsockname()
    assert not server.is_serving()
    assert not can_connect(address)
    await server.start_serving()
    assert server.is_serving()
    await server.start_serving()
    assert can_connect(address)
    await close_all(server)


async def test_a_server_takes_over_a_socket(loop: Loop) -> None:
    made = Made()
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    server = await loop.create_server(made, sock=sock)
    assert server.sockets[0].fileno() == sock.fileno()
    _, near = await loop.create_connection(Recorder, *sock.getsockname())
    await until(lambda: made and made[0].names() == ["made"])
    await hang_up(near, made[0])
    await close_all(server)
    assert sock.fileno() == -1


async def test_unknown_hosts_are_an_error(loop: Loop) -> None:
    with pytest.raises(socket.gaierror):
        await loop.create_server(Recorder, "name.invalid", 0)


async def test_the_end_of_async_with_closes_the_server(loop: Loop) -> None:
    async with await loop.create_server(Recorder, "127.0.0.1", 0) as server:
        assert server.is_serving()
        address = server.sockets[0].getsockname()
    assert not server.is_serving()
    assert not can_connect(address)


async def test_serve_forever_serves_until_it_is_cancelled(loop: Loop) -> None:
    server = await loop.create_server(Recorder, "127.0.0.1", 0, start_serving=False)
    task = loop.create_task(server.serve_forever())
    await until(server.is_serving)
    with pytest.raises(RuntimeError, match="is already being awaited on serve_forever"):
        await server.serve_forever()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not server.is_serving()
    with pytest.raises(RuntimeError, match="is closed"):
        await server.serve_forever()


async def test_close_ends_serve_forever(loop: Loop) -> None:
    server = await loop.create_server(Recorder, "127.0.0.1", 0)
    task = loop.create_task(server.serve_forever())
    await asyncio.sleep(0)
    server.close()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_close_keeps_connections(loop: Loop) -> None:
    made = Made()
    server = await loop.create_server(made, "127.0.0.1", 0)
    address = server.sockets[0].getsockname()
    _, near = await loop.create_connection(Recorder, *address)
    await until(lambda: made and made[0].transport)
    server.close()
    assert not can_connect(address)
    near.transport.write(b"x")
    await until(lambda: made[0].data == b"x")
    waiting = asyncio.ensure_future(server.wait_closed())
    for _ in range(5):
        await asyncio.sleep(0)
    assert waiting.done() is not WAITS_FOR_CONNECTIONS
    await hang_up(near, made[0])
    await waiting
    await server.wait_closed()


@pytest.mark.skipif(sys.version_info < (3, 13), reason="new in 3.13")
@pytest.mark.parametrize("method", ["close_clients", "abort_clients"])
async def test_close_clients_flushes_and_abort_clients_does_not(loop: Loop, method: str) -> None:
    made = Made()
    server = await loop.create_server(made, "127.0.0.1", 0)
    address = server.sockets[0].getsockname()
    near = [(await loop.create_connection(Recorder, *address))[1] for _ in range(3)]
    await until(lambda: len(made) == 3 and all(protocol.transport for protocol in made))
    payload = b"x" * (16 << 20)
    for protocol in near:
        protocol.transport.pause_reading()
    for protocol in made:
        protocol.transport.write(payload)
    server.close()
    getattr(server, method)()
    assert all(protocol.transport.is_closing() for protocol in made)
    for protocol in near:
        protocol.transport.resume_reading()
    for protocol in made:
        assert await protocol.lost is None
    await server.wait_closed()
    for protocol in near:
        await protocol.lost
        if method == "close_clients":
            assert protocol.data == payload
        else:
            assert len(protocol.data) < len(payload)


async def test_connections_that_wait_in_the_backlog_are_all_accepted(loop: Loop) -> None:
    made = Made()
    sock = socket.create_server(("127.0.0.1", 0), backlog=300)
    clients = [socket.create_connection(sock.getsockname()) for _ in range(250)]
    server = await loop.create_server(made, sock=sock, backlog=300)
    await until(lambda: len(made) == 250 and all(protocol.transport for protocol in made))
    peers = {protocol.transport.get_extra_info("peername") for protocol in made}
    assert peers == {client.getsockname() for client in clients}
    for client in clients:
        client.close()
    for protocol in made:
        await protocol.lost
    await close_all(server)


async def test_reset_before_accept_does_not_stop_other_accepts(loop: Loop) -> None:
    sock = socket.create_server(("127.0.0.1", 0))
    gone = socket.create_connection(sock.getsockname())
    gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    gone.close()
    made = Made()
    server = await loop.create_server(made, sock=sock)
    _, near = await loop.create_connection(Recorder, *sock.getsockname())
    await until(lambda: made and made[-1].transport)
    await hang_up(near)
    for protocol in made:
        await protocol.lost
    await close_all(server)


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
async def test_a_connection_that_cannot_have_no_delay_is_dropped(
    loop: Loop, errors: Errors, tmp_path: Path
) -> None:
    """A socket object that takes itself for TCP: the kernel refuses TCP_NODELAY."""
    path = str(tmp_path / "socket")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    tcp = (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    pretender = socket.socket(*tcp, fileno=listener.detach())
    made = Made()
    server = await loop.create_server(made, sock=pretender)
    # The protocol is made first, and asyncio is silent outside of debug mode.
    for debug in (False, True):
        loop.set_debug(debug)
        with socket.socket(socket.AF_UNIX) as client:
            client.setblocking(False)
            await loop.sock_connect(client, path)
            await until(lambda count=1 + debug: len(made) == count)
            await turns(3)
            if debug:
                context = errors.expect(OSError, "Error on transport creation for incoming")
                assert context["exception"].errno == errno.EOPNOTSUPP
                assert context["protocol"] is made[1]
                del context
            gc.collect()  # asyncio leaves its half-made transport to the collector
            assert await loop.sock_recv(client, 1) == b""
    loop.set_debug(False)
    server.close()
    assert [protocol.calls for protocol in made] == [[], []]
    assert not errors.contexts


async def test_close_during_connection_setup_leaks_nothing(loop: Loop) -> None:
    """Nothing leaks when the server goes while connections are being set up."""
    for _ in range(20):
        made: list[Recorder] = []

        def factory(made: list[Recorder] = made) -> Recorder:
            made.append(Recorder())
            return made[-1]

        server = await loop.create_server(factory, "127.0.0.1", 0)
        clients = [socket.create_connection(server.sockets[0].getsockname()) for _ in range(3)]
        await asyncio.sleep(0)
        server.close()
        for client in clients:
            client.close()
        for _ in range(5):
            await asyncio.sleep(0)
        await until(lambda made=made: all(p.lost.done() for p in made))  # type: ignore[misc]
        await server.wait_closed()


@pytest.mark.parametrize("clients", [1, 3])
async def test_server_closed_during_accept_does_not_wait_for_the_connection(
    loop: Loop, clients: int
) -> None:
    """asyncio would not have accepted it yet; here it is served, to its own end."""
    made = Made()
    server = await loop.create_server(made, "127.0.0.1", 0)
    await asyncio.sleep(0)
    address = server.sockets[0].getsockname()
    socks = [socket.create_connection(address) for _ in range(clients)]
    await asyncio.sleep(0)
    server.close()
    await server.wait_closed()
    await turns()
    for sock in socks:
        sock.close()
    for protocol in made:
        await protocol.lost


async def test_an_iteration_accepts_no_more_than_asyncios(loop: Loop, loop_name: str) -> None:
    accept: Any = asyncio.SelectorEventLoop._accept_connection  # type: ignore[attr-defined]
    # range(backlog + 1) since 3.14 and in late releases of 3.13, range(backlog) before.
    most = 2 + (sys.version_info >= (3, 14) or 1 in accept.__code__.co_consts)
    made = Made()
    sock = socket.create_server(("127.0.0.1", 0), backlog=30)
    clients = [socket.create_connection(sock.getsockname()) for _ in range(30)]
    server = await loop.create_server(made, sock=sock, backlog=2)
    await turns()  # in the first of them it may poll twice
    counts = [len(made)]
    while counts[-1] < len(clients):
        await asyncio.sleep(0)
        counts.append(len(made))
    found = max(after - before for before, after in itertools.pairwise(counts))
    # goloop's takes fewer where they would take much time.
    assert found == most if loop_name == "asyncio" else found <= most
    await until(lambda: all(protocol.transport for protocol in made))
    for client in clients:
        client.close()
    for protocol in made:
        await protocol.lost
    await close_all(server)


@pytest.mark.goloop_only("asyncio accepts nobody before 3.14")
async def test_backlog_of_0_accepts_connections(loop: Loop) -> None:
    made = Made()
    server = await loop.create_server(made, "127.0.0.1", 0, backlog=0)
    for number in range(2):
        with socket.create_connection(server.sockets[0].getsockname()):
            await until(lambda number=number: len(made) > number)  # type: ignore[misc]
        await made[number].lost
    await close_all(server)


async def test_server_closed_by_its_first_client_waits_for_that_client(loop: Loop) -> None:
    class Closes(Recorder):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            server.close()

    made = Made(Closes)
    server: Any = await loop.create_server(made, "127.0.0.1", 0)
    sock = socket.create_connection(server.sockets[0].getsockname())
    await until(lambda: made)
    await made[0].made
    closed = asyncio.ensure_future(server.wait_closed())
    await turns()
    assert closed.done() == (sys.version_info < (3, 12))
    sock.close()
    await made[0].lost
    await closed


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
async def test_connection_survives_a_server_closed_during_accept(loop: Loop, tls: bool) -> None:
    """The connection is served, by that server or by another one on the same socket."""
    context = server_context() if tls else None
    with socket.create_server(("127.0.0.1", 0)) as shared:
        for _ in range(20):
            first = await loop.create_server(Echo, sock=shared.dup(), ssl=context)
            await asyncio.sleep(0)
            made = socket.create_connection(shared.getsockname())
            made.setblocking(False)
            await asyncio.sleep(0)
            first.close()
            second = await loop.create_server(Echo, sock=shared.dup(), ssl=context)
            _, client = await loop.create_connection(
                Recorder,
                sock=made,
                ssl=client_context() if tls else None,
                server_hostname="localhost" if tls else None,
            )
            client.transport.write(b"hello")
            await until(lambda client=client: client.data == b"hello" or client.lost.done())  # type: ignore[misc]
            assert client.data == b"hello"
            await hang_up(client)
            await first.wait_closed()
            await close_all(second)


async def test_listening_socket_is_refused_to_others(loop: Loop) -> None:
    near, far = tcp_pair()
    near.close()
    far.close()
    server = await loop.create_server(Recorder, "127.0.0.1", 0)
    fd = server.sockets[0].fileno()
    assert fd >= 0
    await close_all(server)
    with pytest.raises(OSError, match="Bad file descriptor"):
        socket.socket(fileno=fd)


# ---- pauses in accepting -------------------------------------------------------------------------

no_pauses = pytest.mark.goloop_only("asyncio has no such method")


def clients_of(server: Any, count: int) -> list[socket.socket]:
    """Connections that the kernel has made; whether they are accepted is the server's affair."""
    made = [socket.create_connection(server.sockets[0].getsockname()[:2]) for _ in range(count)]
    for each in made:
        each.setblocking(False)
    return made


async def answered(loop: Any, client: socket.socket) -> bool:
    await loop.sock_sendall(client, b"x")
    return await asyncio.wait_for(loop.sock_recv(client, 1), 60) == b"x"


@no_pauses
async def test_connections_wait_while_a_server_is_paused(loop: Any) -> None:
    made: list[Any] = []

    class Counted(Echo):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            made.append(self)

    server: Any = await loop.create_server(Counted, "127.0.0.1", 0)
    assert server.is_accepting()
    before = clients_of(server, 2)
    await until(lambda: len(made) == 2)
    server.pause_accepting()
    server.pause_accepting()
    assert not server.is_accepting()
    assert server.is_serving()
    waiting = clients_of(server, 20)
    # Open connections go on, and by the time that they have answered no other was accepted.
    for _ in range(3):
        assert all([await answered(loop, each) for each in before])
    assert len(made) == 2
    server.resume_accepting()
    assert server.is_accepting()
    assert all([await answered(loop, each) for each in waiting])
    assert len(made) == 22
    for each in [*before, *waiting]:
        each.close()
    await close_all(server)
    assert not server.is_accepting()


@no_pauses
async def test_pauses_among_many_accepts_lose_no_connection(loop: Any) -> None:
    """The protocol of each tenth connection pauses: those accepted in the same iteration too are
    served, and the rest once accepting goes on."""
    made: list[Any] = []

    class Pausing(Echo):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            made.append(self)
            if len(made) % 10 == 0:
                server.pause_accepting()
                loop.call_later(0.001, server.resume_accepting)

    server: Any = await loop.create_server(Pausing, "127.0.0.1", 0, backlog=200)
    clients = clients_of(server, 100)
    assert all(await asyncio.gather(*(answered(loop, each) for each in clients)))
    assert len(made) == 100
    for each in clients:
        each.close()
    await close_all(server)


@no_pauses
async def test_a_tls_server_is_paused_too(loop: Any) -> None:
    server: Any = await loop.create_server(Echo, "127.0.0.1", 0, ssl=server_context())
    server.pause_accepting()
    address = server.sockets[0].getsockname()
    connecting = asyncio.ensure_future(
        asyncio.open_connection(*address, ssl=client_context(), server_hostname="localhost")
    )
    await turns(20)
    assert not connecting.done()
    server.resume_accepting()
    reader, writer = await asyncio.wait_for(connecting, 60)
    writer.write(b"through TLS")
    assert await reader.readexactly(11) == b"through TLS"
    writer.close()
    await writer.wait_closed()
    await close_all(server)


@no_pauses
async def test_a_unix_server_and_start_server_can_pause(loop: Any, tmp_path: Path) -> None:
    async def answer(reader: Any, writer: Any) -> None:
        writer.write(await reader.readline())
        writer.close()

    path = tmp_path / "socket"
    server: Any = await asyncio.start_unix_server(answer, path)
    server.pause_accepting()
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(b"hello\n")
    await turns(20)
    asking = asyncio.ensure_future(reader.read())
    await turns(5)
    assert not asking.done()
    server.resume_accepting()
    assert await asyncio.wait_for(asking, 60) == b"hello\n"
    writer.close()
    await close_all(server)


@no_pauses
async def test_a_paused_server_closes_and_stays_closed(loop: Any) -> None:
    server: Any = await loop.create_server(Recorder, "127.0.0.1", 0)
    address = server.sockets[0].getsockname()
    server.pause_accepting()
    await close_all(server)
    assert not can_connect(address)
    server.resume_accepting()
    server.pause_accepting()
    assert not server.is_accepting()
    assert not can_connect(address)


@no_pauses
async def test_a_server_that_does_not_serve_yet_is_not_accepting(loop: Any) -> None:
    server: Any = await loop.create_server(Echo, "127.0.0.1", 0, start_serving=False)
    await server.start_serving()
    assert server.is_accepting()
    assert type(server).__name__ == "Server"
    assert repr(server).startswith("<Server sockets=")
    await close_all(server)


@no_pauses
@pytest.mark.parametrize("kind", ["tcp", "limited", "streams", "unix", "tls", "own methods"])
async def test_a_pause_before_a_server_serves_is_kept(loop: Any, tmp_path: Path, kind: str) -> None:
    async def answer(reader: Any, writer: Any) -> None:
        writer.write(await reader.readexactly(1))
        writer.close()

    class Listening(socket.socket):
        def accept(self) -> Any:
            return super().accept()

    options: dict[str, Any] = {}
    make = functools.partial(loop.create_server, Echo, "127.0.0.1", 0)
    if kind == "limited":
        options["max_connections"] = 5
    elif kind == "streams":
        make = functools.partial(asyncio.start_server, answer, "127.0.0.1", 0)
    elif kind == "unix":
        make = functools.partial(loop.create_unix_server, Echo, str(tmp_path / "socket"))
    elif kind == "tls":
        options["ssl"] = server_context()
    elif kind == "own methods":
        sock = Listening()
        sock.bind(("127.0.0.1", 0))
        make = functools.partial(loop.create_server, Echo, sock=sock)
    server: Any = await make(start_serving=False, **options)
    server.pause_accepting()
    paused, pauses = loop.metrics().listeners_paused, loop.metrics().accept_pauses
    await server.start_serving()
    assert server.is_serving()
    assert not server.is_accepting()
    assert loop.metrics().listeners_paused == paused + 1
    assert loop.metrics().accept_pauses == pauses + 1
    client = socket.socket(server.sockets[0].family)
    client.connect(server.sockets[0].getsockname())
    client.setblocking(False)
    if kind == "tls":
        asking = asyncio.ensure_future(
            asyncio.open_connection(sock=client, ssl=client_context(), server_hostname="localhost")
        )
    else:
        asking = asyncio.ensure_future(answered(loop, client))
    await turns(20)
    assert not asking.done()
    server.resume_accepting()
    assert server.is_accepting()
    assert loop.metrics().listeners_paused == paused
    opened: Any = await asyncio.wait_for(asking, 60)
    if kind == "tls":
        opened[1].close()
        await opened[1].wait_closed()
    client.close()
    await close_all(server)


@no_pauses
async def test_a_server_that_does_not_serve_yet_is_resumed_limited_and_closed(loop: Any) -> None:
    server: Any = await loop.create_server(Echo, "127.0.0.1", 0, start_serving=False)
    server.pause_accepting()
    server.resume_accepting()
    server.max_connections = 1
    await server.start_serving()
    assert server.is_accepting()
    first, second = clients_of(server, 2)
    assert await answered(loop, first)
    asking = asyncio.ensure_future(answered(loop, second))
    await turns(20)
    assert not asking.done()
    first.close()
    assert await asking
    second.close()
    await close_all(server)
    closed: Any = await loop.create_server(Echo, "127.0.0.1", 0, start_serving=False)
    closed.pause_accepting()
    paused = loop.metrics().listeners_paused
    await close_all(closed)
    closed.resume_accepting()
    assert not closed.is_accepting()
    assert loop.metrics().listeners_paused == paused == 0


@no_pauses
async def test_a_listener_with_methods_of_its_own_can_pause(loop: Any) -> None:
    class Listening(socket.socket):
        def accept(self) -> Any:
            return super().accept()

    sock = Listening()
    sock.bind(("127.0.0.1", 0))
    server: Any = await loop.create_server(Echo, sock=sock)
    server.pause_accepting()
    (client,) = clients_of(server, 1)
    await turns(20)
    asking = asyncio.ensure_future(answered(loop, client))
    await turns(20)
    assert not asking.done()
    server.resume_accepting()
    assert await asking
    client.close()
    await close_all(server)


class Crowd(Echo):
    """Counts the open connections, and the most of them."""

    open = most = 0

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        type(self).open += 1
        type(self).most = max(self.open, self.most)

    def connection_lost(self, exc: Exception | None) -> None:
        type(self).open -= 1


@no_pauses
@pytest.mark.parametrize("tls", [False, True])
async def test_no_more_connections_than_the_limit_are_open(loop: Any, tls: bool) -> None:
    class Here(Crowd):
        pass

    context = server_context() if tls else None
    server: Any = await loop.create_server(Here, "127.0.0.1", 0, backlog=200, ssl=context)
    assert server.max_connections is None
    server.max_connections = 5
    assert server.max_connections == 5
    address = server.sockets[0].getsockname()

    async def visit() -> None:
        options = {"ssl": client_context(), "server_hostname": "localhost"} if tls else {}
        reader, writer = await asyncio.open_connection(*address, **options)
        writer.write(b"x")
        assert await reader.readexactly(1) == b"x"
        writer.close()
        await writer.wait_closed()

    await asyncio.wait_for(asyncio.gather(*(visit() for _ in range(40))), 60)
    assert 1 <= Here.most <= 5
    await until(lambda: Here.open == 0)
    assert server.is_accepting()
    await close_all(server)


@no_pauses
async def test_a_limit_can_be_changed_and_taken_away(loop: Any) -> None:
    class Here(Crowd):
        pass

    server: Any = await loop.create_server(Here, "127.0.0.1", 0)
    clients = clients_of(server, 6)
    await until(lambda: Here.open == 6)
    server.max_connections = 3  # closes none
    assert not server.is_accepting()
    clients += clients_of(server, 6)
    assert await answered(loop, clients[0])
    await turns(20)
    assert Here.open == 6
    server.max_connections = 8
    await until(lambda: Here.open == 8)
    await turns(20)
    assert Here.open == 8
    # A pause by hand stays, with any limit.
    server.pause_accepting()
    server.max_connections = None
    await turns(20)
    assert Here.open == 8
    assert not server.is_accepting()
    server.resume_accepting()
    await until(lambda: Here.open == 12)
    assert type(server).__name__ == "Server"
    for each in clients:
        each.close()
    await close_all(server)


@no_pauses
@pytest.mark.parametrize("kind", ["tcp", "queued", "unix", "streams", "later"])
async def test_a_limit_is_there_before_the_first_connection(
    loop: Any, tmp_path: Path, kind: str
) -> None:
    class Here(Crowd):
        pass

    clients = []
    make = functools.partial(loop.create_server, Here, "127.0.0.1", 0)
    if kind == "queued":
        listening = socket.create_server(("127.0.0.1", 0))
        clients = [socket.create_connection(listening.getsockname()) for _ in range(5)]
        make = functools.partial(loop.create_server, Here, sock=listening)
    elif kind == "unix":
        make = functools.partial(loop.create_unix_server, Here, str(tmp_path / "socket"))
    elif kind == "streams":

        async def serve(reader: Any, writer: Any) -> None:
            Here.open += 1
            Here.most = max(Here.most, Here.open)
            await reader.read()
            Here.open -= 1
            writer.close()

        make = functools.partial(asyncio.start_server, serve, "127.0.0.1", 0)
    server: Any = await make(max_connections=2, start_serving=kind != "later")
    assert server.is_serving() == (kind != "later")
    assert server.max_connections == 2
    await server.start_serving()
    while len(clients) < 5:
        clients.append(socket.socket(server.sockets[0].family))
        clients[-1].connect(server.sockets[0].getsockname())
    await until(lambda: Here.open == 2)
    await turns(20)
    assert Here.most == 2
    for client in clients:
        client.close()
        await until(lambda: Here.open <= 2)
    await until(lambda: Here.open == 0 and server.is_accepting())
    assert Here.most == 2
    await close_all(server)


@no_pauses
async def test_a_server_with_a_wrong_limit_is_not_made(loop: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        address = sock.getsockname()
        with pytest.raises(ValueError, match="must be >= 1"):
            await loop.create_server(Recorder, sock=sock, max_connections=0)
        assert not can_connect(address)
    with pytest.raises(TypeError):
        await loop.create_server(Recorder, "127.0.0.1", 0, max_connection=1)


@no_pauses
async def test_a_wrong_limit_is_refused(loop: Any) -> None:
    server: Any = await loop.create_server(Recorder, "127.0.0.1", 0)
    for wrong in (0, -1):
        with pytest.raises(ValueError, match="must be >= 1"):
            server.max_connections = wrong
    with pytest.raises(TypeError):
        server.max_connections = 1.5
    assert server.max_connections is None
    await close_all(server)


@no_pauses
async def test_a_full_server_closes(loop: Any) -> None:
    server: Any = await loop.create_server(Echo, "127.0.0.1", 0)
    server.max_connections = 1
    first, second = clients_of(server, 2)
    assert await answered(loop, first)
    address = server.sockets[0].getsockname()
    server.close()
    first.close()
    second.close()
    await close_all(server)
    assert not can_connect(address)
