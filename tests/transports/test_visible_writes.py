"""Code that can observe a connection finds all earlier writes sent.

goloop collects the small writes of an iteration.  These observers must not notice it: the user of
the socket that a transport exposes or was given, a forked process, the end of a run.
"""

from __future__ import annotations

import asyncio
import os
import socket
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ended
import pytest
from conftest import LoopFactory, tcp_pair
from protocols import Made, Recorder, close_all, close_each, hang_up, reset, turns

import goloop

SCENARIOS = Path(__file__).with_name("visible_writes_scenarios.py")

Loop = asyncio.AbstractEventLoop
Pair = tuple[socket.socket, socket.socket]


class Accepted:
    """A server's transport, and its client's socket."""

    def __init__(self, server: Any, client: socket.socket, protocol: Recorder) -> None:
        self.server, self.client, self.protocol = server, client, protocol
        self.transport = protocol.transport

    async def close(self) -> None:
        await hang_up(self.protocol)
        self.client.close()
        await close_all(self.server)


async def accept(loop: Loop) -> Accepted:
    """Accept a connection whose socket is not yet exposed."""
    protocols = Made()
    server = await loop.create_server(protocols, "127.0.0.1", 0)
    client = socket.create_connection(server.sockets[0].getsockname())
    while not protocols:
        await asyncio.sleep(0)
    await protocols[0].made
    await turns(2)
    client.settimeout(60)
    return Accepted(server, client, protocols[0])


def has(sock: socket.socket) -> bytes:
    """Return the received bytes, without waiting longer than the loopback takes."""
    sock.settimeout(60)
    return sock.recv(1000)


def asked_for(transport: Any) -> Any:
    return transport.get_extra_info("socket")


@pytest.mark.parametrize(
    "socket_of", [asked_for, lambda transport: transport._sock], ids=["asked for", "own"]
)
@pytest.mark.parametrize("before", [False, True])
async def test_shutdown_of_the_exposed_socket_follows_the_bytes(
    loop: Loop, socket_of: Callable[[Any], Any], before: bool
) -> None:
    made = await accept(loop)
    sock = socket_of(made.transport) if before else None
    made.transport.write(b"last words")
    (sock or socket_of(made.transport)).shutdown(socket.SHUT_WR)
    assert has(made.client) == b"last words"
    await made.close()


@pytest.mark.parametrize("by_number", [False, True])
async def test_bytes_sent_by_number_or_duplicate_follow_the_transports(
    loop: Loop, by_number: bool
) -> None:
    made = await accept(loop)
    sock = None if by_number else asked_for(made.transport)
    made.transport.write(b"first ")
    if sock is None:
        os.write(asked_for(made.transport).fileno(), b"second")
    else:
        with sock.dup() as duplicate:
            duplicate.send(b"second")
    got = has(made.client)
    while len(got) < 12:
        got += has(made.client)
    assert got == b"first second"
    await made.close()


async def test_shutdown_of_the_given_socket_follows_the_bytes(loop: Loop, pair: Pair) -> None:
    near, far = pair
    transport, protocol = await loop.create_connection(Recorder, sock=near)
    transport.write(b"last words")
    near.shutdown(socket.SHUT_WR)
    assert has(far) == b"last words"
    await hang_up(protocol)


async def test_a_blocking_peer_of_a_given_socket_has_the_bytes_at_once(
    loop: Loop, pair: Pair
) -> None:
    """In the same thread, which a loop that sends later would wait for for ever."""
    near, far = pair
    transport, protocol = await loop.create_connection(Recorder, sock=near)
    transport.writelines([b"here", b" and now"])
    assert has(far) == b"here and now"
    await hang_up(protocol)


@pytest.mark.goloop_only("asyncio sends each write at once")
async def test_a_given_socket_that_the_program_drops_is_not_exposed(loop: Loop) -> None:
    def exposed_sends() -> int:
        count: int = goloop.diagnostics(loop)["runtime"]["exposed_sends"]
        return count

    near, far = tcp_pair()
    transport, protocol = await loop.create_connection(Recorder, sock=near)
    for _ in range(3):
        transport.write(b"visible")
        assert has(far) == b"visible"
    weak = weakref.ref(near)
    del near
    transport.write(b"visible by a weak reference")
    assert has(far) == b"visible by a weak reference"
    count = exposed_sends()
    assert count == 4
    assert weak() is not None
    del weak
    for _ in range(3):
        transport.write(b"collected")
    await asyncio.sleep(0.01)
    assert exposed_sends() == count
    assert has(far) == b"collected" * 3
    assert transport._sock is not None
    transport.write(b"visible again")
    assert has(far) == b"visible again"
    assert exposed_sends() == count + 1
    await hang_up(protocol)
    far.close()


async def test_shutdown_under_tls_follows_the_bytes(loop: Loop) -> None:
    from tls_tools import client_context, server_context

    protocols = Made()
    server = await loop.create_server(protocols, "127.0.0.1", 0, ssl=server_context())
    address = server.sockets[0].getsockname()
    _, client = await loop.create_connection(
        Recorder, *address[:2], ssl=client_context(), server_hostname="localhost"
    )
    while not protocols:
        await asyncio.sleep(0)
    await protocols[0].made
    protocols[0].transport.write(b"last words")
    protocols[0].transport.get_extra_info("socket").shutdown(socket.SHUT_WR)
    await client.eof
    assert client.data == b"last words"
    await hang_up(client, protocols[0])
    await close_all(server)


# ---- holders of the number, a duplicate or the socket itself -------------------------------

# The object to take in connection_made, and the function that sends by it later.
HANDED_OUT: dict[str, tuple[Any, Any]] = {
    "fileno": (lambda view: view.fileno(), lambda fd: os.write(fd, b"body")),
    "dup": (lambda view: view.dup(), lambda sock: (sock.send(b"body"), sock.close())),
    "_sock": (lambda view: view._sock, lambda sock: sock.send(b"body")),
}


@pytest.mark.parametrize("how", HANDED_OUT)
async def test_bytes_sent_by_an_earlier_number_follow_the_transports(loop: Loop, how: str) -> None:
    take, send = HANDED_OUT[how]

    class Server(Recorder):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self.taken = take(transport.get_extra_info("socket"))

        def data_received(self, data: bytes) -> None:
            self.transport.write(b"headers ")
            send(self.taken)
            self.transport.close()

    server = await loop.create_server(Server, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    writer.write(b"x")
    assert await reader.read() == b"headers body"
    await close_all(writer, server)


@pytest.mark.parametrize(
    "use",
    [
        lambda view: view.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        lambda view: (view.family, view.type, view.proto, view.getsockname(), view.getpeername()),
        repr,
    ],
    ids=["setsockopt", "names", "repr"],
)
@pytest.mark.goloop_only("asyncio sends each write at once")
async def test_other_uses_of_the_socket_leave_writes_collected(loop: Loop, use: Any) -> None:
    made = await accept(loop)
    use(made.transport.get_extra_info("socket"))
    assert made.transport._exposed is False
    made.transport.get_extra_info("socket").fileno()
    assert made.transport._exposed is True
    await made.close()


@pytest.mark.goloop_only("asyncio sends each write at once")
async def test_sendfile_leaves_writes_collected(loop: Loop, tmp_path: Any) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"from a file")
    made = await accept(loop)
    with path.open("rb") as file:
        await loop.sendfile(made.transport, file)
    assert has(made.client) == b"from a file"
    assert made.transport._exposed is False
    await made.close()


# ---- forks ------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
async def test_a_fork_finds_the_bytes_sent(loop: Loop) -> None:
    """The child looks, while the parent's loop stands still."""
    made = await accept(loop)
    made.transport.write(b"before the fork")
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(0 if has(made.client) == b"before the fork" else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    await made.close()


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
async def test_a_fork_within_connection_made_finds_the_bytes_sent(loop: Loop) -> None:
    """The transport is not registered yet."""
    statuses: list[int] = []

    class Forks(Recorder):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            transport.write(b"hello")
            pid = os.fork()
            if pid == 0:
                try:
                    os._exit(0 if has(client) == b"hello" else 1)
                finally:
                    os._exit(2)
            statuses.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))

    server = await loop.create_server(Forks, "127.0.0.1", 0)
    client = socket.create_connection(server.sockets[0].getsockname())
    while not statuses:
        await asyncio.sleep(0)
    assert statuses == [0]
    client.close()
    await close_all(server)
    await asyncio.sleep(0.05)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_write_between_two_runs_is_sent_at_once(loop_factory: LoopFactory) -> None:
    near, far = tcp_pair()
    loop = loop_factory()
    transport, protocol = loop.run_until_complete(loop.create_connection(Recorder, sock=near))
    transport.write(b"between")
    assert has(far) == b"between"
    transport.abort()
    loop.run_until_complete(protocol.lost)
    close_each(loop, far)


# ---- the end of a run, and of a process ---------------------------------------------------


@pytest.mark.parametrize(
    "end", ["loop.stop()", "raise SystemExit", "raise KeyboardInterrupt", "task.cancel()"]
)
def test_pending_writes_are_sent_however_the_run_ends(loop_name: str, end: str) -> None:
    """In a process of its own, which ends without another run of the loop."""
    name = "pending_writes_are_sent_however_the_run_ends"
    assert ended.passes(SCENARIOS, name, loop_name, end) == "last words\n"


@pytest.mark.forks
def test_a_loop_in_a_daemon_thread_has_its_bytes_sent_at_exit(loop_name: str) -> None:
    """The interpreter ends while a callback of another thread's loop goes on."""
    name = "a_loop_in_a_daemon_thread_has_its_bytes_sent_at_exit"
    done = ended.python("-W", "ignore", SCENARIOS, name, loop_name)
    assert done.stdout == "last words\n"


@pytest.mark.parametrize("end", ["abort", "close"])
async def test_connection_lost_reports_unsent_bytes(loop: Loop, end: str) -> None:
    """Also where the bytes that were written leave with the end alone."""
    accepted = await accept(loop)
    accepted.transport.pause_reading()
    await turns(2)
    reset(accepted.client)
    accepted.transport.write(b"x")
    getattr(accepted.transport, end)()
    assert isinstance(await accepted.protocol.lost, ConnectionError)
    assert accepted.protocol.names() == ["made", "lost"]
    await close_all(accepted.server)
