"""Unix-domain streams: connecting, serving, and the path that a server leaves."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from pathlib import Path
from typing import Any

import pytest
from protocols import Made, Recorder, close_all, close_each, until

Loop = asyncio.AbstractEventLoop


async def served(loop: Loop, path: Any) -> tuple[asyncio.AbstractServer, list[Recorder]]:
    accepted = Made()
    return await loop.create_unix_server(accepted, path), accepted


@pytest.mark.parametrize("kind", ["path", "str", "abstract", "short"])
async def test_data_goes_both_ways_by_every_kind_of_path(
    loop: Loop, tmp_path: Path, kind: str
) -> None:
    path: Any = tmp_path / "s"
    if kind == "str":
        path = str(path)
    elif kind == "abstract":
        path = f"\0goloop-test-{os.getpid()}-{id(loop)}"
    elif kind == "short":
        path = f"\0{os.getpid():05}"[:6]
    server, accepted = await served(loop, path)
    transport, near = await loop.create_unix_connection(Recorder, path)
    await until(lambda: accepted)
    far = accepted[0]
    await far.made
    transport.write(b"there")
    far.transport.write(b"back")
    await until(lambda: far.data == b"there" and near.data == b"back")
    assert transport.get_extra_info("socket").family == socket.AF_UNIX
    assert far.transport.get_extra_info("peername") == ""
    own = os.fsencode(path) if str(path)[0] == "\0" else str(path)
    assert far.transport.get_extra_info("sockname") == own
    transport.close()
    assert await far.lost is None
    await close_all(server)


async def test_create_unix_connection_takes_over_sockets(loop: Loop) -> None:
    first, second = socket.socketpair()
    one, left = await loop.create_unix_connection(Recorder, sock=first)
    _, right = await loop.create_unix_connection(Recorder, sock=second)
    one.write(b"x")
    one.write_eof()
    await right.eof
    assert right.data == b"x"
    await left.lost


async def test_the_path_of_a_closed_server_is_removed_from_3_13_on(
    loop: Loop, tmp_path: Path
) -> None:
    path = tmp_path / "s"
    server, _ = await served(loop, path)
    assert path.is_socket()
    await close_all(server)
    assert path.exists() is (sys.version_info < (3, 13))
    # A stale socket is no hindrance.
    server, _ = await served(loop, path)
    await close_all(server)


async def test_a_path_without_a_server_is_an_error(loop: Loop, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        await loop.create_unix_connection(Recorder, str(tmp_path / "s"))
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "s"))
        with pytest.raises(ConnectionRefusedError):
            await loop.create_unix_connection(Recorder, str(tmp_path / "s"))


@pytest.mark.goloop_only("asyncio says that it is connected when it is not")
async def test_connecting_waits_for_room_in_the_backlog(loop: Loop, tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as listening, socket.socket(socket.AF_UNIX) as late:
        listening.bind(path)
        listening.listen(0)
        queued = []
        while True:
            queued.append(socket.socket(socket.AF_UNIX))
            queued[-1].setblocking(False)
            try:
                queued[-1].connect(path)
            except BlockingIOError:
                break
        late.setblocking(False)
        connecting = asyncio.ensure_future(loop.sock_connect(late, path))
        await asyncio.sleep(0.005)
        assert not connecting.done()
        listening.accept()[0].close()
        await connecting
        assert late.getpeername() == path
        close_each(*queued)
