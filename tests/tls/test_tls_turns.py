"""Many handshakes at once take turns: each iteration does a few, and nothing is lost meanwhile."""

from __future__ import annotations

import asyncio
import contextvars
import socket
import ssl
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from protocols import Recorder, turns, until
from tls_tools import Peer, client_context, server_context

Loop = asyncio.AbstractEventLoop

CLIENTS = 12


@pytest.fixture
def _turns(loop_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No time at all for handshakes: one in each iteration."""
    if loop_name == "asyncio":
        pytest.skip("asyncio does all that there is to do")
    from goloop._internal import handshakes

    monkeypatch.setattr(handshakes, "BUDGET", 0.0)


class Iterations:
    """Counts iterations, by a callback that is always ready."""

    def __init__(self, loop: Loop) -> None:
        self.now = 0
        self._loop = loop
        self._handle = loop.call_soon(self._tick)

    def _tick(self) -> None:
        self.now += 1
        self._handle = self._loop.call_soon(self._tick)

    def stop(self) -> None:
        self._handle.cancel()


def hello(peer: Peer) -> None:
    """Sends the client's first message, and waits for nothing."""
    with pytest.raises(ssl.SSLWantReadError):
        peer.tls.do_handshake()
    peer.flush()


async def listening(loop: Any, accepted: list[Recorder]) -> tuple[Any, list[Peer]]:
    """A server, and clients that it has accepted and that have said nothing."""

    def accept() -> Recorder:
        accepted.append(Recorder())
        return accepted[-1]

    server = await loop.create_server(accept, "127.0.0.1", 0, ssl=server_context())
    address = server.sockets[0].getsockname()
    peers = [Peer(socket.create_connection(address), client_context()) for _ in range(CLIENTS)]
    await until(lambda: len(accepted) == CLIENTS)
    await turns(5)
    return server, peers


async def finish(loop: Loop, server: Any, peers: list[Peer], accepted: list[Recorder]) -> None:
    for peer in peers:
        peer.sock.close()
    await until(lambda: all(not each.made.done() or each.lost.done() for each in accepted))
    server.close()
    await server.wait_closed()
    await until(lambda: not asyncio.all_tasks() - {asyncio.current_task()})


@pytest.mark.usefixtures("_turns")
async def test_each_iteration_does_one_handshake(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    import goloop._internal.tls

    accepted: list[Recorder] = []
    server, peers = await listening(loop, accepted)
    iterations = Iterations(loop)
    done: list[tuple[int, Any]] = []
    original = goloop._internal.tls.TLSProtocol._do_handshake

    def counted(self: Any) -> None:
        done.append((iterations.now, self._app_protocol))
        original(self)

    monkeypatch.setattr(goloop._internal.tls.TLSProtocol, "_do_handshake", counted)
    for peer in peers:
        hello(peer)
    await until(lambda: len(done) >= CLIENTS)
    assert max(Counter(at for at, _ in done).values()) == 1
    with ThreadPoolExecutor(CLIENTS) as threads:
        shaking = [loop.run_in_executor(threads, peer.handshake) for peer in peers]
        await asyncio.gather(*shaking)
    await until(lambda: all(each.made.done() for each in accepted))
    assert max(Counter(at for at, _ in done).values()) == 1
    iterations.stop()
    await finish(loop, server, peers, accepted)


@pytest.mark.usefixtures("_turns")
async def test_a_crowd_gets_one_in_each_iteration_and_few_a_budget(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    import goloop._internal.tls
    from goloop._internal import handshakes

    monkeypatch.setattr(handshakes, "CROWD", 8)
    accepted: list[Recorder] = []
    server, peers = await listening(loop, accepted)
    iterations = Iterations(loop)
    done: list[int] = []
    original = goloop._internal.tls.TLSProtocol._do_handshake

    def counted(self: Any) -> None:
        done.append(iterations.now)
        if len(done) == 2:  # the others wait by now
            monkeypatch.setattr(handshakes, "BUDGET", 1.0)
        original(self)

    monkeypatch.setattr(goloop._internal.tls.TLSProtocol, "_do_handshake", counted)
    for peer in peers:
        hello(peer)
    await until(lambda: len(done) >= CLIENTS)
    assert list(Counter(done).values()) == [1, 1, 1, 1, 1, 7]
    iterations.stop()
    await finish(loop, server, peers, accepted)


@pytest.mark.usefixtures("_turns")
async def test_they_take_turns_in_the_order_in_which_they_came(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    from goloop._internal import handshakes

    order: list[Any] = []
    came: list[Any] = []
    step, do = (
        handshakes.Handshakes.step,
        handshakes.Handshakes._do,
    )
    monkeypatch.setattr(
        handshakes.Handshakes,
        "step",
        lambda self, tls: (came.append(tls), step(self, tls)),
    )
    monkeypatch.setattr(
        handshakes.Handshakes,
        "_do",
        lambda self, tls: (order.append(tls), do(self, tls)),
    )
    accepted: list[Recorder] = []
    server, peers = await listening(loop, accepted)
    for peer in peers:
        hello(peer)
    await until(lambda: len(order) == CLIENTS)
    assert order == came
    await finish(loop, server, peers, accepted)


@pytest.mark.usefixtures("_turns")
async def test_what_came_before_the_end_comes_before_the_end(loop: Loop) -> None:
    """The last flight, data and the end, while the handshake waits for its turn."""
    accepted: list[Recorder] = []
    server, peers = await listening(loop, accepted)
    for peer in peers:
        hello(peer)

    def answer(peer: Peer) -> None:
        while True:
            try:
                peer.tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                peer.flush()
                assert peer.fill()
        peer.tls.write(b"data")
        peer.flush()
        peer.sock.shutdown(socket.SHUT_WR)

    with ThreadPoolExecutor(CLIENTS) as threads:
        await asyncio.gather(*[loop.run_in_executor(threads, answer, peer) for peer in peers])
    await until(lambda: all(each.lost.done() for each in accepted))
    assert [bytes(each.data) for each in accepted] == [b"data"] * CLIENTS
    assert {tuple(each.names()) for each in accepted} == {("made", "data", "eof", "lost")}
    await finish(loop, server, peers, accepted)


@pytest.mark.usefixtures("_turns")
@pytest.mark.parametrize("ending", ["closed", "reset"])
async def test_a_peer_that_goes_while_it_waits_is_an_error_of_its_own(
    loop: Loop, ending: str
) -> None:
    accepted: list[Recorder] = []
    server, peers = await listening(loop, accepted)
    for peer in peers:
        hello(peer)
    for peer in peers[::2]:
        if ending == "reset":
            linger = bytes([1, 0, 0, 0, 0, 0, 0, 0])
            peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        peer.sock.close()
    others = peers[1::2]
    with ThreadPoolExecutor(CLIENTS) as threads:
        await asyncio.gather(*[loop.run_in_executor(threads, each.handshake) for each in others])
    await until(lambda: sum(each.made.done() for each in accepted) == len(others))
    await finish(loop, server, others, accepted)


@pytest.mark.usefixtures("_turns")
async def test_a_client_whose_connection_is_given_up_while_it_waits(loop: Loop) -> None:
    """The transports are aborted with handshakes in the queue."""
    pairs = [socket.socketpair() for _ in range(CLIENTS)]
    connecting = []
    for near, _ in pairs:
        near.setblocking(False)
        connecting.append(
            asyncio.ensure_future(
                loop.create_connection(
                    Recorder, sock=near, ssl=client_context(), server_hostname="localhost"
                )
            )
        )
    await turns(5)
    servers = [Peer(far, server_context(), server_side=True) for _, far in pairs]
    for peer in servers:
        assert peer.fill()
        hello(peer)
    for task in connecting:
        task.cancel()
    results = await asyncio.gather(*connecting, return_exceptions=True)
    assert all(isinstance(each, asyncio.CancelledError) for each in results)
    for peer in servers:
        peer.sock.close()
    await turns(CLIENTS + 5)


@pytest.mark.usefixtures("_turns")
async def test_a_turn_runs_in_the_connections_context(loop: Loop) -> None:
    variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable")
    seen: list[int] = []

    class Seeing(Recorder):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            seen.append(variable.get())
            super().connection_made(transport)

    pairs = [socket.socketpair() for _ in range(CLIENTS)]
    connecting = []
    for number, (near, _) in enumerate(pairs):
        near.setblocking(False)
        variable.set(number)
        connecting.append(
            asyncio.ensure_future(
                loop.create_connection(
                    Seeing, sock=near, ssl=client_context(), server_hostname="localhost"
                )
            )
        )
    variable.set(-1)
    servers = [Peer(far, server_context(), server_side=True) for _, far in pairs]
    with ThreadPoolExecutor(CLIENTS) as threads:
        shaking = [loop.run_in_executor(threads, peer.handshake) for peer in servers]
        await asyncio.gather(*shaking)
    made = await asyncio.gather(*connecting)
    assert sorted(seen) == list(range(CLIENTS))
    for transport, _ in made:
        transport.abort()
    for peer in servers:
        peer.sock.close()
    await turns(5)


async def test_accepting_takes_turns_too(loop: Loop, loop_name: str) -> None:
    if loop_name == "asyncio":
        pytest.skip("asyncio accepts all that wait")
    from goloop._internal.handshakes import ACCEPTS

    iterations = Iterations(loop)
    accepted: list[int] = []

    def accept() -> Recorder:
        accepted.append(iterations.now)
        return Recorder()

    listener = socket.create_server(("127.0.0.1", 0))
    clients = [socket.create_connection(listener.getsockname()) for _ in range(40)]
    server = await loop.create_server(accept, sock=listener, ssl=server_context())
    await until(lambda: len(accepted) == 40)
    # From 3.14 on asyncio accepts one more than it is told.
    assert max(Counter(accepted).values()) <= ACCEPTS + 1
    iterations.stop()
    for client in clients:
        client.close()
    server.close()
    await server.wait_closed()
    await until(lambda: not asyncio.all_tasks() - {asyncio.current_task()})


async def test_a_lone_handshake_does_not_wait(loop: Loop) -> None:
    """With the budget that there is, one client is served at once."""
    accepted = Recorder()
    server = await loop.create_server(lambda: accepted, "127.0.0.1", 0, ssl=server_context())
    done = threading.Event()

    def client() -> bytes:
        peer = Peer(socket.create_connection(server.sockets[0].getsockname()), client_context())
        peer.handshake()
        peer.write(b"data")
        answer = peer.read_exactly(6)
        done.set()
        peer.sock.close()
        return answer

    working = loop.run_in_executor(None, client)
    await until(lambda: accepted.data == b"data")
    accepted.transport.write(b"answer")
    assert await working == b"answer"
    await accepted.lost
    server.close()
    await server.wait_closed()
