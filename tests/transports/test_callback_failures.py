"""A protocol's callback that raises has the same consequences on both loops.

Every callback of a protocol raises, at its first or second call, on each kind of transport: over
TLS also with data, or data and the end, that come together with the peer's last message of the
handshake. Then the later calls, the argument of connection_lost(), the reports to the exception
handler and the exceptions that leave run_forever() are compared with asyncio's. Each scenario is
run in one thread: the peer acts while the loop does not run.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from conftest import LOOP_NAMES, factory_of, tcp_pair
from tls_tools import client_context, server_context

Errors = dict[str, type[BaseException]]
ERRORS: Errors = {
    "ValueError": ValueError,
    "OSError": OSError,
    "CancelledError": asyncio.CancelledError,
    "KeyboardInterrupt": KeyboardInterrupt,
}
READING = ("data_received", "get_buffer", "buffer_updated", "datagram_received")
CHUNK = bytes(20)
FLOOD = 300_000


class Case(NamedTuple):
    transport: str
    protocol: str
    callback: str
    call: int
    error: str
    # TLS only: data comes with ("early") or after ("late") the peer's last handshake message;
    # "last": as "early", followed by the end of the stream.
    when: str = "early"


class Scenario:
    """The calls of one protocol, which raises in one of them."""

    def __init__(self, case: Case, loop: asyncio.AbstractEventLoop) -> None:
        self.case, self.loop = case, loop
        self.calls: list[str] = []
        self.contexts: list[tuple[str, str]] = []
        self.raised: list[str] = []
        self.made: list[str] = []
        self.received = 0
        self.transport: Any = None
        self.task: asyncio.Task[None] | None = None
        loop.set_exception_handler(self.report)

    def report(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        message = context["message"].split("\n")[0]
        if message.startswith("Exception in callback"):
            message = "Exception in callback"  # the method's name differs
        self.contexts.append((message, type(context.get("exception")).__name__))

    def note(self, name: str, *args: object) -> None:
        self.calls.append(" ".join((name, *(type(arg).__name__ for arg in args))))
        count = sum(call.split()[0] == name for call in self.calls)
        if (name, count) == (self.case.callback, self.case.call):
            raise ERRORS[self.case.error]("failed")

    def flood(self) -> None:
        """Write so much that the protocol is paused, if the case is about that."""
        if "writing" in self.case.callback:
            self.transport.set_write_buffer_limits(high=1000)
            self.transport.write(bytes(FLOOD))
            # asyncio's TLS counts only the bytes that it keeps while the socket is full.
            self.transport.write(bytes(10_000))

    def start(self, connect: Callable[..., Any], *args: Any, **options: Any) -> None:
        """Begin to make the transport."""

        async def connecting() -> None:
            try:
                await connect(*args, **options)
            except Exception as exc:
                self.made.append(type(exc).__name__)
            except asyncio.CancelledError:
                self.made.append("cancelled")
            else:
                self.made.append("made")

        self.task = self.loop.create_task(connecting())
        self.spin()

    def spin(self, turns: int = 10) -> None:
        """Run the loop for some turns; it is started again when an exception ends it."""
        left = turns

        def tick() -> None:
            nonlocal left
            left -= 1
            if left:
                self.loop.call_later(0.0002, tick)
            else:
                self.loop.stop()

        self.loop.call_soon(tick)
        while left:
            try:
                self.loop.run_forever()
            except BaseException as exc:
                self.raised.append(type(exc).__name__)

    def has_ended(self) -> bool:
        return self.transport is not None and self.transport.is_closing()

    def settle(self, received: int) -> None:
        """Run the loop until the protocol has that many bytes, or a failure has kept it from it."""
        for _ in range(30):
            if self.received >= received or self.has_ended():
                break
            self.spin(3)
        self.spin()

    def end(self) -> None:
        if self.transport is not None:
            open_still = not self.transport.is_closing()
            self.calls.append("open" if open_still else "closing")
            if open_still:
                self.loop.call_soon(getattr(self.transport, "abort", self.transport.close))
        if self.task is not None and not self.task.done():
            self.task.cancel()
        self.spin()

    def outcome(self) -> dict[str, Any]:
        calls = self.calls
        if self.case.callback != "get_buffer":
            # Their number depends on the number of receives.
            calls = [call for call in calls if call != "get_buffer"]
        if self.case.error == "KeyboardInterrupt":
            # An interrupted read goes on at different moments.
            calls = [call for call in calls if "lost" in call]
        return {"calls": calls, "contexts": self.contexts, "raised": self.raised, "made": self.made}


def protocol_of(scenario: Scenario) -> Any:
    flooded = False

    class Base:
        def connection_made(self, transport: Any) -> None:
            scenario.transport = transport
            scenario.note("connection_made")

        def connection_lost(self, exc: Exception | None) -> None:
            scenario.note("connection_lost", exc)

        def pause_writing(self) -> None:
            scenario.note("pause_writing")

        def resume_writing(self) -> None:
            scenario.note("resume_writing")

        def eof_received(self) -> None:
            scenario.note("eof_received")

    def received(name: str, count: int) -> None:
        nonlocal flooded
        scenario.received += count
        if not flooded:
            flooded = True
            scenario.flood()
        scenario.note(name)

    class Plain(Base, asyncio.Protocol):
        def data_received(self, data: bytes) -> None:
            received("data_received", len(data))

    class Buffered(Base, asyncio.BufferedProtocol):
        def get_buffer(self, sizehint: int) -> Any:
            scenario.note("get_buffer")
            return memoryview(bytearray(7))

        def buffer_updated(self, count: int) -> None:
            received("buffer_updated", count)

    class Datagrams(Base, asyncio.DatagramProtocol):
        def datagram_received(self, data: bytes, address: Any) -> None:
            received("datagram_received", len(data))

    return {"plain": Plain, "buffered": Buffered, "datagrams": Datagrams}[scenario.case.protocol]()


# ---- the peers ----------------------------------------------------------------------------------


def send(sock: socket.socket, data: bytes) -> None:
    with contextlib.suppress(OSError):
        sock.sendall(data)


def discard(scenario: Scenario, read: Callable[[int], bytes | None]) -> None:
    """Read until the paused protocol is resumed."""
    for _ in range(2000 if "writing" in scenario.case.callback else 0):
        if "resume_writing" in scenario.calls or scenario.has_ended():
            break
        with contextlib.suppress(OSError):
            read(1 << 20)
        scenario.spin(2)
    scenario.spin()


def serve_socket(scenario: Scenario, near: socket.socket, far: socket.socket) -> None:
    loop = scenario.loop
    send(far, CHUNK)
    scenario.start(loop.connect_accepted_socket, lambda: protocol_of(scenario), near)  # type: ignore[attr-defined]
    scenario.settle(len(CHUNK))
    discard(scenario, far.recv)
    send(far, CHUNK)
    scenario.settle(2 * len(CHUNK))
    with contextlib.suppress(OSError):
        far.shutdown(socket.SHUT_WR)
    scenario.spin()


def shake_hands(scenario: Scenario, far: socket.socket, tls: ssl.SSLObject, bios: Any) -> bool:
    """Return true when the peer's side is done; its last message is not sent yet."""
    incoming, outgoing = bios
    for _ in range(10):
        with contextlib.suppress(OSError):
            incoming.write(far.recv(65536))
        try:
            tls.do_handshake()
        except ssl.SSLWantReadError:
            send(far, outgoing.read())
            scenario.spin()
        except ssl.SSLError:
            break
        else:
            return True
    return False


def serve_tls(scenario: Scenario, near: socket.socket, far: socket.socket) -> None:
    case, loop = scenario.case, scenario.loop
    incoming, outgoing = bios = ssl.MemoryBIO(), ssl.MemoryBIO()

    def factory() -> Any:
        return protocol_of(scenario)

    if case.transport == "TLS server":
        accept: Any = loop.connect_accepted_socket  # type: ignore[attr-defined]
        tls = client_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
        scenario.start(accept, factory, near, ssl=server_context())
    else:  # the server's message is the last one in TLS 1.2 only
        version = ssl.TLSVersion.TLSv1_2
        tls = server_context(version=version).wrap_bio(incoming, outgoing, server_side=True)
        context = client_context(version=version)
        options: Any = {"ssl": context, "server_hostname": "localhost"}
        scenario.start(loop.create_connection, factory, sock=near, **options)

    def notify() -> None:
        with contextlib.suppress(ssl.SSLError):
            tls.unwrap()
        send(far, outgoing.read())

    if not shake_hands(scenario, far, tls, bios):
        return
    if case.when == "late":
        send(far, outgoing.read())
        scenario.spin()
    tls.write(CHUNK)
    if case.when == "last":
        notify()
        with contextlib.suppress(OSError):
            far.shutdown(socket.SHUT_WR)
    send(far, outgoing.read())
    scenario.settle(len(CHUNK))
    discard(scenario, far.recv)
    if case.when != "last":
        tls.write(CHUNK)
        send(far, outgoing.read())
        scenario.settle(2 * len(CHUNK))
        notify()
        scenario.spin()
        with contextlib.suppress(OSError):
            far.shutdown(socket.SHUT_WR)
    scenario.spin()


def serve_reading_pipe(scenario: Scenario) -> None:
    reading, writing = os.pipe()
    with open(writing, "wb", 0) as peer:
        peer.write(CHUNK)
        factory = lambda: protocol_of(scenario)  # noqa: E731
        scenario.start(scenario.loop.connect_read_pipe, factory, open(reading, "rb", 0))  # noqa: SIM115
        with contextlib.suppress(OSError):
            peer.write(CHUNK)
        scenario.settle(2 * len(CHUNK))
    scenario.spin()


def serve_writing_pipe(scenario: Scenario) -> None:
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    with open(reading, "rb", 0) as peer:
        factory = lambda: protocol_of(scenario)  # noqa: E731
        scenario.start(scenario.loop.connect_write_pipe, factory, open(writing, "wb", 0))  # noqa: SIM115
        if scenario.transport is not None:
            scenario.loop.call_soon(scenario.flood)
        scenario.spin()
        discard(scenario, peer.read)
    scenario.spin()


def serve_datagrams(scenario: Scenario) -> None:
    near = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    near.bind(("127.0.0.1", 0))
    near.setblocking(False)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as far:
        far.connect(near.getsockname())
        far.send(b"one")
        far.send(b"two")
        endpoint = scenario.loop.create_datagram_endpoint
        scenario.start(endpoint, lambda: protocol_of(scenario), sock=near)
        far.send(b"three")
        scenario.spin()


def run(case: Case, loop: asyncio.AbstractEventLoop) -> dict[str, Any]:
    scenario = Scenario(case, loop)
    others = {
        "reading pipe": serve_reading_pipe,
        "writing pipe": serve_writing_pipe,
        "datagrams": serve_datagrams,
    }
    if case.transport in others:
        others[case.transport](scenario)
        scenario.end()
        return scenario.outcome()
    near, far = socket.socketpair() if case.transport == "Unix" else tcp_pair()
    near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
    if case.transport != "Unix":
        far.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for sock in (near, far):
        sock.setblocking(False)
    with far:
        serve: Any = serve_tls if case.transport.startswith("TLS") else serve_socket
        serve(scenario, near, far)
        scenario.end()
    return scenario.outcome()


# ---- the table ----------------------------------------------------------------------------------


def callbacks(transport: str, protocol: str) -> Iterator[str]:
    yield "connection_made"
    yield "connection_lost"
    if transport != "writing pipe":
        yield from {
            "plain": ("data_received",),
            "buffered": ("get_buffer", "buffer_updated"),
            "datagrams": ("datagram_received",),
        }[protocol]
    if transport not in ("writing pipe", "datagrams"):
        yield "eof_received"
    if transport not in ("reading pipe", "datagrams"):
        yield "pause_writing"
        yield "resume_writing"


def cases(transport: str, protocol: str, callback: str) -> Iterator[Case]:
    times: tuple[str, ...] = ("early",)
    if transport.startswith("TLS"):
        times = {"eof_received": ("early", "last")}.get(callback, times)
        times = ("early", "late", "last") if callback in READING else times
    for when in times:
        for call in (1, 2) if callback in READING else (1,):
            for error in ERRORS:
                case = Case(transport, protocol, callback, call, error, when)
                if not is_different(case):
                    yield case


def is_different(case: Case) -> bool:
    """Return true for a deliberate difference (docs/compatibility.md)."""
    if case.callback == "resume_writing" and case.error == "KeyboardInterrupt":
        return True  # asyncio's transport goes on with an AssertionError in each turn
    # When the second buffer fails, and the end has come: asyncio goes on with the third buffer and
    # eof_received(), and only reports an exception that is not an Exception. In goloop the failure
    # is final.
    second = case.call == 2 and case.protocol == "buffered" and case.when == "last"
    return second and (case.callback == "buffer_updated" or case.error == "CancelledError")


TABLE = [
    (transport, protocol, callback)
    for transport, protocols in {
        "TCP": ("plain", "buffered"),
        "Unix": ("plain",),
        "TLS server": ("plain", "buffered"),
        "TLS client": ("plain", "buffered"),
        "reading pipe": ("plain",),
        "writing pipe": ("plain",),
        "datagrams": ("datagrams",),
    }.items()
    for protocol in protocols
    for callback in callbacks(transport, protocol)
]


@pytest.mark.skipif(len(LOOP_NAMES) < 2, reason="compares two loops")
@pytest.mark.parametrize(("transport", "protocol", "callback"), TABLE)
def test_failure_of_a_callback_has_the_consequences_of_asyncio(
    no_leaks: None, transport: str, protocol: str, callback: str
) -> None:
    different = {}
    for case in cases(transport, protocol, callback):
        outcomes = []
        for name in LOOP_NAMES:
            loop = factory_of(name)()
            try:
                outcomes.append(run(case, loop))
            finally:
                loop.close()
        if outcomes[0] != outcomes[1]:
            different[case] = outcomes
    assert not different
