"""The connections of a server, which asyncio keeps in a WeakSet since Python 3.13."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
import weakref
from typing import Any

import pytest
from protocols import Made, Recorder, hang_up, until

import goloop
import goloop._core as _core

Loop = asyncio.AbstractEventLoop

pytestmark = pytest.mark.skipif(
    sys.version_info < (3, 13), reason="servers keep no connections before 3.13"
)


@contextlib.asynccontextmanager
async def serving(loop: Loop) -> Any:
    accepted = Made()
    server: Any = await loop.create_server(accepted, "127.0.0.1", 0)
    try:
        yield server, accepted
    finally:
        server.close()
        server.abort_clients()
        await server.wait_closed()


async def connect(loop: Loop, server: Any, count: int) -> list[Recorder]:
    made = [Recorder() for _ in range(count)]
    for each in made:
        await loop.create_connection(lambda each=each: each, *server.sockets[0].getsockname())
    await until(lambda: len(server._clients) == count)
    return made


async def test_a_server_knows_its_connections(loop: Loop, loop_name: str) -> None:
    async with serving(loop) as (server, accepted):
        if loop_name == "goloop":
            assert type(server._clients) is _core.Clients
        near = await connect(loop, server, 5)
        transports = {each.transport for each in accepted}
        assert set(server._clients) == set(server._clients.copy()) == transports
        assert all(each in server._clients for each in transports)
        assert near[0].transport not in server._clients
        assert "no transport" not in server._clients
        # In any order.
        for index in (2, 0, 4, 1, 3):
            near[index].transport.close()
            await accepted[index].lost
            transports.discard(accepted[index].transport)
            assert set(server._clients) == transports
        assert len(server._clients) == 0


@pytest.mark.parametrize("how", ["close_clients", "abort_clients"])
async def test_it_ends_them(loop: Loop, how: str) -> None:
    async with serving(loop) as (server, accepted):
        near = await connect(loop, server, 3)
        server.close()
        waiting = asyncio.ensure_future(server.wait_closed())
        await asyncio.sleep(0)
        assert not waiting.done()
        getattr(server, how)()
        await waiting
        for each in accepted:
            assert await each.lost is None
        await hang_up(*near)


class Stub:
    pass


def stream() -> Any:
    return _core.StreamTransport.__new__(_core.StreamTransport)


def of_server() -> Any:
    loop = goloop.new_event_loop()
    clients = _core.Clients(loop, weakref.WeakSet())
    loop.close()
    return clients


def test_whoever_dies_leaves() -> None:
    clients = of_server()
    members = [stream() for _ in range(20)]
    for each in members:
        clients.add(each)
        clients.add(each)
    assert len(clients) == 20
    for index in (0, 17, 5, 0, 3):
        del members[index]
        assert set(clients) == set(members)
        each = None
    while members:
        del members[0]
        assert set(clients) == set(members)
    assert len(clients) == 0
    clients.add(member := stream())
    assert list(clients) == [member]


def test_one_that_dies_is_not_seen_by_those_that_watch_it_die() -> None:
    clients = of_server()
    member = stream()
    clients.add(member)
    seen: list[Any] = []
    watch = weakref.ref(member, lambda _: seen.append(list(clients)))
    del member
    assert seen == [[]]
    assert watch() is None


def test_the_set_may_die_first() -> None:
    members = [stream(), stream()]
    clients = of_server()
    for each in members:
        clients.add(each)
    del clients
    other = of_server()
    other.add(members[0])
    assert set(other) == {members[0]}
    del members[:], each
    assert len(other) == 0


def test_others_are_weakly_kept_too() -> None:
    clients, other = of_server(), of_server()
    stub, member = Stub(), stream()
    clients.add(stub)
    other.add(member)
    clients.add(member)  # of another server
    assert set(clients) == {stub, member}
    assert stub in clients
    assert member in clients
    clients.discard(member)
    assert set(clients) == {stub}
    assert set(other) == {member}
    clients.discard(member)
    other.discard(stub)
    del stub
    assert len(clients) == 0


def test_a_set_of_a_programs_own_stays(loop: Loop) -> None:
    async def main() -> None:
        server: Any = await loop.create_server(Recorder, "127.0.0.1", 0, start_serving=False)
        server._clients = own = set()
        await server.start_serving()
        assert server._clients is own
        with socket.create_connection(server.sockets[0].getsockname()):
            await until(lambda: len(own) == 1)
            next(iter(own)).abort()
            await until(lambda: len(own) == 0)
        server.close()

    loop.run_until_complete(main())


def test_wrong_arguments() -> None:
    make: Any = _core.Clients
    with pytest.raises(TypeError):
        make()
    with pytest.raises(TypeError):
        make(weakref.WeakSet(), weakref.WeakSet())
    clients = of_server()
    with pytest.raises(TypeError, match="weak reference"):
        clients.add(5)
    clients.discard(Stub())
