"""Many handshakes at once take turns: each iteration does a few, and nothing is lost meanwhile."""

from __future__ import annotations

import asyncio
import contextvars
import socket
import ssl
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from protocols import Iterations, Made, Recorder, close_all, close_each, reset, turns, until
from tls_tools import Peer, client_context, server_context

Loop = asyncio.AbstractEventLoop

CLIENTS = 12
turns_only = pytest.mark.goloop_only("asyncio does all that there is to do")


@pytest.fixture
def _turns(loop_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No time at all for handshakes: one in each iteration."""
    if loop_name == "asyncio":
        pytest.skip("asyncio does all that there is to do")
    from goloop._internal.tls import handshakes

    monkeypatch.setattr(handshakes, "MIN_TIME", 0.0)
    monkeypatch.setattr(handshakes, "SHARE", 0.0)


def hello(peer: Peer) -> None:
    """Sends the client's first message, and waits for nothing."""
    with pytest.raises(ssl.SSLWantReadError):
        peer.tls.do_handshake()
    peer.flush()


async def listening(loop: Any, accepted: Made) -> tuple[Any, list[Peer]]:
    """A server, and clients that it has accepted and that have said nothing."""
    server = await loop.create_server(accepted, "127.0.0.1", 0, ssl=server_context())
    address = server.sockets[0].getsockname()
    peers = [Peer(socket.create_connection(address), client_context()) for _ in range(CLIENTS)]
    await until(lambda: len(accepted) == CLIENTS)
    await turns(5)
    return server, peers


async def in_threads(loop: Loop, do: Callable[[Peer], Any], peers: list[Peer]) -> list[Any]:
    """Return the results of all peers, which run in parallel."""
    with ThreadPoolExecutor(CLIENTS) as threads:
        return await asyncio.gather(*[loop.run_in_executor(threads, do, peer) for peer in peers])


def each_step(monkeypatch: pytest.MonkeyPatch, note: Callable[[Any], Any]) -> list[Any]:
    """Return a list that gets the result of `note` after each later step of a handshake."""
    from goloop._internal.tls.protocol import TLSProtocol

    steps: list[Any] = []
    original = TLSProtocol._step_handshake

    def noted(self: Any) -> None:
        steps.append(note(self))
        original(self)

    monkeypatch.setattr(TLSProtocol, "_step_handshake", noted)
    return steps


def connecting(loop: Loop, factory: Callable[[], Any], sock: socket.socket) -> asyncio.Task[Any]:
    """A client's connection that has begun, in the caller's context."""
    sock.setblocking(False)
    made = loop.create_connection(
        factory, sock=sock, ssl=client_context(), server_hostname="localhost"
    )
    return asyncio.ensure_future(made)


async def finish(loop: Loop, server: Any, peers: list[Peer], accepted: list[Recorder]) -> None:
    for peer in peers:
        peer.sock.close()
    await until(lambda: all(not each.made.done() or each.lost.done() for each in accepted))
    await close_all(server)
    await until(lambda: not asyncio.all_tasks() - {asyncio.current_task()})


@pytest.mark.usefixtures("_turns")
async def test_each_iteration_does_one_handshake(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    accepted = Made()
    server, peers = await listening(loop, accepted)
    iterations = Iterations(loop)
    done = each_step(monkeypatch, lambda _: iterations.now)
    for peer in peers:
        hello(peer)
    await until(lambda: len(done) >= CLIENTS)
    assert max(Counter(done).values()) == 1
    await in_threads(loop, Peer.handshake, peers)
    await until(lambda: all(each.made.done() for each in accepted))
    assert max(Counter(done).values()) == 1
    iterations.stop()
    await finish(loop, server, peers, accepted)


@pytest.mark.usefixtures("_turns")
async def test_handshakes_take_turns_in_order_of_arrival(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    from goloop._internal.tls import handshakes

    order: list[Any] = []
    came: list[Any] = []
    step, do = handshakes.Handshakes.step_if_allowed, handshakes.Handshakes.run_step
    monkeypatch.setattr(
        handshakes.Handshakes,
        "step_if_allowed",
        lambda self, tls: (came.append(tls), step(self, tls)),
    )
    monkeypatch.setattr(
        handshakes.Handshakes,
        "run_step",
        lambda self, tls: (order.append(tls), do(self, tls)),
    )
    accepted = Made()
    server, peers = await listening(loop, accepted)
    for peer in peers:
        hello(peer)
    await until(lambda: len(order) == CLIENTS)
    assert order == came
    await finish(loop, server, peers, accepted)


@pytest.mark.usefixtures("_turns")
async def test_data_before_the_end_is_delivered_before_it(loop: Loop) -> None:
    """The last flight, data and the end, while the handshake waits for its turn."""
    accepted = Made()
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

    await in_threads(loop, answer, peers)
    await until(lambda: all(each.lost.done() for each in accepted))
    assert [bytes(each.data) for each in accepted] == [b"data"] * CLIENTS
    assert {tuple(each.names()) for each in accepted} == {("made", "data", "eof", "lost")}
    await finish(loop, server, peers, accepted)


@pytest.mark.usefixtures("_turns")
@pytest.mark.parametrize("ending", ["closed", "reset"])
async def test_peer_lost_while_a_handshake_waits_is_an_error(loop: Loop, ending: str) -> None:
    accepted = Made()
    server, peers = await listening(loop, accepted)
    for peer in peers:
        hello(peer)
    for peer in peers[::2]:
        reset(peer.sock) if ending == "reset" else peer.sock.close()
    others = peers[1::2]
    await in_threads(loop, Peer.handshake, others)
    await until(lambda: sum(each.made.done() for each in accepted) == len(others))
    await finish(loop, server, others, accepted)


@pytest.mark.usefixtures("_turns")
async def test_aborted_connections_with_queued_handshakes(loop: Loop) -> None:
    """The transports are aborted with handshakes in the queue."""
    pairs = [socket.socketpair() for _ in range(CLIENTS)]
    tasks = [connecting(loop, Recorder, near) for near, _ in pairs]
    await turns(CLIENTS + 5)
    servers = [Peer(far, server_context(), server_side=True) for _, far in pairs]
    for peer in servers:
        assert peer.fill()
        hello(peer)
    for task in tasks:
        task.cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
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
    tasks = []
    for number, (near, _) in enumerate(pairs):
        variable.set(number)
        tasks.append(connecting(loop, Seeing, near))
    variable.set(-1)
    servers = [Peer(far, server_context(), server_side=True) for _, far in pairs]
    await in_threads(loop, Peer.handshake, servers)
    made = await asyncio.gather(*tasks)
    assert sorted(seen) == list(range(CLIENTS))
    for transport, _ in made:
        transport.abort()
    for peer in servers:
        peer.sock.close()
    await turns(5)


@pytest.mark.goloop_only("asyncio accepts all that wait")
async def test_accepting_takes_turns_too(loop: Loop) -> None:
    """Not all that wait begin in one iteration; how many do is a matter of time (netloop)."""
    count = 90
    iterations = Iterations(loop)
    accepted: list[int] = []

    def accept() -> Recorder:
        accepted.append(iterations.now)
        return Recorder()

    listener = socket.create_server(("127.0.0.1", 0), backlog=count)
    clients = [socket.create_connection(listener.getsockname()) for _ in range(count)]
    server = await loop.create_server(accept, sock=listener, ssl=server_context(), backlog=count)
    await until(lambda: len(accepted) == count)
    assert len(Counter(accepted)) > 1
    iterations.stop()
    close_each(*clients)
    await close_all(server)
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
    await close_all(server)


# ---- waiting handshakes -----------------------------------------------------------------------


class Held:
    """No handshake has its turn before the test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from goloop._internal.tls.handshakes import Handshakes

        self.waiting: list[Any] = []
        self._patch = monkeypatch
        self._step = Handshakes.step_if_allowed
        monkeypatch.setattr(Handshakes, "step_if_allowed", lambda _, tls: self.hold(tls))

    def hold(self, tls: Any) -> None:
        if not tls._handshake_queued:
            tls._handshake_queued = True
            self.waiting.append(tls)

    def release(self) -> None:
        """Give waiting and new connections their turns."""
        from goloop._internal.tls.handshakes import Handshakes

        self._patch.setattr(Handshakes, "step_if_allowed", self._step)
        waiting, self.waiting = self.waiting, []
        for tls in waiting:
            tls._resume_handshake(tls._loop._handshakes.run_step)


@turns_only
async def test_single_bytes_take_no_turn_each(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenSSL is asked where a record's head is there, and where it is whole."""
    from goloop._internal.tls.handshakes import FRESH
    from goloop._internal.tls.protocol import TLSProtocol

    steps = each_step(monkeypatch, lambda tls: tls._handshake_queue)
    accepted = Made()
    server, peers = await listening(loop, accepted)
    peer = peers[0]
    peer.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with pytest.raises(ssl.SSLWantReadError):
        peer.tls.do_handshake()
    first = peer.outgoing.read()
    came: list[int] = []
    received = TLSProtocol._handshake_received
    monkeypatch.setattr(
        TLSProtocol,
        "_handshake_received",
        lambda self, data: (came.append(len(data)), received(self, data)),
    )
    for at, byte in enumerate(first):
        peer.sock.send(bytes([byte]))
        await until(lambda at=at: sum(came) == at + 1)  # type: ignore[misc]
    assert steps == [FRESH, FRESH]
    await loop.run_in_executor(None, peer.handshake)
    await until(lambda: any(each.made.done() for each in accepted))
    await finish(loop, server, peers, accepted)


@turns_only
async def test_reading_is_limited_while_a_handshake_waits(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And it is read on when the turn has come: nothing is lost."""
    from goloop._internal.tls.handshake_steps import READ_AHEAD
    from goloop._internal.tls.protocol import TLSProtocol

    held = Held(monkeypatch)
    accepted = Made()
    server, peers = await listening(loop, accepted)
    peer, much = peers[0], bytes(range(256)) * 16384
    working = loop.run_in_executor(None, lambda: (peer.handshake(), peer.write(much)))
    await until(lambda: len(held.waiting) == 1)
    [first] = held.waiting
    first._resume_handshake(loop._handshakes.run_step)  # type: ignore[attr-defined]
    held.waiting.clear()
    # The client has ended its handshake, and sends all it can.
    await until(lambda: first._ssl_reading_paused)
    assert len(held.waiting) == 1
    most = READ_AHEAD + 256 * 1024
    for _ in range(50):
        await turns(1)
        assert not first._transport.is_reading()
        assert first._incoming.pending < most
    assert isinstance(first, TLSProtocol)
    held.release()
    await working
    await until(lambda: any(len(each.data) == len(much) for each in accepted))
    [recorder] = [each for each in accepted if each.made.done()]
    assert bytes(recorder.data) == much
    assert first._transport.is_reading()
    await finish(loop, server, peers, accepted)


@turns_only
async def test_a_message_of_many_records_is_read_on_after_each_turn(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading stops above the limit and goes on though the handshake wants more."""
    from goloop._internal.tls import handshake_steps as module

    monkeypatch.setattr(module, "READ_AHEAD", 256)
    held = Held(monkeypatch)
    accepted = Made()
    server, peers = await listening(loop, accepted)
    peer = peers[0]
    with pytest.raises(ssl.SSLWantReadError):
        peer.tls.do_handshake()
    [message] = [peer.outgoing.read()[5:]]
    pieces = [message[at : at + 40] for at in range(0, len(message), 40)]
    records = [b"\x16\x03\x01\x00" + bytes([len(each)]) + each for each in pieces]
    for each in records[:-1]:
        peer.sock.sendall(each)
    await until(lambda: len(held.waiting) == 1)
    [first] = held.waiting
    await until(lambda: first._ssl_reading_paused)
    held.release()
    assert not first._ssl_reading_paused
    peer.sock.sendall(records[-1])
    await loop.run_in_executor(None, peer.handshake)
    await until(lambda: any(each.made.done() for each in accepted))
    await finish(loop, server, peers, accepted)


@pytest.mark.usefixtures("_turns")
async def test_eof_after_a_hello_waits_for_its_turn(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is answered, as asyncio does, and in a turn of its own."""
    accepted = Made()
    server, peers = await listening(loop, accepted)
    iterations = Iterations(loop)
    done = each_step(monkeypatch, lambda _: iterations.now)
    for peer in peers:
        hello(peer)
        peer.sock.shutdown(socket.SHUT_WR)

    def answered(peer: Peer) -> int:
        size = 0
        while got := peer.sock.recv(65536):
            size += len(got)
        return size

    assert min(await in_threads(loop, answered, peers)) > 100
    assert len(done) == CLIENTS
    assert max(Counter(done).values()) == 1
    iterations.stop()
    await finish(loop, server, peers, accepted)


@turns_only
async def test_no_handshake_step_for_a_disconnected_peer(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    from goloop._internal.tls.protocol import TLSProtocol

    held = Held(monkeypatch)
    accepted = Made()
    server, peers = await listening(loop, accepted)
    lost: list[Any] = []
    ended = TLSProtocol.connection_lost
    monkeypatch.setattr(
        TLSProtocol, "connection_lost", lambda self, exc: (lost.append(self), ended(self, exc))
    )
    for peer in peers:
        hello(peer)
    await until(lambda: len(held.waiting) == CLIENTS)
    steps: list[Any] = []
    monkeypatch.setattr(TLSProtocol, "_step_handshake", steps.append)
    for peer in peers:
        reset(peer.sock)
    await until(lambda: len(lost) == CLIENTS)
    held.release()
    assert steps == []
    await finish(loop, server, [], accepted)


def test_an_interrupt_in_a_turn_strands_no_handshake(
    loop: Loop, loop_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """connection_made() is left by KeyboardInterrupt; the next run goes on with all others."""
    from goloop._internal.tls import handshakes

    if loop_name != "asyncio":
        monkeypatch.setattr(handshakes, "MIN_TIME", 0.0)
        monkeypatch.setattr(handshakes, "SHARE", 0.0)
    accepted = Made()
    server, peers = loop.run_until_complete(listening(loop, accepted))
    interrupted = accepted[3]

    def leave(transport: Any) -> None:
        Recorder.connection_made(interrupted, transport)
        raise KeyboardInterrupt

    monkeypatch.setattr(interrupted, "connection_made", leave)
    with ThreadPoolExecutor(CLIENTS) as threads:
        shaking = [threads.submit(peer.handshake) for peer in peers]
        with pytest.raises(KeyboardInterrupt):
            loop.run_forever()

        async def rest() -> None:
            await until(lambda: all(each.made.done() for each in accepted))

        loop.run_until_complete(rest())
        for each in shaking:
            each.result()
    loop.run_until_complete(finish(loop, server, peers, accepted))
