"""The connections of a server, which asyncio keeps in a WeakSet since Python 3.13."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import sys
import weakref
from typing import Any

import pytest
from protocols import Made, Recorder, hang_up, until

import goloop._core as _core
from goloop._internal.net.server import ServerClients

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
            assert type(server._clients) is ServerClients
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


class Stub:
    pass


@pytest.mark.goloop_only("asyncio keeps a WeakSet")
async def test_dropped_client_is_removed_and_others_are_weakly_referenced(loop: Loop) -> None:
    async with serving(loop) as (server, accepted):
        near = await connect(loop, server, 3)
        clients = server._clients
        first = accepted[0].transport
        clients.add(first)  # a second time
        assert len(clients) == 3
        stub, foreign = Stub(), _core.StreamTransport.__new__(_core.StreamTransport)
        clients.add(stub)
        clients.add(foreign)
        clients.discard(Stub())
        assert set(clients) == {each.transport for each in accepted} | {stub, foreign}
        assert stub in clients
        assert len(clients) == 5
        clients.discard(stub)
        del foreign
        assert len(clients) == len(list(clients)) == 3
        with pytest.raises(TypeError, match="weak reference"):
            clients.add(5)
        # The program drops one that waits for nothing: the collector takes it.
        lost = weakref.ref(first)
        first.pause_reading()
        accepted[0].transport = None
        del accepted[0], first
        with pytest.warns(ResourceWarning, match="unclosed transport") as caught:
            await until(lambda: gc.collect() >= 0 and len(caught) > 0)
        caught.clear()  # a warning refers to its source, and 3.15 keeps weak references until then
        await until(lambda: gc.collect() >= 0 and lost() is None)
        assert len(clients) == len(list(clients)) == 2
        await hang_up(*near)


@pytest.mark.goloop_only("asyncio keeps a WeakSet")
async def test_the_servers_of_a_loop_keep_theirs_apart(loop: Loop) -> None:
    async with serving(loop) as (one, of_one), serving(loop) as (other, of_other):
        near = await connect(loop, one, 1) + await connect(loop, other, 2)
        assert set(one._clients) == {each.transport for each in of_one}
        assert set(other._clients) == {each.transport for each in of_other}
        assert of_one[0].transport not in other._clients
        await hang_up(*near)


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
