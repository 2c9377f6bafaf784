"""create_connection and connect_accepted_socket: addresses, races of families, arguments."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from conftest import tcp_pair
from protocols import Recorder, close_each, hang_up, until

Loop = asyncio.AbstractEventLoop


RefusedPort = Callable[..., int]


@pytest.fixture
def refused_port(no_leaks: None) -> Iterator[RefusedPort]:
    """Give ports on which no server listens or can begin to: bound sockets occupy them."""
    with contextlib.ExitStack() as held:

        def one(family: socket.AddressFamily = socket.AF_INET) -> int:
            sock = held.enter_context(socket.socket(family))
            sock.bind(("::1" if family == socket.AF_INET6 else "127.0.0.1", 0))
            port: int = sock.getsockname()[1]
            return port

        yield one


class Resolved:
    """Puts a list of addresses in the place of name resolution for one loop."""

    def __init__(self, *addresses: tuple[str, int]) -> None:
        self.addresses = addresses

    async def __call__(self, host: Any, port: Any, **kwargs: Any) -> list[Any]:
        return [
            (
                socket.AF_INET6 if ":" in address else socket.AF_INET,
                socket.SOCK_STREAM,
                socket.IPPROTO_TCP,
                "",
                (address, number, 0, 0) if ":" in address else (address, number),
            )
            for address, number in self.addresses
        ]


@pytest.mark.parametrize("host", ["127.0.0.1", b"127.0.0.1", "localhost"])
@pytest.mark.parametrize("kind", [int, str])
async def test_create_connection_connects_to_an_address_or_a_name(
    loop: Loop, listener: socket.socket, host: Any, kind: type
) -> None:
    port = kind(listener.getsockname()[1])
    transport, protocol = await loop.create_connection(Recorder, host, port)
    assert isinstance(protocol, Recorder)
    assert protocol.names() == ["made"]
    assert transport.get_extra_info("peername") == listener.getsockname()
    await hang_up(protocol)


async def test_unknown_names_are_an_error(loop: Loop) -> None:
    with pytest.raises(socket.gaierror):
        await loop.create_connection(Recorder, "name.invalid", 80)
    with pytest.raises(socket.gaierror):
        await loop.create_connection(Recorder, "127.0.0.1", 80, family=socket.AF_INET6)


async def test_a_refused_connection_raises(loop: Loop, refused_port: RefusedPort) -> None:
    port = refused_port()
    with pytest.raises(ConnectionRefusedError) as caught:
        await loop.create_connection(Recorder, "127.0.0.1", port)
    assert caught.value.errno == errno.ECONNREFUSED
    assert f"('127.0.0.1', {port})" in str(caught.value)


async def test_the_addresses_are_tried_in_turn(
    loop: Loop, listener: socket.socket, monkeypatch: pytest.MonkeyPatch, refused_port: RefusedPort
) -> None:
    resolved = Resolved(("127.0.0.1", refused_port()), listener.getsockname())
    monkeypatch.setattr(loop, "getaddrinfo", resolved)
    _, protocol = await loop.create_connection(Recorder, "any.example", 80)
    assert protocol.transport.get_extra_info("peername") == listener.getsockname()
    await hang_up(protocol)


async def test_all_addresses_refused_raises_every_reason(
    loop: Loop, monkeypatch: pytest.MonkeyPatch, refused_port: RefusedPort
) -> None:
    ports = [refused_port(), refused_port()]
    resolved = Resolved(*(("127.0.0.1", port) for port in ports))
    monkeypatch.setattr(loop, "getaddrinfo", resolved)
    with pytest.raises(OSError, match="Multiple exceptions: ") as caught:
        await loop.create_connection(Recorder, "any.example", 80)
    assert all(str(port) in str(caught.value) for port in ports)


async def test_same_error_of_all_addresses_is_raised(
    loop: Loop, monkeypatch: pytest.MonkeyPatch, refused_port: RefusedPort
) -> None:
    """Equal errors are merged into one."""
    port = refused_port()
    monkeypatch.setattr(loop, "getaddrinfo", Resolved(("127.0.0.1", port), ("127.0.0.1", port)))
    with pytest.raises(ConnectionRefusedError):
        await loop.create_connection(Recorder, "any.example", 80)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="all_errors is new in 3.12")
async def test_all_errors_gives_a_group_of_exceptions(
    loop: Loop, monkeypatch: pytest.MonkeyPatch, refused_port: RefusedPort
) -> None:
    ports = [refused_port(), refused_port()]
    resolved = Resolved(*(("127.0.0.1", port) for port in ports))
    monkeypatch.setattr(loop, "getaddrinfo", resolved)
    with pytest.raises(ExceptionGroup, match="create_connection failed") as caught:
        await loop.create_connection(Recorder, "any.example", 80, all_errors=True)
    assert len(caught.value.exceptions) == 2
    assert all(isinstance(error, ConnectionRefusedError) for error in caught.value.exceptions)


async def test_a_name_without_address_is_an_error(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "getaddrinfo", Resolved())
    with pytest.raises(OSError, match=r"getaddrinfo\(\) returned empty list"):
        await loop.create_connection(Recorder, "any.example", 80)


async def test_happy_eyeballs_uses_the_answering_address(
    loop: Loop, listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first address never answers: a full backlog drops its handshake."""
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen(0)
        fillers = []
        for _ in range(3):
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex(mute.getsockname())
            fillers.append(filler)
        monkeypatch.setattr(
            loop, "getaddrinfo", Resolved(mute.getsockname(), listener.getsockname())
        )
        _, protocol = await loop.create_connection(
            Recorder, "any.example", 80, happy_eyeballs_delay=0.01
        )
        assert protocol.transport.get_extra_info("peername") == listener.getsockname()
        await hang_up(protocol)
        close_each(*fillers)


@pytest.mark.parametrize("extra", [{}, {"happy_eyeballs_delay": 0.01}])
async def test_happy_eyeballs_raises_when_all_are_refused(
    loop: Loop, monkeypatch: pytest.MonkeyPatch, extra: dict[str, Any], refused_port: RefusedPort
) -> None:
    ports = [refused_port(socket.AF_INET6), refused_port()]
    monkeypatch.setattr(loop, "getaddrinfo", Resolved(("::1", ports[0]), ("127.0.0.1", ports[1])))
    with pytest.raises(OSError, match="Multiple exceptions"):
        await loop.create_connection(Recorder, "any.example", 80, **extra)


@pytest.mark.parametrize(
    ("interleave", "expected"),
    [(1, ["6a", "4a", "6b", "4b", "6c"]), (2, ["6a", "6b", "4a", "6c", "4b"])],
)
async def test_interleave_mixes_the_families(
    loop: Loop,
    monkeypatch: pytest.MonkeyPatch,
    interleave: int,
    expected: list[str],
    refused_port: RefusedPort,
) -> None:
    v6 = [("::1", refused_port(socket.AF_INET6)) for _ in range(3)]
    v4 = [("127.0.0.1", refused_port()) for _ in range(2)]
    names = {address[1]: f"6{letter}" for address, letter in zip(v6, "abc", strict=True)}
    names |= {address[1]: f"4{letter}" for address, letter in zip(v4, "ab", strict=True)}
    tried: list[str] = []
    original = loop.sock_connect

    async def sock_connect(sock: socket.socket, address: Any) -> None:
        tried.append(names[address[1]])
        await original(sock, address)

    monkeypatch.setattr(loop, "getaddrinfo", Resolved(*v6, *v4))
    monkeypatch.setattr(loop, "sock_connect", sock_connect)
    with pytest.raises(OSError, match="Multiple exceptions"):
        await loop.create_connection(Recorder, "any.example", 80, interleave=interleave)
    assert tried == expected


async def test_create_connection_takes_over_a_socket(loop: Loop) -> None:
    near, far = tcp_pair()
    near.setblocking(True)
    transport, protocol = await loop.create_connection(Recorder, sock=near)
    # asyncio makes it non-blocking by itself.
    assert near.gettimeout() == 0
    assert transport.get_extra_info("socket").fileno() == near.fileno()
    await hang_up(protocol, far=far)
    assert near.fileno() == -1


async def test_many_connections_at_once_are_all_made(loop: Loop) -> None:
    server = await loop.create_server(Recorder, "127.0.0.1", 0, backlog=200)
    address = server.sockets[0].getsockname()
    made = await asyncio.gather(*(loop.create_connection(Recorder, *address) for _ in range(200)))
    assert len({transport.get_extra_info("sockname") for transport, _ in made}) == 200
    server.close()
    await hang_up(*(protocol for _, protocol in made))
    if sys.version_info >= (3, 12, 1):
        await server.wait_closed()
    await until(lambda: len(asyncio.all_tasks()) == 1)
