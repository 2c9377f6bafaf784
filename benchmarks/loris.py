"""Waiting times of honest clients while other peers stall or send slowly, and of many clients.

    python -m benchmarks.loris [--loops goloop asyncio uvloop] [--peers 16 64 500 1500]
        [--iterations 0 5 20 50] [--seconds 3] [--rounds 1] [--drip 3]

A TLS echo server under each loop has iterations of `--iterations` milliseconds: a callback computes
and schedules itself again. The peers connect. Every second peer then sends one byte of a
ClientHello each `--drip` seconds; the others send nothing. Honest clients, one after the other,
connect, shake hands and receive an echo. The server is pinned to the first core, all clients to
the last. In each round the loops take turns in each cell; ratios are taken inside a round.

The output is a table in Markdown: 50th and 99th percentile in milliseconds, as medians over the
rounds, and goloop's 99th as a multiple of asyncio's and uvloop's, with the least and the greatest.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import socket
import ssl
import statistics
import subprocess
import sys
import threading
import time

from benchmarks import machine, native
from benchmarks.storm import percentile

PATIENCE = 30.0  # seconds
LOOPS = ("goloop", "asyncio", "uvloop")
SERVER = """
import asyncio, os, ssl, sys, time
name, core, identity, milliseconds = sys.argv[1], int(sys.argv[2]), sys.argv[3], float(sys.argv[4])
os.sched_setaffinity(0, {core})
module = asyncio if name == "asyncio" else __import__(name)
class Echo(asyncio.Protocol):
    def connection_made(self, transport): self.transport = transport
    def data_received(self, data): self.transport.write(data)
async def main():
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda *_: None)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(identity)
    server = await loop.create_server(Echo, "127.0.0.1", 0, ssl=context, backlog=1024)
    def busy():
        end = time.perf_counter() + milliseconds / 1000
        while time.perf_counter() < end:
            pass
        loop.call_soon(busy)
    if milliseconds:
        busy()
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.Event().wait()
with asyncio.Runner(loop_factory=module.new_event_loop) as runner:
    runner.run(main())
"""


def client_context() -> ssl.SSLContext:
    """Return a TLS context that accepts every certificate, because the server is known."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def hello() -> bytes:
    """Make a ClientHello."""
    outgoing = ssl.MemoryBIO()
    connection = client_context().wrap_bio(ssl.MemoryBIO(), outgoing)
    with contextlib.suppress(ssl.SSLWantReadError):
        connection.do_handshake()
    return outgoing.read()


class Peers(threading.Thread):
    """A thread with the peers that stall or drip, each at its own time in the period."""

    def __init__(self, port: int, count: int, period: float) -> None:
        """Connect all of them."""
        super().__init__(daemon=True)
        self.message, self.period = hello(), period
        address = ("127.0.0.1", port)
        self.connections = [socket.create_connection(address, 60) for _ in range(count)]
        for connection in self.connections:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.over = threading.Event()

    def run(self) -> None:
        """Drip until end(), or until only the last byte is missing."""
        dripping = self.connections[::2]
        pause = self.period / len(dripping)
        due = time.monotonic()
        for at in range(len(self.message) - 1):
            for connection in dripping:
                due += pause
                if self.over.wait(max(due - time.monotonic(), 0)):
                    return
                with contextlib.suppress(OSError):  # the server may have closed the connection
                    connection.send(self.message[at : at + 1])

    def end(self) -> None:
        """Close them."""
        self.over.set()
        self.join()
        for connection in self.connections:
            connection.close()


def honest(port: int, context: ssl.SSLContext) -> float:
    """Return the seconds until a client has its echo; PATIENCE after a timeout."""
    began = time.perf_counter()
    try:
        with socket.create_connection(("127.0.0.1", port), PATIENCE) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with context.wrap_socket(connection) as secure:
                secure.sendall(b"x")
                secure.recv(1)
                return time.perf_counter() - began
    except OSError:
        return PATIENCE


def measure(loop: str, peers: int, milliseconds: float, options: argparse.Namespace) -> list[float]:
    """Return the waits of honest clients in one cell."""
    core = str(options.core)
    command = [sys.executable, "-c", SERVER, loop, core, str(native.identity()), str(milliseconds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            port = int(server.stdout.readline())
            attackers, context = Peers(port, peers, options.drip), client_context()
            attackers.start()
            time.sleep(0.5)
            waits: list[float] = []
            end = time.monotonic() + options.seconds
            while time.monotonic() < end or len(waits) < 3:
                waits.append(honest(port, context))
            attackers.end()
        finally:
            server.kill()
    return waits


def spread(ratios: list[float]) -> str:
    """Format the median of ratios, with the least and the greatest if there are several."""
    words = f"{statistics.median(ratios):.2f}×"
    return words if len(ratios) == 1 else f"{words} ({min(ratios):.2f}–{max(ratios):.2f})"


def row(peers: int, milliseconds: float, options: argparse.Namespace) -> str:
    """Measure a cell under each loop, in each round in another order."""
    found: dict[str, list[tuple[float, float]]] = {loop: [] for loop in options.loops}
    for number in range(options.rounds):
        turn = number % len(options.loops)
        for loop in options.loops[turn:] + options.loops[:turn]:
            waits = measure(loop, peers, milliseconds, options)
            found[loop].append((percentile(waits, 0.5) * 1e3, percentile(waits, 0.99) * 1e3))
    cells = [f"{peers}", f"{milliseconds:g} ms"]
    for loop in options.loops:
        middle, last = (statistics.median(column) for column in zip(*found[loop], strict=True))
        cells.append(f"{middle:.1f} / {last:.1f}")
    for other in options.loops[1:]:
        ours = zip(found[options.loops[0]], found[other], strict=True)
        cells.append(spread([mine[1] / theirs[1] for mine, theirs in ours]))
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    """Print the table, row by row."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.loris")
    parser.add_argument("--loops", nargs="+", default=list(LOOPS))
    parser.add_argument("--peers", nargs="+", type=int, default=[16, 64, 500, 1500])
    parser.add_argument("--iterations", nargs="+", type=float, default=[0, 5, 20, 50])
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--drip", type=float, default=3)
    options = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    native.identity()
    cores = machine.cores()
    options.core = cores.server
    first = options.loops[0]
    heads = ["peers", "iterations", *options.loops]
    heads += [f"{first} ÷ {other}, p99" for other in options.loops[1:]]
    print("| " + " | ".join(heads) + " |")
    print("| " + " | ".join(["---:"] * len(heads)) + " |", flush=True)
    os.sched_setaffinity(0, {cores.client})
    for peers in options.peers:
        for milliseconds in options.iterations:
            print(row(peers, milliseconds, options), flush=True)


if __name__ == "__main__":
    main()
