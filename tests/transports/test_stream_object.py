"""A stream transport as an object: attributes, extra info, subclasses, garbage, fork.

The tests that look at goloop alone say why.
"""

from __future__ import annotations

import asyncio
import contextvars
import gc
import os
import socket
import threading
import warnings
import weakref
from typing import Any

import pytest
from conftest import LoopFactory, tcp_pair
from protocols import Made, Recorder, close_all, hang_up, turns, until
from stream_tools import attach, attached, received

Loop = asyncio.AbstractEventLoop
Pair = tuple[socket.socket, socket.socket]


# ---- the object ----------------------------------------------------------------------


async def test_a_transport_takes_attributes_and_weak_references(loop: Loop, pair: Pair) -> None:
    protocol = await attach(loop, pair[0], Recorder())
    transport = protocol.transport
    assert isinstance(transport, asyncio.Transport)
    assert isinstance(transport, asyncio.transports._FlowControlMixin)
    transport.mine = 1
    assert transport.__dict__["mine"] == 1
    known = weakref.WeakSet([transport])
    assert transport in known
    assert {transport: 1}[transport] == 1
    assert transport._start_tls_compatible is True
    assert transport._sendfile_compatible.name == "TRY_NATIVE"
    assert transport.can_write_eof() is True
    assert transport._loop is loop
    assert transport._protocol is transport.get_protocol() is protocol
    assert (transport._closing, transport._paused, transport._eof) == (False, False, False)
    assert transport._conn_lost == 0
    text = repr(transport)
    assert text.endswith(f" fd={pair[0].fileno()} read=polling write=<idle, bufsize=0>>"), text
    transport.close()
    assert " closing fd=" in repr(transport)
    fd = pair[0].fileno()
    await protocol.lost
    await turns()
    assert repr(transport).endswith(f" closed fd={fd}>")
    assert transport._loop is None
    assert transport._sock is None
    protocol.transport = transport = None
    gc.collect()
    assert not known


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6, socket.AF_UNIX])
async def test_extra_info_of_both_ends_outlives_the_connection(
    loop: Loop, tmp_path: Any, family: socket.AddressFamily
) -> None:
    made, name = Made(), str(tmp_path / "socket")
    if family == socket.AF_UNIX:
        server: Any = await loop.create_unix_server(made, name)
        await loop.create_unix_connection(made, name)
    else:
        server = await loop.create_server(made, "::1" if family == socket.AF_INET6 else "127.0.0.1")
        await loop.create_connection(made, *server.sockets[0].getsockname()[:2])
    await until(lambda: len(made) == 2 and all(protocol.transport for protocol in made))
    names, views = [], []
    for protocol in made:
        transport = protocol.transport
        view = transport.get_extra_info("socket")
        assert isinstance(view, asyncio.trsock.TransportSocket)
        assert transport.get_extra_info("socket") is view
        assert (view.family, view.type) == (family, socket.SOCK_STREAM)
        assert view.gettimeout() == 0
        assert not os.get_inheritable(view.fileno())
        if family != socket.AF_UNIX:
            assert view.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            view.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 0)
            assert view.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 0
        with pytest.raises(ValueError, match="transport sockets cannot be blocking"):
            view.setblocking(True)
        names.append((view.getsockname(), view.getpeername()))
        views.append(view)
        assert set(transport._extra) == {"socket", "sockname", "peername"}
        transport._extra["more"] = 7
        assert transport.get_extra_info("more") == 7
        for missing in ("sslcontext", "peercert", "cipher", "ssl_object", "nonsense"):
            assert transport.get_extra_info(missing) is None
            assert transport.get_extra_info(name=missing, default=6) == 6
    assert names[0] == names[1][::-1]
    assert server.sockets[0].getsockname() in names[0]
    await hang_up(*made)
    await turns()
    for protocol, view, (local, remote) in zip(made, views, names, strict=True):
        transport = protocol.transport
        assert transport.get_extra_info("sockname") == local
        assert transport.get_extra_info("peername") == remote
        assert transport.get_extra_info("socket") is view
        assert (view.fileno(), view.family) == (-1, family)
    await close_all(server)


async def test_callbacks_run_in_the_context_of_the_connection(loop: Loop, pair: Pair) -> None:
    near, far = pair
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")
    seen: dict[str, str] = {}

    class Looking(Recorder):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            seen["made"] = variable.get()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            seen["data"] = variable.get()

        def eof_received(self) -> bool:
            seen["eof"] = variable.get()
            return super().eof_received()

    variable.set("at construction")
    protocol = await attach(loop, near, Looking())
    variable.set("later")
    far.send(b"x")
    far.shutdown(socket.SHUT_WR)
    await protocol.lost
    assert seen == {"made": "at construction", "data": "at construction", "eof": "at construction"}
    assert variable.get() == "later"


# ---- the end -------------------------------------------------------------------------


def forget(loop: Loop, near: socket.socket) -> Any:
    """A transport that only the loop knows, after the loop has been closed."""
    protocol = attached(loop, near)
    loop.close()
    return protocol


def test_an_unclosed_transport_warns_and_closes(loop_factory: LoopFactory) -> None:
    near, far = tcp_pair()
    loop = loop_factory()
    protocol = forget(loop, near)
    reference = weakref.ref(protocol.transport)
    text = repr(protocol.transport)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        protocol.transport = None
        del protocol, loop
        gc.collect()
    told = [str(warning.message) for warning in caught]
    caught.clear()  # the warnings hold their source
    gc.collect()
    assert f"unclosed transport {text}" in told
    assert near.fileno() == -1
    assert reference() is None
    assert received(far) == b""
    far.close()


def test_a_transport_that_is_resurrected_by_its_warning_is_closed(
    loop_factory: LoopFactory,
) -> None:
    near, far = tcp_pair()
    loop = loop_factory()
    protocol = forget(loop, near)
    kept: list[Any] = []

    def keep(message: Any, *arguments: Any, source: Any = None, **options: Any) -> None:
        if message.source is not None:
            kept.append(message.source)

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings._showwarnmsg_impl = keep  # type: ignore[attr-defined]
        original = warnings.showwarning
        try:
            warnings._showwarnmsg, before = keep, warnings._showwarnmsg  # type: ignore[attr-defined]
            protocol.transport = None
            del protocol
            gc.collect()
        finally:
            warnings._showwarnmsg = before  # type: ignore[attr-defined]
            warnings.showwarning = original
    assert kept
    transport = kept.pop()
    assert near.fileno() == -1
    assert repr(transport).startswith("<")
    del transport
    gc.collect()
    far.close()


def test_a_transport_of_a_closed_loop_refuses_close(loop_factory: LoopFactory) -> None:
    near, far = tcp_pair()
    loop = loop_factory()
    protocol = forget(loop, near)
    transport = protocol.transport
    assert not transport.is_closing()
    assert transport.get_extra_info("socket").fileno() == near.fileno()
    with pytest.raises(RuntimeError, match=r"^Event loop is closed$"):
        transport.close()
    assert transport.is_closing()
    transport.abort()
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        del transport
        protocol.transport = None
        gc.collect()
    assert near.fileno() == -1
    far.close()


def test_transport_without_a_socket_behaves_as_closed(loop_factory: LoopFactory) -> None:
    """goloop alone: asyncio's transport fails with AttributeError here."""
    from goloop._internal.net.stream_transport import StreamTransport

    transport: Any = StreamTransport.__new__(StreamTransport)
    transport.close()
    transport.abort()
    transport.write(b"x")
    transport.writelines([b"x"])
    transport.write_eof()
    transport.pause_reading()
    transport.resume_reading()
    transport._call_connection_lost(None)
    transport._force_close(None)
    transport._fatal_error(OSError())
    transport._start(None)
    transport._deliver_paused_data()
    transport._maybe_pause_protocol()
    transport._maybe_resume_protocol()
    transport._reset_empty_waiter()
    transport._flush()
    with pytest.raises(RuntimeError):
        transport._make_empty_waiter()
    assert transport.is_closing()
    assert transport.get_protocol() is None
    assert transport.get_write_buffer_size() == 0
    assert transport.get_extra_info("socket") is None
    assert transport._sock is None
    assert "closed" in repr(transport)
    gc.collect()


@pytest.mark.goloop_only("goloop's constructor; asyncio's has other arguments")
def test_constructors_that_fail_leave_the_socket_alone(loop: Loop, pair: Pair) -> None:
    from goloop import _core

    near, _far = pair

    class NoProtocol:
        pass

    closed = socket.socket()
    closed.close()
    for arguments, kind in [
        ((None, near, Recorder), TypeError),
        ((loop, near, NoProtocol()), AttributeError),
        ((loop, closed, asyncio.Protocol()), ValueError),
        ((loop, "text", asyncio.Protocol()), ValueError),
        ((loop, near, asyncio.Protocol(), None, None, NoProtocol()), AttributeError),
        ((loop, near, asyncio.Protocol(), None, None, None, "context"), TypeError),
    ]:
        with pytest.raises(kind):
            _core.StreamTransport(*arguments)  # type: ignore[arg-type]
        gc.collect()
        assert near.fileno() >= 0
    transport = _core.StreamTransport(loop, near, asyncio.Protocol())
    with pytest.raises(RuntimeError, match="is used by transport"):
        _core.StreamTransport(loop, near, asyncio.Protocol())
    with pytest.raises(RuntimeError):
        transport.__init__(loop, near, asyncio.Protocol())  # type: ignore[misc]
    transport.abort()
    loop.run_until_complete(turns())
    assert near.fileno() == -1


@pytest.mark.goloop_only("goloop's type")
async def test_a_python_subclass_runs_its_own_finalizer(loop: Loop, pair: Pair) -> None:
    from goloop._internal.net.stream_transport import StreamTransport

    deleted: list[str] = []

    class Mine(StreamTransport):
        __slots__ = ("note",)

        def __del__(self) -> None:
            deleted.append(self.note)
            super().__del__()  # type: ignore[misc]

    protocol = Recorder()
    transport: Any = Mine(loop, pair[0], protocol, extra={"peername": "me", "x": 1})
    transport.note = "gone"
    await protocol.made
    assert transport.get_extra_info("peername") == "me"
    assert transport.get_extra_info("x") == 1
    transport.write(b"hello")
    await until(lambda: transport.get_write_buffer_size() == 0)
    assert repr(transport).startswith("<Mine fd=")
    transport.close()
    await protocol.lost
    await turns()
    protocol.transport = transport = None
    gc.collect()
    assert deleted == ["gone"]


def test_a_loop_that_is_garbage_closes_its_transports(loop_factory: LoopFactory) -> None:
    near, far = tcp_pair()
    loop = loop_factory()
    protocol = attached(loop, near)
    protocol.transport.write(b"x" * (4 << 20))
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        del loop, protocol
        gc.collect()
    assert near.fileno() == -1
    far.close()


@pytest.mark.goloop_only("asyncio lets the child use its parent's transports")
def test_the_child_of_a_fork_is_refused(loop: Loop, pair: Pair) -> None:
    near, far = pair
    protocol = attached(loop, near)
    transport = protocol.transport
    transport.write(b"parent")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        status = 1
        try:
            for call in (
                lambda: transport.write(b"child"),
                lambda: transport.writelines([b"child"]),
                transport.close,
                transport.abort,
                transport.pause_reading,
                transport.write_eof,
                lambda: transport._call_connection_lost(None),
            ):
                with pytest.raises(RuntimeError, match="parent process"):
                    call()
            protocol.transport = None
            del transport
            gc.collect()
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    transport.write(b" goes on")
    loop.run_until_complete(until(lambda: transport.get_write_buffer_size() == 0))
    loop.run_until_complete(hang_up(protocol))
    assert received(far) == b"parent goes on"


# ---- listeners -----------------------------------------------------------------------


def test_collections_of_another_thread_disturb_no_waiting_loop(loop: Loop, pair: Pair) -> None:
    """Finalizers of another loop's transports run in another thread."""
    near, far = pair
    protocol = attached(loop, near)
    stop = threading.Event()

    def collect_garbage() -> None:
        while not stop.is_set():
            gc.collect()

    thread = threading.Thread(target=collect_garbage)
    thread.start()
    for _ in range(50):
        far.send(b"ping")
        before = len(protocol.data)
        loop.run_until_complete(until(lambda before=before: len(protocol.data) > before))
        protocol.transport.write(b"pong")
    stop.set()
    thread.join()
    loop.run_until_complete(hang_up(protocol))


@pytest.mark.parametrize("role", ["client", "server"])
async def test_a_transport_that_is_closed_at_once_still_has_its_socket(
    loop: Loop, role: str
) -> None:
    """As asyncio's: a TransportSocket, whose descriptor is gone once the transport has ended."""
    found: list[Any] = []

    class Closing(Recorder):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            transport.close()
            found.append(transport.get_extra_info("socket"))
            found.append(transport.get_extra_info("peername"))

    protocols = Made(Closing)
    if role == "server":
        server = await loop.create_server(protocols, "127.0.0.1", 0)
        client = socket.create_connection(server.sockets[0].getsockname())
        await until(lambda: protocols)
        peer = client.getsockname()
    else:
        client = socket.create_server(("127.0.0.1", 0))
        await loop.create_connection(protocols, *client.getsockname())
        peer = client.getsockname()
    await protocols[0].lost
    sock = found[0]
    assert isinstance(sock, asyncio.trsock.TransportSocket)
    assert found[1] == peer
    assert sock.fileno() == -1
    assert protocols[0].transport.get_extra_info("socket").fileno() == -1
    client.close()
    if role == "server":
        await close_all(server)


@pytest.mark.goloop_only("asyncio's tries at once")
@pytest.mark.parametrize("kind", ["stream", "pipe"])
def test_write_after_loop_close_is_refused(loop_factory: LoopFactory, kind: str) -> None:
    loop = loop_factory()
    near, far = socket.socketpair()
    if kind == "stream":
        making: Any = loop.create_connection(asyncio.Protocol, sock=near)
    else:
        making = loop.connect_write_pipe(asyncio.BaseProtocol, near)
    transport, _ = loop.run_until_complete(making)
    loop.close()
    far.setblocking(False)
    for name, *arguments in (("write", b"x"), ("writelines", [b"x"]), ("write_eof",)):
        with pytest.raises(RuntimeError, match="Event loop is closed"):
            getattr(transport, name)(*arguments)
    with far, pytest.raises(BlockingIOError):
        far.recv(1)
    near.close()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        del transport, making
        gc.collect()
