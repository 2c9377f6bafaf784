"""Addresses of datagrams: sockets whose peer has no name, and names that need a look-up."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest
from datagram_tools import close, endpoint, unix_datagrams
from protocols import hang_up, until

Loop = asyncio.AbstractEventLoop


@pytest.mark.goloop_only("asyncio's calls sendto(data, None), and ends with TypeError")
async def test_a_socketpair_needs_no_address(loop: Loop, tmp_path: Path) -> None:
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    near.setblocking(False)
    transport, protocol = await endpoint(loop, sock=near)
    transport.sendto(b"without")
    transport.sendto(b"none", None)
    assert (far.recv(100), far.recv(100)) == (b"without", b"none")
    far.send(b"back")
    await until(lambda: protocol.data() == [b"back"])
    # An address goes to that one all the same.
    with unix_datagrams(tmp_path / "other") as other:
        transport.sendto(b"elsewhere", str(tmp_path / "other"))
        assert other.recv(100) == b"elsewhere"
    await close(transport)
    far.close()


@pytest.mark.goloop_only("asyncio's calls sendto(data, None), and ends with TypeError")
async def test_a_socketpair_that_is_full_is_waited_for(loop: Loop) -> None:
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    near.setblocking(False)
    transport, _ = await endpoint(loop, sock=near)
    for number in range(2000):
        transport.sendto(b"%d" % number)
    assert transport.get_write_buffer_size() > 0
    got = [await loop.run_in_executor(None, far.recv, 100) for _ in range(2000)]
    assert got == [b"%d" % number for number in range(2000)]
    await close(transport)
    far.close()


@pytest.mark.parametrize("host", ["localhost", "name.invalid", b"localhost"])
@pytest.mark.goloop_only("asyncio looks it up")
async def test_a_host_name_is_refused(loop: Loop, udp: socket.socket, host: Any) -> None:
    """asyncio looks it up, and the loop stands still meanwhile."""
    transport, protocol = await endpoint(loop, local_addr=("127.0.0.1", 0))
    with pytest.raises(ValueError, match=r"sendto\(\) does not resolve names.*loop\.getaddrinfo"):
        transport.sendto(b"refused", (host, udp.getsockname()[1]))
    transport.sendto(b"sent", udp.getsockname())
    await until(lambda: not transport.get_write_buffer_size())
    assert udp.recv(100) == b"sent"
    assert not protocol.errors
    await close(transport)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1", "2130706433", b"127.0.0.1", ""])
async def test_other_forms_of_an_address_are_sent_to(
    loop: Loop, udp: socket.socket, host: Any
) -> None:
    transport, _ = await endpoint(loop, local_addr=("127.0.0.1", 0))
    transport.sendto(b"sent", (host, udp.getsockname()[1]))
    assert await loop.run_in_executor(None, udp.recv, 100) == b"sent"
    await close(transport)


@pytest.mark.parametrize("address", [("::1", 9), (1, 9), ("127.0.0.1",), (), "127.0.0.1", 5])
async def test_invalid_address_is_refused_by_the_socket(
    loop: Loop, address: Any, errors: Any
) -> None:
    transport, protocol = await endpoint(loop, local_addr=("127.0.0.1", 0))
    transport.sendto(b"refused", address)
    await until(lambda: protocol.errors or protocol.lost.done() or errors.contexts)
    if protocol.errors:
        assert isinstance(protocol.errors[0], OSError)
    elif not protocol.lost.done() and not transport.is_closing():  # goloop drops the datagram
        dropped = "A datagram was dropped, because its address is invalid"
        exc = errors.expect(message=dropped)["exception"]
        assert isinstance(exc, (TypeError, OverflowError))
    else:
        await until(protocol.lost.done)
        assert isinstance(protocol.lost.result(), (TypeError, OverflowError))
        errors.expect(type(protocol.lost.result()), "Fatal write error on datagram transport")
    await hang_up(protocol)


@pytest.mark.goloop_only("goloop's own check")
async def test_a_transport_may_end_while_an_address_is_looked_at(loop: Loop) -> None:
    transport, protocol = await endpoint(loop, local_addr=("127.0.0.1", 0))

    def end(address: Any) -> None:
        transport.abort()
        transport._call_connection_lost(None)

    transport._refuse_look_up = end
    transport.sendto(b"dropped", ("name.invalid", 9))
    assert protocol.lost.done()
    # Arguments come first, as everywhere: a name is refused by a transport that has ended, too.
    del transport._refuse_look_up
    with pytest.raises(ValueError, match="does not resolve names"):
        transport.sendto(b"dropped", ("name.invalid", 9))
    await asyncio.sleep(0)


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
async def test_a_program_may_write_the_remote_address(loop: Loop, family: int) -> None:
    """As asyncio_dgram does: from then on no other may be given."""
    host = "127.0.0.1" if family == socket.AF_INET else "::1"
    far, near = (socket.socket(family, socket.SOCK_DGRAM) for _ in range(2))
    far.bind((host, 0))
    near.connect(far.getsockname())
    far.settimeout(60)
    transport: Any
    transport, _ = await endpoint(loop, sock=near)
    assert transport._address is None
    transport._address = transport.get_extra_info("peername")
    transport.sendto(b"without")
    transport.sendto(b"the same", far.getsockname())
    with pytest.raises(ValueError, match=r"Invalid address: must be None or \('"):
        transport.sendto(b"another", (host, 1))
    assert (far.recv(100), far.recv(100)) == (b"without", b"the same")
    transport._address = None
    transport.sendto(b"free again")
    assert far.recv(100) == b"free again"
    await close(transport)
    far.close()


@pytest.mark.parametrize("nothing", [None, "", (), b"", 0, []])
async def test_false_address_counts_as_no_address(
    loop: Loop, tmp_path: Path, nothing: object
) -> None:
    """Of an endpoint that is not connected: each datagram goes where its own address says."""
    transport: Any
    for family in (socket.AF_INET, socket.AF_UNIX):
        far = socket.socket(family, socket.SOCK_DGRAM)
        far.settimeout(60)
        near = socket.socket(family, socket.SOCK_DGRAM)
        for number, each in enumerate((far, near)):
            inet = family == socket.AF_INET
            each.bind(("127.0.0.1", 0) if inet else str(tmp_path / str(number)))
        transport, protocol = await endpoint(loop, sock=near)
        transport._address = nothing
        transport.sendto(b"first", far.getsockname())
        transport.sendto(b"second", far.getsockname())
        assert (far.recv(100), far.recv(100)) == (b"first", b"second")
        assert protocol.calls[1:] == []
        await close(transport)
        far.close()


@pytest.mark.parametrize("nothing", [None, "", ()])
async def test_a_connected_socket_needs_no_remote_address(
    loop: Loop, udp: socket.socket, nothing: object
) -> None:
    near = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    near.connect(udp.getsockname())
    transport: Any
    transport, _ = await endpoint(loop, sock=near)
    transport._address = nothing
    transport.sendto(b"without")
    assert udp.recv(100) == b"without"
    await close(transport)


@pytest.mark.goloop_only("asyncio's calls sendto(data, None), and ends with TypeError")
@pytest.mark.parametrize("nothing", ["", b"", None, ()])
async def test_sendto_with_the_empty_address_of_a_socketpair(loop: Loop, nothing: object) -> None:
    """As asyncio_dgram writes it: the peer's name, which is empty."""
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    far.settimeout(60)
    transport: Any
    transport, protocol = await endpoint(loop, sock=near)
    transport._address = nothing
    transport.sendto(b"without")
    assert not protocol.errors
    assert far.recv(100) == b"without"
    await close(transport)
    far.close()


async def test_the_truth_of_a_remote_address_may_do_anything(
    loop: Loop, udp: socket.socket
) -> None:
    transport: Any
    transport, _ = await endpoint(loop, local_addr=("127.0.0.1", 0))

    class Odd:
        def __bool__(self) -> bool:
            transport._address = None
            raise ZeroDivisionError

    transport._address = Odd()
    with pytest.raises(ZeroDivisionError):
        transport.sendto(b"refused", udp.getsockname())
    assert transport._address is None
    transport.sendto(b"sent", udp.getsockname())
    assert udp.recv(100) == b"sent"
    await close(transport)


async def test_a_comparison_may_take_the_remote_address_away(
    loop: Loop, udp: socket.socket
) -> None:
    """The compared address is then used to send."""
    transport: Any
    transport, _ = await endpoint(loop, remote_addr=udp.getsockname())

    class Takes(tuple[Any, ...]):
        def __eq__(self, other: object) -> bool:
            transport._address = None
            return True

        def __ne__(self, other: object) -> bool:
            del transport._address
            return False

        __hash__ = None  # type: ignore[assignment]

    transport.sendto(b"compared", Takes(udp.getsockname()))
    assert udp.recv(100) == b"compared"
    await close(transport)
