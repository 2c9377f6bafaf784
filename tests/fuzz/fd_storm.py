"""A storm of descriptors whose numbers are reused at once: no byte may reach another connection.

    python tests/fuzz/fd_storm.py [--rounds 5000] [--loop NAME] [--seed 1]
                                  [--only WAY/END ...] [--without WAY/END ...]

40 workers connect to a server in another process, write, are cancelled at random points
and close in every order, by transports, TLS, datagrams, sock_* calls and watchers.  The
kernel gives the lowest free number, so a late action on a number hits another worker's
connection.  The sent bytes contain the sender's port and a serial number; the server compares
them with the port from which the bytes came, and the worker compares the echo with its own
bytes.

Each round is a WAY to connect and an END.  Some ends break asyncio's own loop, which identifies
descriptors by their number only (a socket closed while a call waits for it); on asyncio
these are omitted.  They may break their own round by EBADF, but never another one.

The program prints one line for each violation, then their number, and exits with 1 if there
was one.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import contextlib
import errno
import faulthandler
import gc
import os
import random
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    TESTS = Path(__file__).resolve().parent.parent
    sys.path[:0] = [str(TESTS), str(TESTS / "support")]

import tls_tools
from conftest import factory_of, open_fds

WORKERS = 40
HANG = float(os.environ.get("GOLOOP_STORM_HANG", "240"))  # seconds for a round of some ms

TAG = struct.Struct(">HHIQ")  # port, command for the server, serial number, filler
FILLER = 0x1122334455667788
ECHO, CLOSES, RESETS, DEAF = range(4)


def expected(tag: bytes, offset: int, size: int) -> bytes:
    """Return the bytes at an offset of a connection: its tag, repeated."""
    offset %= TAG.size
    return (tag * (size // TAG.size + 2))[offset : offset + size]


def foreign_tls(error: BaseException | None) -> bool:
    """Whether TLS failed for bytes that its peer never sent."""
    words = ("MAC", "WRONG_VERSION", "UNEXPECTED_MESSAGE", "RECORD", "BAD_", "HTTP", "LENGTH")
    reason = str(getattr(error, "reason", "") or "").replace(" ", "_").upper()
    return isinstance(error, ssl.SSLError) and any(word in reason for word in words)


# ---- the server -------------------------------------------------------------------


class Report:
    """The server's final report, with a limited number of lines."""

    connections = 0
    received = 0
    foreign = 0

    def astray(self, text: str) -> None:
        self.foreign += 1
        if self.foreign <= 20:
            print(f"foreign bytes at the server: {text}", flush=True)


class Echo(asyncio.Protocol):
    """A connection of the server."""

    transport: Any

    def __init__(self, report: Report) -> None:
        self.report = report
        self.tag = b""
        self.count = 0

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.port = transport.get_extra_info("peername")[1]
        self.report.connections += 1

    def data_received(self, data: bytes) -> None:
        self.report.received += len(data)
        if len(self.tag) < TAG.size:
            self.tag += data[: TAG.size - len(self.tag)]
            if len(self.tag) == TAG.size and not self.good_tag():
                return
        if data != expected(self.tag.ljust(TAG.size, b"?"), self.count, len(data)):
            self.report.astray(f"{data[:64]!r} from port {self.port}, whose tag is {self.tag!r}")
            self.transport.abort()
            return
        self.count += len(data)
        self.answer(data)

    def good_tag(self) -> bool:
        port, _, _, filler = TAG.unpack(self.tag)
        if (port, filler) == (self.port, FILLER):
            return True
        self.report.astray(f"{self.tag!r} from port {self.port}")
        self.transport.abort()
        return False

    def answer(self, data: bytes) -> None:
        what = TAG.unpack(self.tag)[1] if len(self.tag) == TAG.size else ECHO
        if what == DEAF:
            self.transport.pause_reading()
            asyncio.get_running_loop().call_later(0.05, self.transport.abort)
            return
        self.transport.write(data)
        if what == CLOSES and self.count >= TAG.size:
            self.transport.close()
        elif what == RESETS and self.count >= TAG.size:
            self.transport.abort()

    def pause_writing(self) -> None:
        self.transport.pause_reading()

    def resume_writing(self) -> None:
        self.transport.resume_reading()

    def connection_lost(self, exc: BaseException | None) -> None:
        if foreign_tls(exc):
            self.report.astray(f"TLS with port {self.port}: {exc!r}")


class EchoDatagrams(asyncio.DatagramProtocol):
    """The server's answer to datagrams."""

    transport: Any

    def __init__(self, report: Report) -> None:
        self.report = report

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self.report.received += len(data)
        if len(data) != TAG.size or TAG.unpack(data)[0] != addr[1]:
            self.report.astray(f"datagram {data[:64]!r} from {addr}")
        else:
            self.transport.sendto(data, addr)


async def serve(certificate: str, key: str) -> None:
    """Serves until standard input ends."""
    loop = asyncio.get_running_loop()
    report = Report()

    def failed(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if foreign_tls(context.get("exception")):
            report.astray(f"handshake: {context!r}")

    loop.set_exception_handler(failed)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    options: dict[str, Any] = {"backlog": 1000}
    plain = await loop.create_server(lambda: Echo(report), "0.0.0.0", 0, **options)
    tls = await loop.create_server(lambda: Echo(report), "0.0.0.0", 0, ssl=context, **options)
    datagrams, _ = await loop.create_datagram_endpoint(
        lambda: EchoDatagrams(report), ("0.0.0.0", 0)
    )
    ports = [plain.sockets[0].getsockname()[1], tls.sockets[0].getsockname()[1]]
    ports.append(datagrams.get_extra_info("sockname")[1])
    print(*ports, flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    print("served", report.connections, report.received, report.foreign, flush=True)
    os._exit(0)


# ---- a worker's connection ----------------------------------------------------------


class Common(asyncio.BaseProtocol):
    """A connection of a worker."""

    transport: Any = None

    def __init__(self, storm: Storm, name: str, first: int, port: int | None = None) -> None:
        self.storm = storm
        self.name = name
        self.first = first  # bytes to write in connection_made
        self.tag = storm.tag(port) if port is not None else b""
        self.count = 0
        self.disturbed = False  # the own worker closed the socket during a call
        loop = asyncio.get_running_loop()
        self.lost = loop.create_future()
        self.some = loop.create_future()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        if not self.tag:
            self.tag = self.storm.tag(transport.get_extra_info("sockname")[1])
        self.write(self.first)

    def write(self, size: int) -> None:
        if size:
            # In whole tags: all that a connection writes is its tag, again and again.
            self.transport.write(self.tag * (size // TAG.size + 1))

    def take(self, data: Any) -> None:
        if bytes(data) != expected(self.tag, self.count, len(data)):
            text = f"{self.name}: {bytes(data[:64])!r}, not {self.tag!r}"
            self.storm.wrong("foreign bytes", text)
            self.transport.abort()
        self.count += len(data)
        if not self.some.done():
            self.some.set_result(None)

    def connection_lost(self, exc: BaseException | None) -> None:
        if self.lost.done():
            self.storm.wrong("connection_lost twice", self.name)
            return
        self.lost.set_result(None)
        if not self.some.done():
            self.some.set_result(None)
        if foreign_tls(exc):
            self.storm.wrong("foreign bytes", f"{self.name}: {exc!r}")
        elif exc is not None and not self.disturbed:
            self.storm.judge(self.name, exc)


class Plain(Common, asyncio.Protocol):
    def data_received(self, data: bytes) -> None:
        self.take(data)


class Buffered(Common, asyncio.BufferedProtocol):
    def get_buffer(self, sizehint: int) -> bytearray:
        self.buffer = bytearray(4096)
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.take(self.buffer[:nbytes])


class Datagrams(Common, asyncio.DatagramProtocol):
    def datagram_received(self, data: bytes, addr: Any) -> None:
        self.take(data)

    def write(self, size: int) -> None:
        if size:
            self.transport.sendto(self.tag)

    def error_received(self, exc: Exception) -> None:
        if not self.disturbed:
            self.storm.judge(self.name, exc)


# ---- the storm ------------------------------------------------------------------------

Round = Callable[["Storm", "Choice"], Awaitable[None]]


class Choice:
    """The choices of one round, all drawn at its beginning."""

    def __init__(self, generator: random.Random, way: str, end: str) -> None:
        self.way = way
        self.end = end
        self.name = f"{way}/{end}"
        draw = generator.random
        self.random = generator
        self.server = generator.choice([ECHO] * 5 + [CLOSES, RESETS, DEAF])
        self.size = generator.choice([1, 100, 1000, 20_000])
        self.waiting = generator.choice([0, 1, 300_000, 1_000_000])
        self.turns = generator.choice([0, 0, 1, 2, 3, 5, 10])
        self.buffered = draw() < 0.3
        self.waits = draw() < 0.7  # for the first reply
        self.cancel = generator.randrange(14) if draw() < 0.4 else None
        self.host = f"127.{generator.randrange(1, 250)}.{generator.randrange(250)}.1"
        self.blocking = draw() < 0.5


# Ends of a transport over a socket that the worker has too.  Those that asyncio's own
# loop does not survive are marked.
UNPROMISED = True
SOCK_ENDS = {
    "close": False,
    "abort": False,
    "eof": False,
    "both": False,
    "abort-close": False,
    "both-full": UNPROMISED,
    "owner": UNPROMISED,
    "owner-full": UNPROMISED,
    "detach": UNPROMISED,
}
# TLS says goodbye first: its socket is in use for some turns after close().
SOCK_TLS_ENDS = {**SOCK_ENDS, "both": UNPROMISED}
OWN_ENDS = {"close": False, "abort": False, "eof": False, "full-abort": False}
CALL_ENDS = {"close": False, "owner": UNPROMISED, "owner-send": UNPROMISED, "detach": UNPROMISED}
WATCH_ENDS = {"close": False, "remove-by-number": False, "forgotten": UNPROMISED}
DATAGRAM_ENDS = {
    "close": False,
    "abort": False,
    "both": False,
    "owner": UNPROMISED,
    "detach": UNPROMISED,
}


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


class Storm:
    """The workers, their shared state, and the errors."""

    def __init__(self, options: argparse.Namespace, ports: list[int], certificate: str) -> None:
        self.options = options
        self.plain, self.tls, self.datagrams = ports
        self.client = ssl.create_default_context(cafile=certificate)
        self.serial = 0
        self.server_does = ECHO
        self.started = 0
        self.done: collections.Counter[str] = collections.Counter()
        self.faults: collections.Counter[str] = collections.Counter()
        self.running: dict[int, tuple[float, str]] = {}
        self.late: set[asyncio.Task[None]] = set()
        self.of_asyncio = options.loop == "asyncio"
        self.rounds = self.table()

    def table(self) -> list[tuple[str, str]]:
        """The rounds that this run has."""
        ways = {
            "sock": SOCK_ENDS,
            "sock-tls": SOCK_TLS_ENDS,
            "host": OWN_ENDS,
            "host-tls": OWN_ENDS,
            "calls": CALL_ENDS,
            "watch": WATCH_ENDS,
            "datagram": {"close": False, "abort": False},
            "datagram-sock": DATAGRAM_ENDS,
        }
        every = [
            (way, end)
            for way, ends in ways.items()
            for end, unpromised in ends.items()
            if not (unpromised and self.of_asyncio)
        ]
        only, without = self.options.only, self.options.without
        chosen = [
            (way, end)
            for way, end in every
            if (not only or way in only or f"{way}/{end}" in only)
            and way not in without
            and f"{way}/{end}" not in without
        ]
        if not chosen:
            raise SystemExit("no round is left; there are: " + " ".join(map("/".join, every)))
        return chosen

    def tag(self, port: int) -> bytes:
        self.serial += 1
        return TAG.pack(port, self.server_does, self.serial, FILLER)

    def wrong(self, what: str, text: str) -> None:
        self.faults[what] += 1
        if self.faults[what] <= 10:
            print(f"{what}: {text}", flush=True)

    def judge(self, name: str, error: BaseException) -> None:
        """Count an error that is not allowed in a round, independent of the peer."""
        if isinstance(error, FileExistsError):
            self.wrong("FileExistsError", f"{name}: {error}")
        elif "used by transport" in str(error):
            self.wrong("used by transport", f"{name}: {error}")
        elif foreign_tls(error):
            self.wrong("foreign bytes", f"{name}: {error!r}")
        elif isinstance(error, (ConnectionError, ssl.SSLError)):
            pass  # the server resets some
        elif isinstance(error, OSError) and error.errno == errno.EBADF:
            self.wrong("EBADF", f"{name}: {error!r}")
        else:
            self.wrong("another error", f"{name}: {error!r}")

    def on_context(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        protocol = context.get("protocol")
        protocol = getattr(protocol, "_app_protocol", protocol)  # of SSLProtocol
        if getattr(protocol, "disturbed", False) and not isinstance(error, FileExistsError):
            return
        if error is None:
            self.wrong("another error", f"{context!r}")
        else:
            self.judge(f"exception handler ({context['message']})", error)

    # ---- rounds -------------------------------------------------------------------

    async def socket(self, choice: Choice, port: int) -> socket.socket:
        made = socket.socket()
        try:
            if choice.blocking:
                made.connect((choice.host, port))
                made.setblocking(False)
            else:
                made.setblocking(False)
                await asyncio.get_running_loop().sock_connect(made, (choice.host, port))
        except BaseException:
            made.close()
            raise
        return made

    def tls_words(self) -> dict[str, Any]:
        # A connection with a closed socket gets no answer to its close_notify.
        words = {"ssl": self.client, "server_hostname": "localhost"}
        return {**words, "ssl_handshake_timeout": HANG / 2, "ssl_shutdown_timeout": 1.0}

    def protocol(self, choice: Choice, port: int | None, kind: Any = None) -> Any:
        self.server_does = choice.server
        # asyncio's TLS loses bytes that it reads into the buffer of a BufferedProtocol.
        buffered = choice.buffered and not (self.of_asyncio and "tls" in choice.way)
        kind = kind or (Buffered if buffered else Plain)
        return kind(self, choice.name, choice.size, port)

    async def by_sock(self, choice: Choice) -> None:
        """A transport over a socket of the worker's."""
        tls = choice.way == "sock-tls"
        sock = await self.socket(choice, self.tls if tls else self.plain)
        protocol = self.protocol(choice, sock.getsockname()[1])
        words = self.tls_words() if tls else {}
        try:
            await asyncio.get_running_loop().create_connection(lambda: protocol, sock=sock, **words)
        except BaseException:
            # As clients do that made the socket themselves.
            protocol.disturbed = True
            sock.close()
            raise
        await self.use(choice, protocol, sock)

    async def by_host(self, choice: Choice) -> None:
        """A transport with a socket of its own."""
        protocol = self.protocol(choice, None)
        tls = choice.way == "host-tls"
        words = self.tls_words() if tls else {}
        await asyncio.get_running_loop().create_connection(
            lambda: protocol, choice.host, self.tls if tls else self.plain, **words
        )
        await self.use(choice, protocol, None)

    async def by_datagram(self, choice: Choice) -> None:
        loop = asyncio.get_running_loop()
        sock = None
        if choice.way == "datagram":
            protocol = self.protocol(choice, None, Datagrams)
            await loop.create_datagram_endpoint(
                lambda: protocol, remote_addr=(choice.host, self.datagrams)
            )
        else:
            sock = socket.socket(type=socket.SOCK_DGRAM)
            sock.setblocking(False)
            sock.connect((choice.host, self.datagrams))
            protocol = self.protocol(choice, sock.getsockname()[1], Datagrams)
            try:
                await loop.create_datagram_endpoint(lambda: protocol, sock=sock)
            except BaseException:
                protocol.disturbed = True
                sock.close()
                raise
        await self.use(choice, protocol, sock)

    async def use(self, choice: Choice, protocol: Any, sock: socket.socket | None) -> None:
        """Waits for the first reply, perhaps, and ends the connection."""
        try:
            # A datagram may be lost without anybody's fault.
            if choice.waits and choice.server != DEAF and not isinstance(protocol, Datagrams):
                await protocol.some
            await turns(choice.turns)
        finally:
            self.end(choice, protocol, sock)
        # The end is awaited even if the waiting task is cancelled.
        await asyncio.shield(protocol.lost)

    def end(self, choice: Choice, protocol: Any, sock: socket.socket | None) -> None:
        transport = protocol.transport
        end = choice.end
        if end.endswith("full") or end == "full-abort":
            protocol.write(choice.waiting)
        if end in ("close", "both", "both-full", "full"):
            transport.close()
        elif end in ("abort", "abort-close", "full-abort"):
            transport.abort()
        elif end == "eof":
            self.end_by_eof(transport)
        elif end in ("owner", "owner-full", "detach"):
            protocol.disturbed = True
            late = asyncio.get_running_loop().create_task(self.end_late(choice, transport))
            self.late.add(late)
            late.add_done_callback(self.late.discard)
        if end in ("both", "both-full", "abort-close", "owner", "owner-full"):
            assert sock is not None
            protocol.disturbed = True
            sock.close()
        elif end == "detach":
            assert sock is not None
            number = sock.detach()
            if number >= 0:
                os.close(number)

    def end_by_eof(self, transport: Any) -> None:
        # The server ends its side in answer; a deaf one resets.
        if transport.can_write_eof() and not transport.is_closing():
            with contextlib.suppress(OSError):  # the server was first
                transport.write_eof()
        else:
            transport.close()

    async def end_late(self, choice: Choice, transport: Any) -> None:
        """End a transport with a closed socket, after its number was reused."""
        try:
            await turns(choice.random.randrange(20))
        finally:
            transport.abort()

    async def by_calls(self, choice: Choice) -> None:
        """sock_* calls, each of them in a task that may be cancelled."""
        loop = asyncio.get_running_loop()
        sock = await self.socket(choice, self.plain)
        self.server_does = choice.server
        tag = self.tag(sock.getsockname()[1])
        message = tag * (choice.size // TAG.size + 1)
        try:
            await loop.sock_sendall(sock, message)
            if choice.server != DEAF:
                await self.receive(choice, sock, tag)
            await turns(choice.turns)
            if choice.end != "close":
                await self.close_under_call(choice, sock, tag)
        finally:
            sock.close()

    async def receive(self, choice: Choice, sock: socket.socket, tag: bytes, start: int = 0) -> int:
        loop = asyncio.get_running_loop()
        count = start
        while count - start < TAG.size:
            if choice.buffered:
                buffer = bytearray(5000)
                data = bytes(buffer[: await loop.sock_recv_into(sock, buffer)])
            else:
                data = await loop.sock_recv(sock, 5000)
            if not data:
                break
            if data != expected(tag, count, len(data)):
                self.wrong("foreign bytes", f"{choice.name}: {data[:64]!r}, not {tag!r}")
            count += len(data)
        return count

    async def close_under_call(self, choice: Choice, sock: socket.socket, tag: bytes) -> None:
        """The socket is closed while a call waits for it; the call is cancelled later."""
        loop = asyncio.get_running_loop()
        if choice.end == "owner-send":
            call = loop.create_task(loop.sock_sendall(sock, tag * (choice.waiting * 4 // 16 + 1)))
        else:
            call = loop.create_task(self.swallow(choice, sock, tag))
        try:
            await turns(2)
            if choice.end == "detach":
                number = sock.detach()
                if number >= 0:
                    os.close(number)
            else:
                sock.close()
            await turns(choice.random.randrange(20))
        finally:
            call.cancel()
            with contextlib.suppress(asyncio.CancelledError, OSError, ValueError):
                await call

    async def swallow(self, choice: Choice, sock: socket.socket, tag: bytes) -> None:
        """Receives until the socket is gone; the tag has come at an unknown offset."""
        loop = asyncio.get_running_loop()
        while True:
            if choice.buffered:
                buffer = bytearray(5000)
                data = bytes(buffer[: await loop.sock_recv_into(sock, buffer)])
            else:
                data = await loop.sock_recv(sock, 5000)
            if not data:
                return
            if not any(data == expected(tag, at, len(data)) for at in range(TAG.size)):
                self.wrong("foreign bytes", f"{choice.name}: {data[:64]!r}, not {tag!r}")

    async def by_watch(self, choice: Choice) -> None:
        """add_writer and add_reader, with the worker's own calls of send and recv."""
        loop = asyncio.get_running_loop()
        sock = await self.socket(choice, self.plain)
        number = sock.fileno()
        self.server_does = choice.server
        tag = self.tag(sock.getsockname()[1])
        over = loop.create_future()

        def readable() -> None:
            if over.done():
                return  # a watch that was forgotten
            try:
                data = sock.recv(5000)
            except (BlockingIOError, ConnectionError):
                data = b""
            if data and data != expected(tag, 0, len(data)):
                self.wrong("foreign bytes", f"{choice.name}: {data[:64]!r}, not {tag!r}")
            over.set_result(None)

        def writable() -> None:
            if over.done():
                return
            loop.remove_writer(sock)
            with contextlib.suppress(ConnectionError):
                sock.send(tag)

        try:
            loop.add_reader(number if choice.buffered else sock, readable)
            loop.add_writer(sock, writable)
            if choice.server == DEAF:
                await turns(choice.turns)
            else:
                await over
        finally:
            if not over.done():
                over.cancel()
            self.end_watch(choice, sock, number)

    def end_watch(self, choice: Choice, sock: socket.socket, number: int) -> None:
        loop = asyncio.get_running_loop()
        if choice.end == "close":
            loop.remove_reader(sock)
            loop.remove_writer(sock)
            sock.close()
        elif choice.end == "remove-by-number":
            loop.remove_writer(sock)  # asyncio raises EBADF where one of two is removed too late
            sock.close()
            loop.remove_reader(number)
        else:
            sock.close()

    # ---- workers ------------------------------------------------------------------

    async def one(self, number: int, choice: Choice) -> None:
        """Run one round, cancelled in the middle or not."""
        ways = {"calls": self.by_calls, "watch": self.by_watch}
        ways |= {"sock": self.by_sock, "sock-tls": self.by_sock}
        ways |= {"host": self.by_host, "host-tls": self.by_host}
        ways |= {"datagram": self.by_datagram, "datagram-sock": self.by_datagram}
        self.running[number] = (time.monotonic(), choice.name)
        task = asyncio.get_running_loop().create_task(ways[choice.way](choice))
        # A cancelled create_connection says goodbye too, and then the worker closes its socket.
        safe = not (self.of_asyncio and choice.way == "sock-tls")
        try:
            if choice.cancel is not None and safe:
                await turns(choice.cancel)
                task.cancel()
            await task
        except asyncio.CancelledError:
            if not task.cancelled():
                raise
        except OSError as error:
            self.judge(choice.name, error)
        except Exception as error:
            self.judge(choice.name, error)
        self.done[choice.name] += 1

    async def worker(self, number: int) -> None:
        generator = random.Random(f"{self.options.seed} {number}")
        while self.started < self.options.rounds:
            self.started += 1
            await self.one(number, Choice(generator, *generator.choice(self.rounds)))
        self.running.pop(number, None)

    def watch_over(self) -> None:
        """A thread's work: ends the process when a round takes far too long."""
        while not self.over.wait(1):
            late = time.monotonic() - HANG
            stuck = [name for start, name in list(self.running.values()) if start < late]
            if stuck:
                print(f"hangs: {sorted(stuck)} after {sum(self.done.values())} rounds", flush=True)
                faulthandler.dump_traceback(all_threads=True)
                os._exit(1)

    async def run(self) -> None:
        asyncio.get_running_loop().set_exception_handler(self.on_context)
        self.over = threading.Event()
        guard = threading.Thread(target=self.watch_over, daemon=True)
        guard.start()
        try:
            workers = [asyncio.create_task(self.worker(i)) for i in range(WORKERS)]
            await asyncio.gather(*workers)
            # Transports of cancelled rounds end in the next turns.
            for _ in range(200):
                if len(asyncio.all_tasks()) == 1:
                    break
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.2)
        finally:
            self.over.set()
            guard.join()


def start_server() -> tuple[subprocess.Popen[str], list[int], str]:
    """The server's process, its ports and its certificate."""
    who = tls_tools.identity()
    command = [sys.executable, __file__, "--serve", who.certificate, who.key]
    made = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert made.stdout is not None
    return made, [int(word) for word in made.stdout.readline().split()], who.certificate


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5000)
    parser.add_argument("--loop", choices=["asyncio", "goloop"], default="goloop")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="*", default=[], metavar="WAY/END")
    parser.add_argument("--without", nargs="*", default=[], metavar="WAY/END")
    parser.add_argument("--serve", nargs=2, metavar=("CERTIFICATE", "KEY"), help="be the server")
    options = parser.parse_args()
    if options.serve:
        asyncio.run(serve(*options.serve))
    factory = factory_of(options.loop)
    factory().close()
    server, ports, certificate = start_server()
    storm = Storm(options, ports, certificate)
    before = open_fds()
    loop = factory()
    try:
        loop.run_until_complete(storm.run())
    finally:
        loop.close()
    gc.collect()
    left = {fd: what for fd, what in open_fds().items() if before.get(fd) != what}
    left = {fd: what for fd, what in left.items() if "[event" not in what}  # Go's own poller
    if left:
        storm.wrong("left open", f"{left}")
    answer, _ = server.communicate(timeout=60)
    print(answer, end="")
    foreign = int(answer.split()[-1])
    if foreign:
        storm.faults["foreign bytes at the server"] = foreign
    print(f"{sum(storm.done.values())} rounds, wrong: {dict(storm.faults) or 'nothing'}")
    return 1 if storm.faults else 0


if __name__ == "__main__":
    sys.exit(main())
