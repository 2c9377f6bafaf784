"""Objects that run Python at the wrong moment, given to transports."""

from __future__ import annotations

import asyncio
import gc
import socket
import sys
import weakref
from pathlib import Path
from typing import Any

import ended
import pytest
from conftest import tcp_pair
from protocols import Recorder, close_each, hang_up, turns, until

SCENARIOS = Path(__file__).with_name("transport_safety_scenarios.py")

Loop = asyncio.AbstractEventLoop
Pair = tuple[socket.socket, socket.socket]

with_buffers = pytest.mark.skipif(
    sys.version_info < (3, 12), reason="classes have __buffer__ from Python 3.12 on"
)


async def connect(loop: Loop, near: socket.socket) -> tuple[Any, Any]:
    return await loop.create_connection(Recorder, sock=near)


# ---- objects with __buffer__ -------------------------------------------------------------


@with_buffers
@pytest.mark.parametrize("what", ["abort", "close", "write_eof", "_call_connection_lost"])
@pytest.mark.parametrize("size", [10, 200_000])
@pytest.mark.goloop_only("asyncio sends it, or fails with AttributeError")
async def test_a_buffer_that_ends_its_transport_is_not_sent(
    loop: Loop, pair: Pair, what: str, size: int
) -> None:
    near, _ = pair
    transport, protocol = await connect(loop, near)

    class Evil(bytes):
        def __buffer__(self, flags: int) -> memoryview:
            getattr(transport, what)(*([None] if what.startswith("_") else []))
            return memoryview(b"q" * size)

    transport.write(Evil(b"x" * size))
    assert transport.get_write_buffer_size() == 0
    await turns(5)
    if what == "write_eof":  # still open for reading, and nothing was sent after the end
        assert not protocol.lost.done()
        transport.abort()
    assert await protocol.lost is None
    assert transport.get_write_buffer_size() == 0


@with_buffers
async def test_buffer_that_becomes_empty_sends_nothing(loop: Loop, pair: Pair) -> None:
    near, far = pair
    transport, protocol = await connect(loop, near)

    class Evil(bytes):
        def __buffer__(self, flags: int) -> memoryview:
            return memoryview(b"")

    transport.write(Evil(b"xxxxx"))
    transport.write(b"after")
    assert await loop.sock_recv(far, 100) == b"after"
    transport.close()
    await protocol.lost


@with_buffers
@pytest.mark.goloop_only("asyncio asks for the buffer twice")
async def test_write_from_a_buffers_export_is_sent_first(loop: Loop, pair: Pair) -> None:
    near, far = pair
    transport, protocol = await connect(loop, near)

    class Evil(bytes):
        def __buffer__(self, flags: int) -> memoryview:
            transport.write(b"inner ")
            return memoryview(b"outer")

    transport.write(Evil(b"xxxxx"))
    got = b""
    while len(got) < 11:
        got += await loop.sock_recv(far, 100)
    assert got == b"inner outer"
    transport.close()
    await protocol.lost


@with_buffers
@pytest.mark.goloop_only("asyncio sends what it has, or fails")
async def test_pieces_that_end_their_transport_are_not_sent(loop: Loop, pair: Pair) -> None:
    near, far = pair
    transport, protocol = await connect(loop, near)

    class Evil(bytes):
        def __buffer__(self, flags: int) -> memoryview:
            transport.write_eof()
            return memoryview(b"late")

    transport.writelines([b"first", Evil(b"xxxxx"), b"last"])
    assert await loop.sock_recv(far, 100) == b""
    transport.close()
    await protocol.lost


@with_buffers
@pytest.mark.goloop_only("asyncio uses the loop of the lost transport, which is None")
async def test_datagram_that_loses_its_transport_is_dropped(loop: Loop, errors: Any) -> None:
    transport, _ = await loop.create_datagram_endpoint(
        asyncio.DatagramProtocol, local_addr=("127.0.0.1", 0)
    )

    class Evil(bytes):
        def __buffer__(self, flags: int) -> memoryview:
            transport._call_connection_lost(None)  # type: ignore[attr-defined]
            return memoryview(b"x")

    transport.sendto(Evil(b"x"), None)  # not an address
    assert errors.contexts == []


@with_buffers
async def test_datagram_keeps_its_address_if_its_buffer_sends_another(loop: Loop) -> None:
    sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2)]
    for sock in sockets:
        sock.bind(("127.0.0.1", 0))
        sock.setblocking(False)
    first, second = (sock.getsockname() for sock in sockets)
    transport, _ = await loop.create_datagram_endpoint(
        asyncio.DatagramProtocol, local_addr=("127.0.0.1", 0)
    )

    class Evil(bytes):
        def __buffer__(self, flags: int) -> memoryview:
            transport.sendto(b"to the second", second)
            return memoryview(b"to the first")

    transport.sendto(Evil(b"xxxxxxxxxxxx"), first)
    assert await loop.sock_recv(sockets[0], 100) == b"to the first"
    assert await loop.sock_recv(sockets[1], 100) == b"to the second"
    transport.abort()
    await turns(3)
    close_each(*sockets)


@with_buffers
@pytest.mark.parametrize("what", ["abort", "_call_connection_lost"])
@pytest.mark.parametrize("connected", [False, True])
@pytest.mark.goloop_only("asyncio fails with AttributeError")
async def test_datagram_buffer_that_closes_its_transport_does_not_crash(
    loop: Loop, what: str, connected: bool
) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as target:
        target.bind(("127.0.0.1", 0))
        remote = target.getsockname()
        transport, _ = await loop.create_datagram_endpoint(
            asyncio.DatagramProtocol,
            local_addr=("127.0.0.1", 0),
            remote_addr=remote if connected else None,
        )

        class Evil(bytes):
            def __buffer__(self, flags: int) -> memoryview:
                getattr(transport, what)(*([None] if what.startswith("_") else []))
                return memoryview(b"data")

        transport.sendto(Evil(b"xxxx"), None if connected else remote)
        transport.abort()
        await turns(3)


# ---- extra info -------------------------------------------------------------------------------


async def test_key_that_replaces_the_extra_info_does_not_crash(loop: Loop, pair: Pair) -> None:
    near, _ = pair
    transport, protocol = await connect(loop, near)

    class Evil(str):
        def __hash__(self) -> int:
            return hash("socket")

        def __eq__(self, other: object) -> bool:
            transport._extra = {}
            gc.collect()
            return False

    assert transport.get_extra_info(Evil("zz"), "default") == "default"
    await hang_up(protocol)


@pytest.mark.goloop_only("goloop's constructor")
async def test_extra_info_replaced_during_getsockname_does_not_crash(loop: Loop) -> None:
    from goloop._internal.net.stream_transport import StreamTransport

    made: Any = StreamTransport.__new__(StreamTransport)

    class Evil(socket.socket):
        def getsockname(self) -> Any:
            made._extra = {}
            gc.collect()
            return super().getsockname()

    near, far = tcp_pair()
    evil = Evil(fileno=near.detach())
    made.__init__(loop, evil, Recorder(), None, {"given": 1})
    assert made.get_extra_info("given") == 1
    assert made.get_extra_info("sockname") == evil.getsockname()
    made.abort()
    await turns(3)
    far.close()


# ---- a dying transport's number ------------------------------------------------------------------


@pytest.mark.goloop_only("goloop's constructor")
async def test_the_number_of_a_transport_that_is_being_freed_can_be_asked_for(loop: Loop) -> None:
    """The callback of the transport's weak reference looks for the owner of the number."""
    from goloop import _core

    near, far = tcp_pair()
    number = near.fileno()
    seen: list[object] = []

    def look(_: object) -> None:
        try:
            loop.add_reader(number, print)
            loop.remove_reader(number)
            seen.append("free")
        except (RuntimeError, OSError) as error:
            seen.append(error)

    transport: Any = _core.StreamTransport(loop, near, Recorder())  # type: ignore[arg-type]
    reference = weakref.ref(transport, look)
    await turns(3)
    transport.abort()
    del transport
    await turns(3)
    gc.collect()
    await until(lambda: bool(seen))
    assert reference() is None
    close_each(near, far)


# ---- a class in place of goloop's ----------------------------------------------------------------


@pytest.mark.parametrize("put", ["object", "dict", "none"])
def test_replaced_transport_class_must_be_a_transport(put: str) -> None:
    """Others would be used as a stream's structure: a TypeError, and the client is closed."""
    printed = ended.passes(SCENARIOS, "a_replaced_class_of_transports", put)
    assert printed.startswith("b'' goloop._internal.net.stream_transport.StreamTransport must be ")
    assert "must be a subclass of goloop._core.StreamTransport" in printed


def test_accepted_transport_is_made_without_new() -> None:
    """A subclass's __new__ may return anything."""
    assert ended.passes(SCENARIOS, "a_replaced_class_of_transports", "odd") == "b'answer' True\n"


# ---- no memory ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["StreamTransport", "DatagramTransport", "ReadPipeTransport"])
def test_a_transport_that_gets_no_memory_is_not_made(name: str) -> None:
    pytest.importorskip("_testcapi")
    outcomes = ended.passes(SCENARIOS, "a_transport_that_gets_no_memory_is_not_made", name).split()
    assert len(outcomes) == 10
    first = outcomes.index("made")
    assert first >= 1
    assert set(outcomes[first:]) == {"made"}
