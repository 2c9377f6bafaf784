"""A socket that is closed while a sock_* call waits for it: the call ends with EBADF.

In asyncio it waits for ever, because the kernel does not report the close.
"""

from __future__ import annotations

import asyncio
import errno
import gc
import pickle
import socket
import threading
import warnings
import weakref
from typing import Any

import pytest
from protocols import Recorder, close_each, turns, until
from receiving import Call, on_both_loops, receivers

Loop = asyncio.AbstractEventLoop


ends = pytest.mark.goloop_only("asyncio waits for ever")


def pair() -> tuple[socket.socket, socket.socket]:
    near, far = socket.socketpair()
    near.setblocking(False)
    return near, far


def full_listener() -> tuple[socket.socket, list[socket.socket]]:
    """A listener whose backlog is full, so that a connect waits."""
    listening = socket.create_server(("127.0.0.1", 0), backlog=0)
    clients = []
    for _ in range(4):
        client = socket.socket()
        client.setblocking(False)
        client.connect_ex(listening.getsockname())
        clients.append(client)
    return listening, clients


CALLS: dict[str, Call] = {
    **receivers(10),
    "sock_sendall": lambda loop, sock: loop.sock_sendall(sock, bytes(10_000_000)),
}
NAMES = on_both_loops(CALLS)


async def closed(waiting: asyncio.Task[Any]) -> None:
    with pytest.raises(OSError, match="Bad file descriptor") as caught:
        await waiting
    assert caught.value.errno == errno.EBADF


@ends
@pytest.mark.parametrize("debug", [False, True])
@pytest.mark.parametrize("call", NAMES)
async def test_a_call_ends_when_its_socket_is_closed(loop: Loop, call: str, debug: bool) -> None:
    loop.set_debug(debug)
    near, far = pair()
    waiting = asyncio.ensure_future(CALLS[call](loop, near))
    await turns(5)
    assert not waiting.done()
    near.close()
    assert near.fileno() == -1
    await closed(waiting)
    far.close()


@ends
async def test_sock_accept_ends_when_its_socket_is_closed(loop: Loop) -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    listening.setblocking(False)
    waiting = asyncio.ensure_future(loop.sock_accept(listening))
    await turns(5)
    listening.close()
    await closed(waiting)


@ends
async def test_sock_connect_ends_when_its_socket_is_closed(loop: Loop) -> None:
    listening, clients = full_listener()
    sock = socket.socket()
    sock.setblocking(False)
    waiting = asyncio.ensure_future(loop.sock_connect(sock, listening.getsockname()))
    await turns(5)
    assert not waiting.done()
    sock.close()
    await closed(waiting)
    close_each(listening, *clients)


@ends
async def test_both_directions_end(loop: Loop) -> None:
    near, far = pair()
    sending = asyncio.ensure_future(loop.sock_sendall(near, bytes(10_000_000)))
    receiving = asyncio.ensure_future(loop.sock_recv(near, 10))
    await turns(5)
    near.close()
    await closed(sending)
    await closed(receiving)
    far.close()


@ends
async def test_a_close_in_another_thread_ends_the_call(loop: Loop) -> None:
    near, far = pair()
    waiting = asyncio.ensure_future(loop.sock_recv(near, 10))
    await turns(5)
    closing = threading.Thread(target=near.close)
    closing.start()
    await closed(waiting)
    closing.join()
    far.close()


@ends
async def test_waiting_call_does_not_use_the_numbers_next_owner(loop: Loop) -> None:
    near, far = pair()
    waiting = asyncio.ensure_future(loop.sock_recv(near, 10))
    await turns(5)
    number = near.fileno()
    near.close()
    other, others_peer = pair()
    assert number in (other.fileno(), others_peer.fileno())
    second = asyncio.ensure_future(loop.sock_recv(other, 10))
    await closed(waiting)
    others_peer.send(b"others")
    assert await second == b"others"
    close_each(far, other, others_peer)


async def test_file_object_keeps_the_socket_open(loop: Loop) -> None:
    """makefile() counts as a user; the last one's end closes the socket."""
    near, far = pair()
    waiting = asyncio.ensure_future(loop.sock_recv(near, 10))
    await turns(5)
    file = near.makefile("rb", buffering=0)
    near.close()
    far.send(b"still open")
    assert await waiting == b"still open"
    assert near.fileno() >= 0
    file.close()
    assert near.fileno() == -1
    far.close()


@ends
async def test_the_last_files_end_ends_the_call(loop: Loop) -> None:
    near, far = pair()
    waiting = asyncio.ensure_future(loop.sock_recv(near, 10))
    await turns(5)
    files = [near.makefile("rb", buffering=0) for _ in range(2)]
    near.close()
    files[0].close()
    await turns(5)
    assert not waiting.done()
    files[1].close()
    await closed(waiting)
    far.close()


@pytest.mark.parametrize("files", [0, 1])
@pytest.mark.goloop_only("asyncio has received in the poll, or waits for ever")
async def test_ready_socket_is_received_before_a_later_close(loop: Loop, files: int) -> None:
    """The poll has found it ready, and another callback closes it before the task goes on."""
    near, far = pair()
    other, others_peer = pair()
    loop.add_reader(other, lambda: (loop.remove_reader(other), near.close()))
    waiting = asyncio.ensure_future(loop.sock_recv(near, 10))
    await turns(100)
    opened = [near.makefile("rb", buffering=0) for _ in range(files)]
    far.send(b"ready")
    others_peer.send(b"ready")
    assert await waiting == b"ready"
    await turns(2)
    for each in opened:
        assert near.fileno() >= 0
        each.close()
    assert near.fileno() == -1
    close_each(far, other, others_peer)


@pytest.mark.goloop_only("asyncio's transports don't keep a closed socket")
async def test_transport_keeps_its_earlier_awaited_socket_open(loop: Loop) -> None:
    near, far = pair()
    far.send(b"first")
    await turns(2)
    waiting = asyncio.ensure_future(loop.sock_recv(near, 10))
    assert await waiting == b"first"
    waiting = asyncio.ensure_future(loop.sock_recv(near, 10))
    await turns(5)
    waiting.cancel()
    await asyncio.wait([waiting])
    protocol = Recorder()
    transport, _ = await loop.create_connection(lambda: protocol, sock=near)
    near.close()
    far.send(b"second")
    await until(lambda: protocol.data == b"second")
    transport.write(b"third")
    await until(lambda: not transport.get_write_buffer_size())
    assert far.recv(10) == b"third"
    far.close()
    await protocol.lost
    assert near.fileno() == -1


@ends
async def test_the_count_of_users_is_an_int(loop: Loop) -> None:
    near, far = pair()
    waiting = asyncio.ensure_future(loop.sock_recv(near, 10))
    await turns(5)
    users: Any = near._io_refs  # type: ignore[attr-defined]
    assert users == 0
    assert repr(users) == "0"
    assert (users + 2, users + 1 - 1, users <= 1, users < 0) == (2, 0, True, False)
    assert type(pickle.loads(pickle.dumps(users))) is int
    with pytest.raises(TypeError):
        assert users <= "x"
    assert not waiting.done()
    near.close()
    await closed(waiting)
    far.close()


@ends
def test_a_loop_that_was_closed_is_left_alone(loop_factory: Any) -> None:
    loop = loop_factory()
    near, far = pair()

    async def wait() -> None:
        await loop.sock_recv(near, 10)

    waiting = loop.create_task(wait())
    loop.run_until_complete(turns(5))
    close_each(loop, near)
    assert near.fileno() == -1
    far.close()
    waiting._log_destroy_pending = False
    del waiting


@ends
def test_socket_close_during_loop_close(loop_factory: Any) -> None:
    """Checked by a weak reference to the loop, which has no other reference."""
    loop = loop_factory()
    near, far = pair()

    async def wait(own: Any) -> None:
        await own._until_readable(near)

    waiting = loop.create_task(wait(loop))
    loop.run_until_complete(turns(3))
    waiting._log_destroy_pending = False
    told: list[int] = []

    def end(_: Any) -> None:
        near.close()
        told.append(near.fileno())

    reference = weakref.ref(loop, end)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        del loop, waiting, wait
        gc.collect()
    assert reference() is None
    assert told == [-1]
    far.close()


@ends
async def test_reference_count_of_a_closed_socket_is_not_changed(loop: Loop) -> None:
    """Another thread closes it between the call that was refused and the wait."""
    from goloop._internal.loop.descriptors import ObservedRefCount

    near, far = pair()
    near.close()
    ObservedRefCount.notice(near)
    assert type(near._io_refs) is int  # type: ignore[attr-defined]
    with pytest.raises(OSError, match="Bad file descriptor"):
        await loop.sock_recv(near, 10)
    far.close()


@ends
def test_concurrent_reference_counting_loses_no_user(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from goloop._internal.loop import descriptors

    near, far = pair()
    files: list[Any] = []
    users = descriptors.make_observed_ref_count

    def interrupted(count: int, fd: int) -> Any:
        if not files:
            files.append(near.makefile("rb", buffering=0))
        return users(count, fd)

    monkeypatch.setattr(descriptors, "make_observed_ref_count", interrupted)
    descriptors.ObservedRefCount.notice(near)
    assert near._io_refs == 1  # type: ignore[attr-defined]
    near.close()
    assert near.fileno() >= 0
    files[0].close()
    assert near.fileno() == -1
    far.close()
