"""Loops of goloop on a simulated kernel: the same C, reactor and transports, in virtual time."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import ended
import pytest
import tls_tools
from failing_calls import fail_call

import goloop
from goloop._internal.net.datagrams import DatagramTransport
from goloop._internal.net.stream_transport import StreamTransport
from goloop.testing.simulated import sockets
from goloop.testing.simulated.kernel import Kernel

SCENARIOS = Path(__file__).with_name("simulated_kernel_scenarios.py")

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="simulated kernels are Linux's")

Main = Callable[[Kernel], Awaitable[Any]]


@pytest.fixture
def kernel(request: pytest.FixtureRequest) -> Iterator[Kernel]:
    """A kernel, with the options that the test is parametrized with."""
    kernel = Kernel(**getattr(request, "param", {}))
    yield kernel
    kernel.close()


def run(kernel: Kernel, main: Main) -> Any:
    """Return a coroutine function's result, on a loop on the kernel; nothing is left open."""
    with kernel:
        loop = goloop.new_event_loop()
        try:
            return loop.run_until_complete(main(kernel))
        finally:
            loop.close()
            assert kernel.open_descriptors() == 0


def pair(kernel: Kernel) -> tuple[sockets.Socket, sockets.Socket]:
    ends = sockets.pair(kernel)
    for end in ends:
        end.setblocking(False)
    return ends


def listener(kernel: Kernel) -> sockets.Socket:
    sock = sockets.make(kernel)
    sock.bind(("127.0.0.1", 0))
    sock.setblocking(False)
    return sock


async def echo(
    kernel: Kernel, payload: bytes, clients: int, faults: float = 0.0
) -> list[bytes | OSError]:
    """Return the answers to clients of a server that echoes until the end."""
    loop = asyncio.get_running_loop()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(10_000):
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        writer.close()

    async def ask(address: Any) -> bytes | OSError:
        try:
            sock = sockets.make(kernel)
        except OSError as e:
            return e
        try:
            sock.setblocking(False)
            await loop.sock_connect(sock, address)
            reader, writer = await asyncio.open_connection(sock=sock)
        except OSError as e:
            sock.close()
            return e
        try:
            writer.write(payload)
            writer.write_eof()
            return await reader.read()
        except OSError as e:
            return e
        finally:
            writer.close()

    listening = listener(kernel)
    server = await asyncio.start_server(serve, sock=listening)
    address = listening.getsockname()
    kernel.set_faults(faults)
    answers = await asyncio.gather(*(ask(address) for _ in range(clients)))
    kernel.set_faults(0)
    server.close()
    await asyncio.sleep(10)
    return answers


def test_an_hour_of_virtual_time_is_exact(kernel: Kernel) -> None:
    async def main(kernel: Kernel) -> list[float]:
        loop = asyncio.get_running_loop()
        times = [loop.time()]
        await asyncio.sleep(3600)
        times.append(loop.time())
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(loop.create_future(), 100)
        return [*times, loop.time(), kernel.now()]

    assert run(kernel, main) == [1.0, 3601.0, 3701.0, 3701.0]


def test_deadlock_of_the_simulated_kernel_is_an_error(kernel: Kernel) -> None:
    async def main(_: Kernel) -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(OSError, match=os.strerror(errno.EDEADLK)):
        run(kernel, main)


@pytest.mark.parametrize("kernel", [{}, {"latency": (0.001, 0.2), "seed": 5}], indirect=True)
def test_a_server_and_its_clients(kernel: Kernel) -> None:
    payload = bytes(range(256)) * 2000
    assert run(kernel, lambda kernel: echo(kernel, payload, 5)) == [payload] * 5


@pytest.mark.parametrize("seed", range(10))
def test_under_faults_bytes_arrive_in_order_or_an_error_is_reported(seed: int) -> None:
    kernel = Kernel(seed, latency=(0.0, 0.05))
    payload = bytes(range(256)) * 100
    try:
        answers = run(kernel, lambda kernel: echo(kernel, payload, 4, faults=0.01))
    finally:
        kernel.close()
    assert len(answers) == 4
    for answer in answers:
        assert isinstance(answer, OSError) or payload.startswith(answer)


def test_readers_sock_methods_and_wakes(kernel: Kernel) -> None:
    async def main(kernel: Kernel) -> None:
        loop = asyncio.get_running_loop()
        a, b = pair(kernel)
        came: asyncio.Future[bytes] = loop.create_future()
        loop.add_reader(a.fileno(), lambda: came.set_result(a.recv(10)))
        loop.call_later(5, b.send, b"reader")
        assert (await came, loop.time()) == (b"reader", 6.0)
        loop.remove_reader(a.fileno())

        receiving = asyncio.ensure_future(loop.sock_recv(a, 10))
        await asyncio.sleep(1)
        await loop.sock_sendall(b, b"method")
        assert await receiving == b"method"

        woken = loop.create_future()
        loop.call_soon_threadsafe(woken.set_result, "wake")
        assert await woken == "wake"
        a.close()
        b.close()

    run(kernel, main)


class Echo(asyncio.Protocol):
    """A protocol that a native transport serves; `lost` has the reason of its end."""

    def __init__(self) -> None:
        self.lost: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, StreamTransport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set_result(exc)


def test_native_listeners_and_transports_are_on_the_simulated_kernel(kernel: Kernel) -> None:
    async def main(kernel: Kernel) -> None:
        loop = asyncio.get_running_loop()
        made: list[Echo] = []

        def echo() -> Echo:
            made.append(Echo())
            return made[-1]

        server = await loop.create_server(echo, sock=listener(kernel))
        client = sockets.make(kernel)
        client.setblocking(False)
        await loop.sock_connect(client, server.sockets[0].getsockname())
        payload = bytes(range(256)) * 4000
        sending = asyncio.ensure_future(loop.sock_sendall(client, payload))
        came = b""
        while len(came) < len(payload):
            came += await loop.sock_recv(client, 100_000)
        await sending
        assert came == payload
        [protocol] = made
        assert protocol.transport.get_extra_info("peername") == client.getsockname()
        asked = protocol.transport.get_extra_info("socket")
        assert asked.getpeername() == client.getsockname()
        assert asked.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
        client.close()
        assert await protocol.lost is None
        server.close()
        await server.wait_closed()

    run(kernel, main)


def test_a_native_call_on_a_simulated_descriptor_can_be_made_to_fail(kernel: Kernel) -> None:
    async def main(kernel: Kernel) -> None:
        loop = asyncio.get_running_loop()
        a, b = pair(kernel)
        transport, protocol = await loop.create_connection(Echo, sock=a)
        b.send(b"x")
        await asyncio.sleep(1)
        assert b.recv(10) == b"x"
        try:
            fail_call("send", errno.ENOBUFS)
            transport.write(bytes(1_000_000))  # which C sends itself
            lost = await protocol.lost
        finally:
            fail_call("send", 0, times=0)
        assert isinstance(lost, OSError)
        assert lost.errno == errno.ENOBUFS
        b.close()

    run(kernel, main)


@pytest.mark.parametrize("kernel", [{"latency": (0.01, 0.01)}], indirect=True)
def test_datagrams_are_goloops_own(kernel: Kernel) -> None:
    class Receiver(asyncio.DatagramProtocol):
        def __init__(self) -> None:
            self.came: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def datagram_received(self, data: bytes, addr: Any) -> None:
            self.came.set_result((data, addr))

    async def main(kernel: Kernel) -> None:
        loop = asyncio.get_running_loop()
        socks = []
        for _ in range(2):
            sock = sockets.make(kernel, socket.AF_INET, socket.SOCK_DGRAM)
            sock.bind(("127.0.0.1", 0))
            socks.append(sock)
        a, _ = await loop.create_datagram_endpoint(Receiver, sock=socks[0])
        b, receiver = await loop.create_datagram_endpoint(Receiver, sock=socks[1])
        assert isinstance(a, DatagramTransport)
        a.sendto(b"datagram", b.get_extra_info("sockname"))
        assert await receiver.came == (b"datagram", a.get_extra_info("sockname"))
        assert loop.time() == pytest.approx(1.01)
        a.close()
        b.close()
        await asyncio.sleep(0)

    run(kernel, main)


def test_a_unix_server(kernel: Kernel) -> None:
    async def main(kernel: Kernel) -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(await reader.readexactly(4))
            writer.close()

        listening = sockets.make(kernel, socket.AF_UNIX)
        listening.bind("/a/path/that/the/host/has/not")
        server = await asyncio.start_unix_server(serve, sock=listening)
        sock = sockets.make(kernel, socket.AF_UNIX)
        sock.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(sock, "/a/path/that/the/host/has/not")
        reader, writer = await asyncio.open_unix_connection(sock=sock)
        writer.write(b"unix")
        assert await reader.read() == b"unix"
        writer.close()
        server.close()
        await asyncio.sleep(1)

    run(kernel, main)


@pytest.mark.parametrize("kernel", [{"latency": (0.001, 0.1)}], indirect=True)
def test_tls_is_goloops_own(kernel: Kernel) -> None:
    async def main(kernel: Kernel) -> None:
        loop = asyncio.get_running_loop()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(await reader.readexactly(100_000))
            writer.close()

        server = await asyncio.start_server(
            serve, sock=listener(kernel), ssl=tls_tools.server_context()
        )
        sock = sockets.make(kernel)
        sock.setblocking(False)
        await loop.sock_connect(sock, server.sockets[0].getsockname())
        reader, writer = await asyncio.open_connection(
            sock=sock, ssl=tls_tools.client_context(), server_hostname="localhost"
        )
        writer.write(b"t" * 100_000)
        assert await reader.read() == b"t" * 100_000
        writer.close()
        server.close()
        await asyncio.sleep(1)

    run(kernel, main)


def test_watchdog_ignores_a_stopped_clock(kernel: Kernel) -> None:
    blocked: list[object] = []

    async def main(_: Kernel) -> None:
        await asyncio.sleep(1)
        # The monitor would see an iteration that began long ago, by the host's clock.
        done = threading.Event()
        threading.Timer(0.3, done.set).start()
        done.wait()

    unsubscribe = goloop.watchdog.subscribe(blocked.append)
    try:
        with kernel:
            loop: Any = goloop.new_event_loop()
            assert loop._limits == (0.0, 0.0)
            loop.close()
        run(kernel, main)
    finally:
        unsubscribe()
    assert blocked == []


def test_a_loop_of_another_thread_stays_on_the_hosts_kernel(kernel: Kernel) -> None:
    seen: list[object] = []

    async def real() -> None:
        loop = asyncio.get_running_loop()
        seen.append(abs(loop.time() - time.monotonic()) < 60)
        a, b = socket.socketpair()
        with a, b:
            a.setblocking(False)
            b.setblocking(False)
            receiving = asyncio.ensure_future(loop.sock_recv(a, 100))
            await asyncio.sleep(0)
            await loop.sock_sendall(b, b"host")
            seen.append(await receiving)
        with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
            loop.add_reader(1 << 23, print)

    async def main(_: Kernel) -> float:
        thread = threading.Thread(target=lambda: goloop.run(real()))
        thread.start()
        thread.join()
        await asyncio.sleep(10)
        return asyncio.get_running_loop().time()

    assert run(kernel, main) == 11.0
    assert seen == [True, b"host"]


def test_after_a_kernel_all_is_the_hosts_again(kernel: Kernel) -> None:
    run(kernel, lambda kernel: asyncio.sleep(1))
    with goloop_loop() as loop:
        assert abs(loop.time() - time.monotonic()) < 60
        loop.run_until_complete(asyncio.sleep(0.001))


class goloop_loop:
    def __enter__(self) -> asyncio.AbstractEventLoop:
        self.loop = goloop.new_event_loop()
        return self.loop

    def __exit__(self, *_: object) -> None:
        self.loop.close()


def test_a_socket_of_a_kernel_that_has_ended_is_bad() -> None:
    kernel = Kernel()
    sock = sockets.make(kernel)
    kernel.close()
    with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
        sock.listen()


def test_a_forked_child_is_on_the_hosts_kernel() -> None:
    name = "a_forked_child_is_on_the_hosts_kernel"
    assert ended.passes(SCENARIOS, name, options=("-W", "ignore")) == "0\n"


def trace_of_faulty_echo(seed: int) -> str:
    kernel = Kernel(seed, latency=(0.001, 0.3), call_time=1e-6, trace=True)
    run(kernel, lambda kernel: echo(kernel, b"x" * 30_000, 5, faults=0.01))
    return kernel.trace()
