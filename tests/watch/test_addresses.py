"""getaddrinfo and getnameinfo return the results of the socket module, in every field."""

from __future__ import annotations

import asyncio
import itertools
import socket
import threading
from typing import Any

import pytest
from protocols import one_turn

Loop = asyncio.AbstractEventLoop

INTERFACE = "lo"

HOSTS: list[Any] = [
    None,
    "",
    "127.0.0.1",
    b"127.0.0.1",
    "127.1",
    "0x7f.1",
    "2130706433",
    "0",
    "255.255.255.255",
    "1.2.3.256",
    "1.2.3.4.5",
    "127.0.0.1 ",
    "0177.0.0.1",
    "::1",
    b"::1",
    "::",
    "::ffff:127.0.0.1",
    "2001:DB8::1",
    "1:2:3:4:5:6:7:8:9",
    "::1%",
    f"::1%{INTERFACE}",
    "::1%1",
    "::1%nonsense",
    f"fe80::1%{INTERFACE}",
    "fe80::1%1",
    "fe80::1%99999",
    "fe80::1%99999999999",
    "fe80::1%nonsense",
    "fe80::1",
    f"ff02::1%{INTERFACE}",
    f"127.0.0.1%{INTERFACE}",
    "[::1]",
    "localhost",
    "name.invalid",
    "*",
    "a" * 70,
    "\u00e4.invalid",
    "127.0.0.1\0",
    5,
]

PORTS: list[Any] = [
    None,
    0,
    80,
    65535,
    65536,
    -1,
    70000,
    "80",
    b"80",
    "",
    "http",
    b"http",
    "nonsense",
    "080",
    " 80",
    "65536",
    1.5,
]

FAMILIES = [0, socket.AF_INET, socket.AF_INET6, socket.AF_UNIX, 9999]
TYPES = [0, socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW, 99]
PROTOS = [0, socket.IPPROTO_TCP, socket.IPPROTO_UDP, socket.IPPROTO_ICMP, 250]
FLAGS = [
    0,
    socket.AI_PASSIVE,
    socket.AI_NUMERICHOST,
    socket.AI_NUMERICSERV,
    socket.AI_CANONNAME,
    socket.AI_CANONNAME | socket.AI_NUMERICHOST,
    socket.AI_V4MAPPED,
    socket.AI_V4MAPPED | socket.AI_ALL,
    socket.AI_ADDRCONFIG,
    socket.AI_PASSIVE | socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
    1 << 30,
]


def is_literal(host: Any) -> bool:
    """Whether libc answers without asking anybody."""
    if not host:
        return True
    try:
        socket.getaddrinfo(host, 80, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:
        return False
    except Exception:
        # Not even a question: wrong types, forbidden characters.
        return True
    return True


# A name server may be slow to say no, so names are in the grid only where
# AI_NUMERICHOST forbids to ask, and once besides.
LITERALS = [host for host in HOSTS if is_literal(host)]


def hosts_for(flags: int) -> list[Any]:
    return HOSTS if flags & socket.AI_NUMERICHOST else LITERALS


def outcome_of(error: BaseException) -> tuple[Any, ...]:
    return (type(error), getattr(error, "errno", None), str(error))


def expected(host: Any, port: Any, **kwargs: Any) -> Any:
    try:
        return socket.getaddrinfo(host, port, **kwargs)
    except Exception as error:
        return outcome_of(error)


async def answered(loop: Loop, host: Any, port: Any, **kwargs: Any) -> Any:
    try:
        return await loop.getaddrinfo(host, port, **kwargs)
    except Exception as error:
        return outcome_of(error)


async def compare(loop: Loop, host: Any, port: Any, **kwargs: Any) -> str | None:
    wanted = expected(host, port, **kwargs)
    got = await answered(loop, host, port, **kwargs)
    if got == wanted and repr(got) == repr(wanted):
        return None
    return f"getaddrinfo({host!r}, {port!r}, {kwargs}): {got!r} instead of {wanted!r}"


compared = pytest.mark.goloop_only("asyncio asks the socket module itself, in a thread")


@compared
async def test_every_host_gives_the_socket_modules_answer(loop: Loop) -> None:
    differences = [await compare(loop, host, 80, type=socket.SOCK_STREAM) for host in HOSTS]
    assert [text for text in differences if text] == []


@compared
async def test_every_port_gives_the_socket_modules_answer(loop: Loop) -> None:
    differences = [
        await compare(loop, host, port, type=socket.SOCK_STREAM)
        for host, port in itertools.product(LITERALS, PORTS)
    ]
    assert [text for text in differences if text] == []


@compared
async def test_families_types_and_flags_give_the_socket_modules_answer(loop: Loop) -> None:
    differences = [
        await compare(loop, host, 80, family=family, type=kind, flags=flags)
        for family, kind, flags in itertools.product(FAMILIES, TYPES, FLAGS)
        for host in hosts_for(flags)
    ]
    assert [text for text in differences if text] == []


@compared
async def test_ports_types_protos_and_flags_give_the_socket_modules_answer(loop: Loop) -> None:
    hosts = ["127.0.0.1", "::1", None, f"fe80::1%{INTERFACE}"]
    differences = [
        await compare(loop, host, port, type=kind, proto=proto, flags=flags)
        for host, port, kind, proto, flags in itertools.product(hosts, PORTS, TYPES, PROTOS, FLAGS)
    ]
    assert [text for text in differences if text] == []


async def test_the_fields_have_the_socket_modules_types(loop: Loop) -> None:
    for info in await loop.getaddrinfo("127.0.0.1", 80):
        family, kind, proto, canonical, address = info
        assert type(info) is tuple
        assert isinstance(family, socket.AddressFamily)
        assert isinstance(kind, socket.SocketKind)
        assert type(proto) is int
        assert canonical == ""
        assert address == ("127.0.0.1", 80)


async def test_scope_ids_are_the_interfaces_index(loop: Loop) -> None:
    index = socket.if_nametoindex(INTERFACE)
    for scope in (INTERFACE, str(index)):
        (info,) = await loop.getaddrinfo(f"fe80::1%{scope}", 80, type=socket.SOCK_STREAM)
        assert info[4][3] == index  # type: ignore[misc]


@pytest.mark.goloop_only("asyncio resolves names in the default executor")
async def test_names_leave_the_default_executor_alone(loop: Loop) -> None:
    before = threading.active_count()
    assert await loop.getaddrinfo("localhost", 80)
    with pytest.raises(socket.gaierror):
        await loop.getaddrinfo("name.invalid", 80)
    assert threading.active_count() == before


async def test_many_lookups_at_once_all_get_their_own_answer(loop: Loop) -> None:
    answers = await asyncio.gather(
        *(loop.getaddrinfo("localhost", port, type=socket.SOCK_STREAM) for port in range(1, 101))
    )
    assert [answer[0][4][1] for answer in answers] == list(range(1, 101))


async def test_a_cancelled_lookup_leaves_the_loop_usable(loop: Loop) -> None:
    task = asyncio.ensure_future(loop.getaddrinfo("name.invalid", 80))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    # The loop continues; the late answer has no receiver.
    assert await loop.getaddrinfo("localhost", 80)


def test_a_loop_may_be_closed_with_a_lookup_in_flight(loop: Loop) -> None:
    task = loop.create_task(loop.getaddrinfo("name.invalid", 80))
    one_turn(loop)
    task.cancel()
    one_turn(loop)


@pytest.mark.parametrize(
    "address",
    [
        ("127.0.0.1", 80),
        ("::1", 80),
        ("::1", 80, 0, 0),
        ("fe80::1", 80, 0, 1),
        ("127.0.0.1", 0),
        ("127.0.0.1", 65536),
        ("nonsense", 80),
        ("127.0.0.1",),
        (),
        None,
    ],
)
@pytest.mark.parametrize(
    "flags",
    [
        0,
        socket.NI_NUMERICHOST,
        socket.NI_NUMERICHOST | socket.NI_NUMERICSERV,
        socket.NI_NUMERICSERV,
        socket.NI_DGRAM,
        socket.NI_NAMEREQD | socket.NI_NUMERICHOST,
    ],
)
async def test_getnameinfo_gives_the_socket_modules_answer(
    loop: Loop, address: Any, flags: int
) -> None:
    try:
        wanted: Any = socket.getnameinfo(address, flags)
    except Exception as error:
        wanted = outcome_of(error)
    try:
        got: Any = await loop.getnameinfo(address, flags)
    except Exception as error:
        got = outcome_of(error)
    assert got == wanted
