"""goloop.SharedListener: one address, several loops, each in a thread of its own."""

from __future__ import annotations

import asyncio
import contextvars
import errno
import os
import socket
import ssl
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from protocols import close_all, close_each, turns
from serving import Client, Loop, Says, eventually
from tls_tools import client_context, server_context

import goloop
from goloop._internal.process import shared_sockets

pytestmark = pytest.mark.skipif(
    os.environ.get("GOLOOP_TEST_LOOP") == "asyncio", reason="asyncio's loops share nothing"
)


variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")


class World:
    """A listener, with the loops and clients of a test."""

    def __init__(self, listener: goloop.SharedListener) -> None:
        self.listener = listener
        self.loops: list[Loop] = []
        self.clients: list[Client] = []

    @property
    def address(self) -> Any:
        return self.listener.sockets[0].getsockname()

    def loop(self, name: str, **options: Any) -> Loop:
        """A loop that serves."""
        made = self.idle_loop(name)
        made.serve(self.listener, **options)
        return made

    def idle_loop(self, name: str) -> Loop:
        """A loop that does not serve yet."""
        self.loops.append(Loop(name))
        return self.loops[-1]

    def client(self, address: Any = None, family: int = socket.AF_INET) -> Client:
        made = Client(address or self.address, family)
        self.clients.append(made)
        return made

    def assigned(self, loop: Loop) -> int:
        """How many connections wait for that loop to start them."""
        [member] = [each for each in self.listener._addresses[0]._members if each.loop is loop.loop]
        return len(member.assigned)

    def connections(self, loop: Loop) -> int:
        [member] = [each for each in self.listener._addresses[0]._members if each.loop is loop.loop]
        return member.connection_count()

    def end(self) -> None:
        for client in self.clients:
            client.close()
        for loop in self.loops:
            loop.end()
        self.listener.close()


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unstarted connections are not taken back in these tests, which check them."""
    monkeypatch.setattr(shared_sockets, "PATIENCE", 3600.0)


@pytest.fixture
def world(no_leaks: None, patient: None) -> Iterator[World]:
    made = World(goloop.SharedListener("127.0.0.1", 0))
    yield made
    made.end()


# ---- distribution of connections ------------------------------------------------


def test_a_connection_goes_to_the_loop_with_the_fewest(world: World) -> None:
    loops = {name: world.loop(name) for name in "abc"}
    clients = [world.client() for _ in range(12)]
    served = [client.server() for client in clients]
    assert Counter(served) == {"a": 4, "b": 4, "c": 4}
    for client, name in zip(clients, served, strict=True):
        if name == "b":
            client.close()
    eventually(lambda: world.connections(loops["b"]) == 0)
    assert [world.client().server() for _ in range(4)] == ["b"] * 4
    assert Counter(world.client().server() for _ in range(3)) == {"a": 1, "b": 1, "c": 1}


def test_blocked_loop_does_not_stop_others_from_accepting(world: World) -> None:
    a, _ = world.loop("a"), world.loop("b")
    release = a.block()
    try:
        # Connections that are assigned to `a` wait for it.
        clients = [world.client() for _ in range(4)]
        eventually(lambda: world.assigned(a) == 2)
    finally:
        release.set()
    assert Counter(client.server() for client in clients) == {"a": 2, "b": 2}


def test_unstarted_connections_of_a_blocked_loop_go_to_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    b = world.loop("b")
    assert [world.client().server() for _ in range(5)] == ["b"] * 5
    a = world.loop("a")
    release = a.block()
    monkeypatch.setattr(shared_sockets, "PATIENCE", 0.001)
    try:
        # `a` has the fewest connections, and gets these; no other loop waits for it.
        assert [client.server() for client in [world.client() for _ in range(3)]] == ["b"] * 3
        # The listener now knows that `a` is blocked, and gives it nothing.
        monkeypatch.setattr(shared_sockets, "PATIENCE", 3600.0)
        assert [world.client().server() for _ in range(3)] == ["b"] * 3
        assert (world.connections(a), world.connections(b)) == (0, 11)
    finally:
        release.set()
    a.call(int)  # after the callbacks that would start the lost connections
    assert [world.client().server() for _ in range(5)] == ["a"] * 5


def test_connections_echo_and_have_their_names(world: World) -> None:
    a = world.loop("a")
    transports = []

    class Notes(Says):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            transports.append(transport)

    a.leave()
    a.server = a.do(world.listener.create_server(lambda: Notes("notes")))
    client = world.client()
    assert client.server() == "notes"
    assert client.echoes()
    [transport] = transports
    assert transport.get_extra_info("peername") == client.sock.getsockname()
    assert transport.get_extra_info("sockname") == world.address
    sock = transport.get_extra_info("socket")
    assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    transports.clear()


def test_streams_are_served(world: World) -> None:
    a = world.idle_loop("a")

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with pytest.raises(ValueError, match="limit"):
            await reader.readline()
        writer.write(await reader.readline())
        await close_all(writer)

    a.server = a.do(world.listener.start_server(connected, limit=1000))
    client = world.client()
    client.sock.sendall(b"x" * 2000 + b"\na line\n")
    assert client.server() == "a line"


def test_tls_is_served(world: World) -> None:
    world.loop("a", ssl=server_context())
    world.loop("b", ssl=server_context())
    context = client_context()
    served = Counter[str]()
    socks: list[ssl.SSLSocket] = []
    for _ in range(6):
        sock = context.wrap_socket(world.client().sock, server_hostname="localhost")
        socks.append(sock)
        served[sock.recv(100).decode().strip()] += 1
    close_each(*socks)
    assert served == {"a": 3, "b": 3}


@pytest.mark.parametrize("tls", [False, True])
def test_a_connection_has_the_context_of_the_loop_that_serves_it(world: World, tls: bool) -> None:
    seen: list[tuple[str, str, str]] = []

    class Looks(Says):
        def __init__(self, name: str) -> None:
            super().__init__(name)
            self.made_in = variable.get()

        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            seen.append((self.name, self.made_in, variable.get()))
            variable.set("of one connection alone")

    for name in "ab":
        made = world.idle_loop(name)

        async def serves(name: str = name) -> Any:
            variable.set(f"of {name}")
            ssl = server_context() if tls else None
            return await world.listener.create_server(lambda: Looks(name), ssl=ssl)

        made.server = made.do(serves())
    # `b` accepts all of them.
    release = world.loops[0].block()
    clients = [world.client() for _ in range(6)]
    eventually(lambda: world.assigned(world.loops[0]) == 3)
    release.set()
    for client in clients:
        if tls:
            client.sock = client_context().wrap_socket(client.sock, server_hostname="localhost")
        client.server()
    eventually(lambda: len(seen) == 6)
    assert sorted(seen) == [("a", "of a", "of a")] * 3 + [("b", "of b", "of b")] * 3


def test_failing_factory_loses_only_its_connection(world: World) -> None:
    a = world.idle_loop("a")
    contexts: list[dict[str, Any]] = []
    a.loop.set_debug(True)
    a.loop.set_exception_handler(lambda loop, context: contexts.append(context))
    fail = [True]

    def factory() -> Says:
        if fail:
            fail.clear()
            raise LookupError("no protocol")
        return Says("a")

    a.server = a.do(world.listener.create_server(factory))
    assert world.client().sock.recv(1) == b""
    assert world.client().server() == "a"
    [context] = contexts
    assert context["message"] == "Error on transport creation for incoming connection"
    assert isinstance(context["exception"], LookupError)


# ---- the server of each loop ----------------------------------------------------


def test_the_server_is_asyncios(world: World) -> None:
    a = world.loop("a", start_serving=False)
    server = a.server
    assert isinstance(server, asyncio.Server)
    assert not server.is_serving()
    assert server.sockets[0].getsockname() == world.address

    async def serves() -> None:
        async with server:
            serving = asyncio.ensure_future(server.serve_forever())
            await turns(2)
            assert server.is_serving()
            serving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await serving
        assert not server.is_serving()
        assert server.sockets == ()

    a.do(serves())


@pytest.mark.skipif(sys.version_info < (3, 13), reason="asyncio's Server has it since 3.13")
def test_a_server_closes_the_clients_of_its_loop_alone(world: World) -> None:
    a, _ = world.loop("a"), world.loop("b")
    clients = {client.server(): client for client in [world.client(), world.client()]}
    assert set(clients) == {"a", "b"}

    async def closes() -> None:
        a.server.close()
        a.server.close_clients()
        await a.server.wait_closed()

    a.do(closes())
    assert clients["a"].sock.recv(1) == b""
    assert clients["b"].echoes()


# ---- loops that come and go -----------------------------------------------------


def test_leaving_loop_keeps_its_connections_and_gets_no_new_ones(world: World) -> None:
    a, _ = world.loop("a"), world.loop("b")
    clients = {client.server(): client for client in [world.client(), world.client()]}
    a.leave()
    assert [world.client().server() for _ in range(5)] == ["b"] * 5
    assert clients["a"].echoes()


def test_paused_loop_gets_no_connections_until_it_resumes(world: World) -> None:
    a, b = world.loop("a"), world.loop("b")
    clients = {client.server(): client for client in [world.client(), world.client()]}
    a.call(a.server.pause_accepting)
    assert [world.client().server() for _ in range(5)] == ["b"] * 5
    assert clients["a"].echoes()
    # All of them: a connection waits for the first that goes on.
    b.call(b.server.pause_accepting)
    waiting = world.client()
    a.call(a.server.resume_accepting)
    assert waiting.server() == "a"
    b.call(b.server.resume_accepting)
    assert {world.client().server() for _ in range(8)} == {"a", "b"}


@pytest.mark.parametrize("how", ["closes its server", "is closed"])
def test_unstarted_connections_of_a_leaving_loop_go_to_others(world: World, how: str) -> None:
    a, b = world.loop("a"), world.loop("b")
    release = a.block(then=a.server.close if how == "closes its server" else a.loop.stop)
    clients = [world.client() for _ in range(6)]
    eventually(lambda: world.assigned(a) == 3)
    eventually(lambda: world.connections(b) == 3)
    release.set()
    if how == "is closed":
        # Callbacks that are ready when a loop stops are not run.
        a.thread.join()
        assert a.loop.is_closed()
        a.server.close()
    assert [client.server() for client in clients] == ["b"] * 6


def test_stopped_loop_gets_no_connections(world: World) -> None:
    a, b = world.loop("a"), world.loop("b")
    stopped, goes_on = threading.Event(), threading.Event()

    def stops_for_a_while() -> None:
        a.loop.run_forever()
        stopped.set()
        goes_on.wait()
        a.loop.run_forever()
        a.loop.close()

    a.loop.call_soon_threadsafe(a.loop.stop)
    a.thread.join()
    # The thread has closed the loop; another one, then, that stops without being closed.
    a.loop = goloop.new_event_loop()
    a.thread = threading.Thread(target=stops_for_a_while)
    a.server.close()
    a.thread.start()
    a.serve(world.listener)
    a.loop.call_soon_threadsafe(a.loop.stop)
    stopped.wait()
    assert [world.client().server() for _ in range(4)] == ["b"] * 4
    goes_on.set()
    eventually(a.loop.is_running)
    assert [world.client().server() for _ in range(4)] == ["a"] * 4
    assert world.connections(b) == 4


def test_connections_wait_until_there_is_a_loop(world: World) -> None:
    first = world.client()
    a = world.loop("a")
    assert first.server() == "a"
    a.leave()
    second = world.client()
    world.loop("b")
    assert second.server() == "b"
    assert first.echoes()


def test_unstarted_connections_of_the_last_loop_go_to_the_next_one(world: World) -> None:
    a, b = world.loop("a"), world.loop("b")
    release = a.block(then=a.server.close)
    clients = [world.client() for _ in range(4)]
    eventually(lambda: world.assigned(a) == 2)
    b.leave()
    release.set()
    eventually(lambda: not a.server.is_serving())
    world.loop("c")
    assert Counter(client.server() for client in clients) == {"b": 2, "c": 2}


def test_listener_closes_connections_without_a_loop(world: World) -> None:
    a, b = world.loop("a"), world.loop("b")
    release = a.block(then=a.server.close)
    clients = [world.client() for _ in range(2)]
    eventually(lambda: world.assigned(a) == 1)
    b.leave()
    release.set()
    eventually(lambda: not a.server.is_serving())
    world.listener.close()
    ends = []
    for client in clients:
        ends.append(client.sock.recv(100))
    assert sorted(ends) == [b"", b"b\n"]


# ---- the listener ---------------------------------------------------------------


def test_loops_continue_after_the_listener_is_closed(world: World) -> None:
    a, address = world.loop("a"), world.address
    world.listener.close()
    assert world.client(address).server() == "a"
    with pytest.raises(RuntimeError, match="is closed"):
        world.listener.share()
    a.end()
    with pytest.raises(ConnectionRefusedError):
        Client(address)


def test_shared_listener_is_a_context_manager(no_leaks: None) -> None:
    with goloop.SharedListener("127.0.0.1", 0) as listener:
        address = listener.sockets[0].getsockname()
        assert repr(address) in repr(listener)
    assert listener.sockets == ()
    with pytest.raises(ConnectionRefusedError):
        Client(address)


def test_a_socket_can_be_given(no_leaks: None) -> None:
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    world = World(goloop.SharedListener(sock=sock))
    world.loop("a")
    assert world.client().server() == "a"
    world.end()
    assert sock.fileno() == -1


def test_a_path_can_be_given(no_leaks: None, tmp_path: Path) -> None:
    path = tmp_path / "socket"
    for _ in range(2):  # the second one finds the leftovers of a crash
        world = World(goloop.SharedListener(path=path))
        world.listener._path = None
        world.end()
        assert path.exists()
    world = World(goloop.SharedListener(path=path))
    world.loop("a")
    assert world.client(str(path), socket.AF_UNIX).server() == "a"
    world.end()
    assert not path.exists()


def test_path_of_another_socket_in_use_is_refused(no_leaks: None, tmp_path: Path) -> None:
    """Sockets of all types, and those that do not listen yet; none notices the attempt."""
    path = str(tmp_path / "socket")
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET):
        for listens in (True, False):
            with socket.socket(socket.AF_UNIX, kind) as taken:
                taken.bind(path)
                if listens and kind != socket.SOCK_DGRAM:
                    taken.listen(0)
                taken.setblocking(False)
                with pytest.raises(OSError, match="is already in use") as ours:
                    goloop.SharedListener(path=path)
                assert ours.value.errno == errno.EADDRINUSE
                assert os.path.samestat(os.stat(path), os.lstat(path))
                if listens and kind != socket.SOCK_DGRAM:
                    with pytest.raises(BlockingIOError):
                        taken.accept()
            # The socket is closed and its file is left.
            goloop.SharedListener(path=path).close()
            assert not os.path.exists(path)


def test_path_of_a_serving_listener_is_refused(no_leaks: None, tmp_path: Path) -> None:
    path = tmp_path / "socket"
    world = World(goloop.SharedListener(path=path))
    world.loop("a")
    with pytest.raises(OSError, match="is already in use"):
        goloop.SharedListener(path=path)
    assert world.client(str(path), socket.AF_UNIX).server() == "a"
    world.end()
    goloop.SharedListener(path=path).close()


def test_file_that_is_no_socket_is_kept(no_leaks: None, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("text")
    with pytest.raises(OSError, match="is already in use"):
        goloop.SharedListener(path=path)
    assert path.read_text() == "text"


def test_a_name_without_a_file_can_be_given(no_leaks: None) -> None:
    name = f"\0goloop-test-{os.getpid()}"
    world = World(goloop.SharedListener(path=name))
    world.loop("a")
    assert world.client(name, socket.AF_UNIX).server() == "a"
    world.end()


def test_path_replaced_by_another_file_is_not_removed(no_leaks: None, tmp_path: Path) -> None:
    path = tmp_path / "socket"
    listener = goloop.SharedListener(path=path)
    path.rename(tmp_path / "moved")
    path.touch()
    listener.close()
    assert path.exists()


def test_every_address_of_a_host_is_served(no_leaks: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def getaddrinfo(*args: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (f"127.0.0.{i}", 0)) for i in (1, 2, 1)]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    world = World(goloop.SharedListener("a.name", 0))
    monkeypatch.undo()
    addresses = [sock.getsockname() for sock in world.listener.sockets]
    assert [host for host, _ in addresses] == ["127.0.0.1", "127.0.0.2"]
    a = world.loop("a")
    assert [sock.getsockname() for sock in a.server.sockets] == addresses
    for address in addresses:
        assert world.client(address).server() == "a"
    world.end()


def test_an_address_in_use_is_refused_in_asyncios_words(no_leaks: None) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = taken.getsockname()
        with pytest.raises(OSError, match="error while attempting to bind on address") as ours:
            goloop.SharedListener(*address)

        async def theirs() -> None:
            await asyncio.get_running_loop().create_server(asyncio.Protocol, *address)

        with pytest.raises(OSError, match="bind") as asyncios:
            asyncio.run(theirs())
    # The system's own words, which come next, are not quoted alike by every version.
    known = f"error while attempting to bind on address {address}: "
    assert ours.value.args[1].startswith(known)
    assert asyncios.value.args[1].startswith(known)
    assert ours.value.errno == asyncios.value.errno


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "Neither host/port, path nor sock were specified"),
        ({"port": 1, "path": "x"}, "can not be specified at the same time"),
    ],
)
def test_wrong_arguments_are_refused(no_leaks: None, arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        goloop.SharedListener(**arguments)
    with socket.socket(type=socket.SOCK_DGRAM) as sock, pytest.raises(ValueError, match="Stream"):
        goloop.SharedListener(sock=sock)


# ---- given to others ------------------------------------------------------------


def test_sockets_of_a_shared_listener_work_with_create_server(
    loop_factory: Callable[[], Any],
) -> None:
    world = World(goloop.SharedListener("127.0.0.1", 0))
    a = Loop("a", loop_factory)
    world.loops.append(a)
    [sock] = world.listener.share()
    a.server = a.do(a.loop.create_server(lambda: Says("a"), sock=sock))
    client = world.client()
    assert client.server() == "a"
    assert client.echoes()
    world.end()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_forked_child_serves_at_the_same_listener(world: World) -> None:
    world.loop("parent's")
    assert world.client().server() == "parent's"
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        status = 1
        try:
            child = Loop("child's")
            child.serve(world.listener)
            os.read(read, 1)
            child.end()
            status = 0
        finally:
            os._exit(status)
    try:
        world.loops[0].leave()
        assert [world.client().server() for _ in range(3)] == ["child's"] * 3
    finally:
        os.write(write, b".")
        _, status = os.waitpid(pid, 0)
        os.close(read)
        os.close(write)
    assert status == 0


def test_the_kernel_balances_with_reuse_port(no_leaks: None) -> None:
    """No shared listener: each loop has a socket of its own at the same port."""
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.bind(("127.0.0.1", 0))  # and does not listen: it only keeps the port
        address = sock.getsockname()
        together = threading.Barrier(4)
        stops: list[tuple[Any, Any]] = []

        async def main(index: int) -> None:
            loop = asyncio.get_running_loop()
            async with await loop.create_server(
                lambda: Says(str(index)), *address, reuse_port=True
            ):
                stop = asyncio.Event()
                stops.append((loop, stop))
                await asyncio.to_thread(together.wait)
                await stop.wait()

        thread = threading.Thread(target=goloop.run_threads, args=(main,), kwargs={"threads": 3})
        thread.start()
        together.wait()
        served = set()

        def all_have_served() -> bool:
            client = Client(address)
            served.add(client.server())
            client.close()
            return served == {"0", "1", "2"}

        eventually(all_have_served)
        for loop, stop in stops:
            loop.call_soon_threadsafe(stop.set)
        thread.join()


def test_a_server_has_a_limit_from_its_start() -> None:
    """By the arguments of both calls; one that is wrong leaves nothing open."""

    async def main() -> None:
        with goloop.SharedListener("127.0.0.1", 0) as listener:
            with pytest.raises(ValueError, match="must be >= 1"):
                await listener.create_server(asyncio.Protocol, max_connections=0)
            one: Any = await listener.create_server(asyncio.Protocol, max_connections=3)
            two: Any = await listener.start_server(lambda r, w: None, max_connections=4)
            assert (one.max_connections, two.max_connections) == (3, 4)
            assert one.is_accepting()
            assert two.is_accepting()
            close_each(one, two)

    goloop.run(main())


def test_a_server_that_is_paused_before_it_serves_gets_nothing() -> None:
    """Connections wait in the kernel's queue, as where the pause comes later."""

    async def main() -> None:
        with goloop.SharedListener("127.0.0.1", 0) as listener:
            server: Any = await listener.create_server(Named, start_serving=False)
            server.pause_accepting()
            await server.start_serving()
            reader, writer = await asyncio.open_connection(*listener.sockets[0].getsockname()[:2])
            asking = asyncio.ensure_future(reader.read(1))
            await turns(20)
            assert not asking.done()
            server.resume_accepting()
            assert await asking == b"x"
            close_each(writer, server)

    class Named(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            transport.write(b"x")

    goloop.run(main())
