"""A datagram transport from its construction to its end, its type and extra info."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import logging
import os
import socket
import sys
import threading
import warnings
import weakref
from pathlib import Path
from typing import Any

import ended
import pytest
from conftest import LoopFactory
from datagram_tools import close, endpoint, flood, numbers, pair_of
from protocols import DatagramRecorder, close_each, hang_up, turns, until

SCENARIOS = Path(__file__).with_name("datagram_object_scenarios.py")

Loop = asyncio.AbstractEventLoop


# ---- the ends ---------------------------------------------------------------------------------


async def test_sending_after_close_is_dropped_and_warned_of(
    loop: Loop, udp: socket.socket, caplog: pytest.LogCaptureFixture
) -> None:
    transport, protocol = await endpoint(loop, remote_addr=udp.getsockname())
    transport.close()
    for _ in range(3):
        transport.sendto(b"late")
    assert await protocol.lost is None
    assert not caplog.records
    for _ in range(5):
        transport.sendto(b"late")
    assert "socket.send() raised exception." in caplog.text
    with pytest.raises(ValueError, match="Invalid address"):
        transport.sendto(b"x", ("127.0.0.1", 1))
    udp.setblocking(False)
    with pytest.raises(BlockingIOError):
        udp.recv(10)


async def test_sending_after_the_end_without_a_remote_address_is_warned_of(
    loop_name: str, loop: Loop, udp: socket.socket, caplog: pytest.LogCaptureFixture
) -> None:
    transport, protocol = await endpoint(loop, local_addr=("127.0.0.1", 0))
    transport.close()
    transport.sendto(b"in between", udp.getsockname())
    assert udp.recv(20) == b"in between"
    assert await protocol.lost is None
    if loop_name == "asyncio":
        with pytest.raises(AttributeError):
            transport.sendto(b"late", udp.getsockname())
        return
    for _ in range(5):
        transport.sendto(b"late", udp.getsockname())
    assert "socket.send() raised exception." in caplog.text


async def test_closing_twice_ends_once(loop: Loop) -> None:
    transport, protocol = await endpoint(loop, local_addr=("127.0.0.1", 0))
    assert not transport.is_closing()
    close_each(transport, transport)
    await hang_up(protocol)
    transport.close()
    transport.abort()
    await turns()
    assert protocol.calls == ["made", "lost"]
    assert transport.get_protocol() is None
    assert transport.get_extra_info("sockname")[0] == "127.0.0.1"


async def test_closing_in_connection_made_ends_the_endpoint(loop: Loop) -> None:
    class Short(DatagramRecorder):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            transport.close()

    transport, protocol = await loop.create_datagram_endpoint(Short, local_addr=("127.0.0.1", 0))
    assert transport.is_closing()
    assert await protocol.lost is None
    assert protocol.calls == ["made", "lost"]


async def test_connection_made_may_pause_and_send(loop: Loop, udp: socket.socket) -> None:
    class Early(DatagramRecorder):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            transport.pause_reading()
            transport.sendto(b"early")

    transport, protocol = await loop.create_datagram_endpoint(Early, remote_addr=udp.getsockname())
    data, address = udp.recvfrom(10)
    assert data == b"early"
    udp.sendto(b"x", address)
    await turns(10)
    assert protocol.got == []
    transport.resume_reading()
    await until(lambda: protocol.got)
    await close(transport)


async def test_the_number_is_taken_while_open(loop_name: str, loop: Loop) -> None:
    transport, _ = await endpoint(loop, local_addr=("127.0.0.1", 0))
    sock = transport.get_extra_info("socket")
    fd = sock.fileno()
    raw = transport._sock
    for call in (
        lambda: loop.add_reader(fd, print),
        lambda: loop.add_writer(fd, print),
        lambda: loop.remove_reader(fd),
        lambda: loop.remove_writer(sock),
    ):
        with pytest.raises(RuntimeError, match="is used by transport"):
            call()
    with pytest.raises(RuntimeError, match="is used by transport"):
        await loop.sock_recvfrom(raw, 10)
    with pytest.raises(RuntimeError, match="is used by transport"):
        await loop.sock_recv(raw, 10)
    if loop_name == "goloop" or sys.version_info >= (3, 12):
        with pytest.raises(RuntimeError, match="is used by transport"):
            await loop.create_datagram_endpoint(DatagramRecorder, sock=raw)
    await close(transport)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as next_one:
        loop.add_reader(next_one, print)
        assert loop.remove_reader(next_one)


async def test_earlier_watch_does_not_prevent_an_endpoint(loop: Loop, udp: socket.socket) -> None:
    """connect() of a socket may have left an unused registration."""
    sock = udp.dup()
    sock.setblocking(False)
    waiting = asyncio.ensure_future(loop.sock_recvfrom(sock, 10))
    await turns()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.sendto(b"first", udp.getsockname())
        assert (await waiting)[0] == b"first"
        transport, protocol = await endpoint(loop, sock=sock)
        other.sendto(b"second", udp.getsockname())
        await until(lambda: protocol.got)
    await close(transport)


def test_unclosed_endpoint_warns(loop_factory: LoopFactory) -> None:
    loop = loop_factory()
    transport, protocol = loop.run_until_complete(endpoint(loop, local_addr=("127.0.0.1", 0)))
    gone = weakref.ref(transport)
    protocol.transport = None
    # The loop holds it, as asyncio's selector does.
    del transport
    gc.collect()
    assert gone() is not None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ResourceWarning)
        loop.close()
        del loop, protocol
        gc.collect()
    texts = [str(warning.message) for warning in caught if warning.category is ResourceWarning]
    assert any("DatagramTransport fd=" in text for text in texts), texts
    caught.clear()  # a warning references its source
    assert gone() is None


def test_an_endpoint_of_a_closed_loop_sends_and_refuses_close(
    loop_factory: LoopFactory, udp: socket.socket
) -> None:
    loop = loop_factory()
    transport, protocol = loop.run_until_complete(endpoint(loop, local_addr=("127.0.0.1", 0)))
    loop.close()
    assert "read=" not in repr(transport)
    transport.sendto(b"x", udp.getsockname())
    assert udp.recv(10) == b"x"
    with pytest.raises(RuntimeError, match="Event loop is closed"):
        transport.close()
    transport._sock.close()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        protocol.transport = None
        del transport, protocol, loop
        gc.collect()


async def test_lost_endpoint_is_collected(loop: Loop) -> None:
    transport, protocol = await endpoint(loop, local_addr=("127.0.0.1", 0))
    transport.extra_attribute = protocol
    await close(transport)
    gone = weakref.ref(transport)
    del transport, protocol
    await turns()
    gc.collect()
    assert gone() is None


@pytest.mark.goloop_only("asyncio lets the child use its parent's transports")
def test_the_child_of_a_fork_is_refused(loop: Loop, udp: socket.socket) -> None:
    transport, protocol = loop.run_until_complete(endpoint(loop, remote_addr=udp.getsockname()))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        status = 1
        try:
            for call in (
                lambda: transport.sendto(b"child"),
                transport.close,
                transport.abort,
                transport.pause_reading,
                lambda: transport._call_connection_lost(None),
            ):
                with pytest.raises(RuntimeError, match="parent process"):
                    call()
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    transport.sendto(b"parent")
    data, address = udp.recvfrom(10)
    assert data == b"parent"
    udp.sendto(b"answer", address)
    loop.run_until_complete(until(lambda: protocol.got))
    loop.run_until_complete(close(transport))


async def test_calls_of_another_thread_do_not_crash(loop: Loop) -> None:
    """asyncio forbids them outside of debug mode only in words; nothing may break."""
    serving, server, asking, _ = await pair_of(loop)
    server.on_datagram = lambda data, addr: serving.sendto(data, addr)

    def disturb() -> None:
        for number in range(500):
            asking.sendto(b"%d" % number)
            serving.pause_reading()
            serving.resume_reading()
            loop.call_soon_threadsafe(len, "")

    await loop.run_in_executor(None, disturb)
    await until(lambda: server.got)
    await loop.run_in_executor(None, serving.close)
    await loop.run_in_executor(None, asking.abort)
    assert await server.lost is None


# ---- the object -------------------------------------------------------------------------------


async def test_types_extra_info_and_repr_are_asyncios(loop: Loop) -> None:
    serving, server, asking, _ = await pair_of(loop)
    for transport in (serving, asking):
        assert isinstance(transport, asyncio.BaseTransport)
        assert isinstance(transport, asyncio.Transport)
        if sys.version_info >= (3, 12):
            assert isinstance(transport, asyncio.DatagramTransport)
        sock = transport.get_extra_info("socket")
        assert sock.type == socket.SOCK_DGRAM
        assert transport.get_extra_info("sockname") == sock.getsockname()
        assert transport.get_extra_info("nonsense") is None
        assert transport.get_extra_info("nonsense", 5) == 5
        assert transport.max_size == 256 * 1024
        with pytest.raises(NotImplementedError):
            transport.write(b"x")
    assert serving.get_extra_info("peername") is None
    assert asking.get_extra_info("peername") == serving.get_extra_info("sockname")
    assert serving.get_protocol() is server
    serving.a_note = 1
    assert serving.a_note == 1
    fd = serving.get_extra_info("socket").fileno()
    assert f"fd={fd} read=polling write=<idle, bufsize=0>" in repr(serving)
    serving.close()
    assert f"closing fd={fd} read=idle" in repr(serving)
    await close(asking)
    await server.lost
    assert f"closed fd={fd}>" in repr(serving)


@pytest.mark.goloop_only("goloop's type")
def test_the_native_type_refuses_wrong_arguments_and_a_second_construction(
    loop: Loop, udp: socket.socket
) -> None:
    from goloop._internal.net.datagrams import DatagramTransport

    kind: Any = DatagramTransport
    assert issubclass(kind, asyncio.DatagramTransport)

    class Other(kind):  # type: ignore[misc]
        pass

    for made in (kind, Other):
        empty = made.__new__(made)
        assert empty.is_closing()
        empty.sendto(b"x", ("127.0.0.1", 9))
        empty.close()
        empty.abort()
        empty.pause_reading()
        assert "closed" in repr(empty)
        del empty
        with pytest.raises(TypeError):
            made()
        with pytest.raises(AttributeError):
            made(None, udp, None)
        with pytest.raises(AttributeError):
            made(loop, udp, object())  # no connection_made
        with pytest.raises(ValueError, match="Invalid file"):
            made(loop, object(), None)
    # The socket is still its owner's.
    assert udp.fileno() >= 0
    loop.run_until_complete(turns())

    async def use() -> None:
        protocol = DatagramRecorder()
        waiter = loop.create_future()
        transport = Other(loop, udp.dup(), protocol, None, waiter, {"peername": None, "a": 1})
        with pytest.raises(RuntimeError, match="already has a socket"):
            transport.__init__(loop, udp, protocol)
        await waiter
        assert transport.get_extra_info("a") == 1
        await close(transport)

    loop.run_until_complete(use())


async def test_callbacks_run_in_the_context_of_the_creation(loop: Loop) -> None:
    where: contextvars.ContextVar[str] = contextvars.ContextVar("where", default="nowhere")
    seen: list[str] = []

    class Looking(DatagramRecorder):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            seen.append(where.get())

        def datagram_received(self, data: bytes, addr: Any) -> None:
            super().datagram_received(data, addr)
            seen.append(where.get())

        def error_received(self, exc: Exception) -> None:
            super().error_received(exc)
            seen.append(where.get())

        def connection_lost(self, exc: Exception | None) -> None:
            seen.append(where.get())
            super().connection_lost(exc)

    async def create() -> tuple[Any, Looking]:
        where.set("inside")
        return await loop.create_datagram_endpoint(Looking, local_addr=("127.0.0.1", 0))

    transport, protocol = await asyncio.create_task(create())
    sender = await flood(protocol, 2)
    await until(lambda: len(protocol.got) == 2)
    transport.sendto(b"x" * 70_000, sender.getsockname())  # in the caller's
    close_each(sender, transport)
    await protocol.lost
    assert seen[:3] == ["inside"] * 3
    assert seen[3] == "nowhere"


async def test_debug_mode_logs_pauses_and_slow_callbacks(
    loop: Loop, caplog: pytest.LogCaptureFixture
) -> None:
    loop.set_debug(True)
    caplog.set_level(logging.DEBUG, logger="asyncio")
    serving, server, asking, _ = await pair_of(loop)
    serving.pause_reading()
    serving.resume_reading()
    assert "pauses reading" in caplog.text
    assert "resumes reading" in caplog.text
    loop.slow_callback_duration = 0.0  # type: ignore[attr-defined]
    asking.sendto(b"x")
    await until(lambda: server.got)
    assert "took" in caplog.text
    loop.slow_callback_duration = 10.0  # type: ignore[attr-defined]
    await close(serving, asking)


def test_sending_raises_pythons_audit_event(loop_name: str) -> None:
    """Python's own sendto() raises this event, and programs may watch for it.

    The program has a process of its own, because an audit hook can't be removed.  In later tests
    an allocation that fails in the hook's call makes CPython's sys.set_asyncgen_hooks() use a
    finalizer that it has freed.
    """
    ended.passes(SCENARIOS, "audited", loop_name)


def test_endpoints_of_loops_in_several_threads_do_not_meet(loop_factory: LoopFactory) -> None:
    """Endpoints of loops in several threads do not meet."""

    async def echo() -> list[bytes]:
        loop = asyncio.get_running_loop()
        serving, server, asking, client = await pair_of(loop)
        server.on_datagram = serving.sendto
        for number in range(50):
            asking.sendto(b"%d" % number)
            await until(lambda want=number + 1: len(client.got) == want)
        await close(serving, asking)
        return client.data()

    results: list[list[bytes]] = []

    def run() -> None:
        loop = loop_factory()
        try:
            results.append(loop.run_until_complete(echo()))
        finally:
            loop.close()

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [numbers(50)] * 3
