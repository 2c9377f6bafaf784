"""Connections that receive while an allocation fails: those that go on have lost no byte.

    python tests/fuzz/received_without_memory.py KIND [--widths 1 4]

Each KIND is a way of received bytes.  A connection receives some bytes; then, while it receives
more, allocation number n and the next few fail, for n = 1, 2, ... until the receive has made fewer
allocations.  Each byte tells its position, so that a gap, a repeated part or a zero shows.  At the
end

* the received bytes are the first of the sent bytes, and
* either they are all, and the connection has ended as usual, or the transport is closed, and
  connection_lost() was called at most once.

The KIND "written" writes instead.  Its peer receives the bytes of all calls of write() that did not
raise MemoryError.
"""

from __future__ import annotations

import argparse
import asyncio
import faulthandler
import functools
import gc
import logging
import os
import socket
import ssl
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    TESTS = Path(__file__).resolve().parent.parent
    sys.path[:0] = [str(TESTS), str(TESTS / "support")]

from _testcapi import remove_mem_hooks, set_nomemory

import goloop

MOST = 100  # allocations of one receive that fail in turn
SILENT = 60.0  # seconds: then a connection hangs
SMALL, LARGE = 700, 150_000


def pattern(start: int, n: int) -> bytes:
    """Bytes of a stream from position `start` on: none is zero, and the period is a prime."""
    period = bytes(1 + (i * 7 + i // 251) % 255 for i in range(65_521))
    begin = start % len(period)
    return (period * ((begin + n) // len(period) + 1))[begin : begin + n]


class Receiver(asyncio.Protocol):
    """Keeps the received bytes."""

    def __init__(self) -> None:
        self.chunks: list[bytes] = []
        self.lost: list[BaseException | None] = []
        self.transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.chunks.append(data)

    def connection_lost(self, exc: BaseException | None) -> None:
        self.lost.append(exc)

    def received(self) -> bytes:
        return b"".join(self.chunks)


class BufferedReceiver(asyncio.BufferedProtocol):
    """Keeps the received bytes, which arrive in a buffer of its own."""

    def __init__(self, size: int = 50_000) -> None:
        self.buffer = bytearray(size)
        self.kept = bytearray(4 * LARGE)
        self.end = 0
        self.lost: list[BaseException | None] = []
        self.transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def get_buffer(self, sizehint: int) -> bytearray:
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        end = self.end + nbytes
        self.kept[self.end : end] = memoryview(self.buffer)[:nbytes]
        self.end = end

    def connection_lost(self, exc: BaseException | None) -> None:
        self.lost.append(exc)

    def received(self) -> bytes:
        return bytes(self.kept[: self.end])


class ReaderEnd:
    """A StreamReader: the bytes that read() returns."""

    def __init__(self, loop: Any) -> None:
        self.reader = asyncio.StreamReader(limit=1 << 20, loop=loop)
        self.protocol = asyncio.StreamReaderProtocol(self.reader, loop=loop)
        self.transport: Any = None
        self.lost: list[BaseException | None] = []
        self.read: list[bytes] = []

    def received(self) -> bytes:
        buffer = self.reader._buffer  # type: ignore[attr-defined]
        data = b"".join(self.read) + bytes(buffer)
        self.lost = []
        if self.reader.exception() is not None or self.reader._eof:  # type: ignore[attr-defined]
            self.lost.append(self.reader.exception())
        return data


class Peer:
    """The other end: a socket, or the writing end of a pipe."""

    def __init__(self, loop: Any, send: Callable[[bytes], int], close: Callable[[], None]) -> None:
        self.loop, self._send, self._close = loop, send, close
        self.transport: Any = None  # goloop's, at the other end
        self.socket: Any = None
        self.sent = 0
        self.rest = b""

    def add(self, n: int) -> None:
        self.rest += pattern(self.sent + len(self.rest), n)
        self.push()

    def push(self) -> None:
        """Sends as much as the kernel takes."""
        try:
            while self.rest:
                n = self._send(self.rest)
                self.sent += n
                self.rest = self.rest[n:]
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            pass
        except OSError:
            self.rest = b""  # the connection was closed

    def close(self) -> None:
        self._close()


Ends = tuple[Any, Peer]


async def socket_pair(loop: Any, make: Callable[[], Any]) -> Ends:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    end = make()
    protocol = getattr(end, "protocol", end)
    end.transport, _ = await loop.connect_accepted_socket(lambda: protocol, ours)
    peer = Peer(loop, theirs.send, theirs.close)
    peer.socket = theirs
    return end, peer


async def tls_pair(loop: Any, make: Callable[[], Any]) -> Ends:
    from tls_tools import client_context, server_context

    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    wrapped = server_context().wrap_socket(
        theirs, server_side=True, do_handshake_on_connect=False, suppress_ragged_eofs=True
    )
    end = make()
    protocol = getattr(end, "protocol", end)

    async def shake() -> None:
        while True:
            try:
                wrapped.do_handshake()
                return
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                await asyncio.sleep(0.0005)

    made = loop.create_connection(
        lambda: protocol, sock=ours, ssl=client_context(), server_hostname="localhost"
    )
    (end.transport, _), _ = await asyncio.gather(made, shake())
    return end, Peer(loop, wrapped.send, wrapped.close)


async def pipe_pair(loop: Any, make: Callable[[], Any]) -> Ends:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    end = make()
    protocol = getattr(end, "protocol", end)
    end.transport, _ = await loop.connect_read_pipe(lambda: protocol, os.fdopen(reading, "rb", 0))
    return end, Peer(
        loop, functools.partial(os.write, writing), functools.partial(os.close, writing)
    )


KINDS: dict[str, tuple[Callable[..., Any], Callable[[Any], Any]]] = {
    "reader": (socket_pair, ReaderEnd),
    "protocol": (socket_pair, lambda loop: Receiver()),
    "buffered": (socket_pair, lambda loop: BufferedReceiver()),
    "tls reader": (tls_pair, ReaderEnd),
    "tls protocol": (tls_pair, lambda loop: Receiver()),
    "tls buffered": (tls_pair, lambda loop: BufferedReceiver(5000)),
    "pipe reader": (pipe_pair, ReaderEnd),
    "pipe protocol": (pipe_pair, lambda loop: Receiver()),
}


def iterations(loop: Any, n: int) -> None:
    """Runs some iterations of the loop."""
    for _ in range(n):
        loop.call_soon(loop.stop)
        loop.run_forever()


def starved_iterations(loop: Any, first: int, last: int) -> bool:
    """Runs iterations while allocations from `first` to `last` fail; true if run_forever() raised.

    Functions in C begin and end the failures, so that run_forever() itself has memory.
    """
    loop.call_soon(set_nomemory, first, last)
    loop.call_later(0.0005, remove_mem_hooks)
    loop.call_later(0.001, loop.stop)
    try:
        loop.run_forever()
    except MemoryError:
        remove_mem_hooks()
        loop._run_forever_cleanup()  # may have failed, too
        return True
    finally:
        remove_mem_hooks()
    return False


def drain(loop: Any, end: Any, peer: Peer) -> None:
    """Runs the loop until all bytes are received, or the transport is closed."""
    for _ in range(3000):
        peer.push()
        iterations(loop, 1)
        if isinstance(end, ReaderEnd) and end.reader._buffer:  # type: ignore[attr-defined]
            end.read.append(loop.run_until_complete(end.reader.read(1 << 20)))
        if peer.transport._fd < 0 or (not peer.rest and len(end.received()) == peer.sent):
            return


def attempt(kind: str, size: int, first: int, width: int) -> tuple[bool, str]:
    """Tries a connection; returns if an allocation failed, and the description of a violation."""
    connect, make = KINDS[kind]
    loop = goloop.new_event_loop()
    reports: list[Any] = []
    loop.set_exception_handler(lambda _loop, report: reports.append(report))
    end, peer = loop.run_until_complete(connect(loop, lambda: make(loop)))
    tls = getattr(end.transport, "_ssl_protocol", None)
    peer.transport = end.transport if tls is None else tls._transport
    for _ in range(3):  # large receives take other ways than small ones
        peer.add(size)
        drain(loop, end, peer)
    peer.add(size)
    gc.disable()
    failed = starved_iterations(loop, first, first + width)
    gc.enable()
    failed = failed or bool(reports)
    peer.add(SMALL)
    try:
        drain(loop, end, peer)
        peer.add(size)
        drain(loop, end, peer)
        peer.close()
        for _ in range(50):
            iterations(loop, 1)
            if peer.transport._fd < 0:
                break
    except MemoryError:  # a StreamReader raises the error that ended the connection
        pass
    wrong = judge(end, peer)
    loop.close()
    return failed, wrong


def judge(end: Any, peer: Peer) -> str:
    received = end.received()
    sent = pattern(0, len(received))
    if received != sent:
        at = next(i for i, (a, b) in enumerate(zip(received, sent, strict=True)) if a != b)
        return f"byte {at} of {len(received)} received is {received[at]}, not {sent[at]}"
    if len(end.lost) > 1:
        return f"connection_lost() was called {len(end.lost)} times: {end.lost}"
    if peer.transport._fd >= 0 and not (end.lost == [None] and len(received) == peer.sent):
        return f"{len(received)} of {peer.sent} bytes, and the transport is open"
    if end.lost == [None] and len(received) < peer.sent:
        return f"the end without an error after {len(received)} of {peer.sent} bytes"
    return ""


def attempt_write(kind: str, size: int, first: int, width: int) -> tuple[bool, str]:
    """Like attempt(), of writes whose allocations fail, to a peer that reads later."""
    loop = goloop.new_event_loop()
    loop.set_exception_handler(lambda _loop, report: None)
    end, peer = loop.run_until_complete(socket_pair(loop, Receiver))
    theirs = peer.socket
    accepted = 0
    failed = False

    def write(*memory: int) -> bool:
        chunk = pattern(accepted, size)
        if memory:
            set_nomemory(*memory)
        try:
            end.transport.write(chunk)
        except MemoryError:
            return False
        finally:
            remove_mem_hooks()
        return True

    def write_all() -> None:
        nonlocal accepted, failed
        for i in range(6):
            if write(*((first, first + width) if i % 2 else ())):
                accepted += size
            else:
                failed = True

    loop.call_soon(write_all)
    received = b""
    for _ in range(3000):
        iterations(loop, 1)
        try:
            data = theirs.recv(1 << 20)
        except BlockingIOError:
            continue
        except ConnectionResetError:
            break
        received += data
        if not data or len(received) == accepted:
            break
    iterations(loop, 3)
    open_still = end.transport._fd >= 0
    end.transport.abort()
    iterations(loop, 3)
    loop.close()
    if received != pattern(0, len(received)):
        return failed, f"{len(received)} bytes, and not those that were written"
    if open_still and len(received) != accepted:
        return failed, f"{len(received)} of {accepted} written bytes, and the transport is open"
    return failed or not open_still, ""


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=[*KINDS, "written"])
    parser.add_argument("--widths", type=int, nargs="+", default=[1, 48])
    parser.add_argument("--first", type=int, default=1)
    options = parser.parse_args()
    faulthandler.enable()
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    sys.unraisablehook = lambda unraisable: None
    bad = 0
    one = attempt_write if options.kind == "written" else attempt
    for size in (SMALL, LARGE):
        for width in options.widths:
            quiet = 0
            failures = []
            for first in range(options.first, MOST):
                faulthandler.dump_traceback_later(SILENT, exit=True)
                failed, wrong = one(options.kind, size, first, width)
                faulthandler.cancel_dump_traceback_later()
                if wrong:
                    bad += 1
                    print(
                        f"{options.kind}, {size} bytes, allocation {first}+{width}: {wrong}",
                        flush=True,
                    )
                if failed:
                    failures.append(first)
                quiet = 0 if failed or wrong else quiet + 1
                if quiet > 12:
                    break
            print(
                f"{options.kind}, {size} bytes, width {width}: failures at {failures}", flush=True
            )
    return bad != 0


if __name__ == "__main__":
    sys.exit(main())
