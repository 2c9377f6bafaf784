"""Pending writes are sent during a long callback: goloop's monitor sends them.

asyncio sends within write(); goloop sends at the end of the iteration, and in a long one
from a thread of Go's, even while Python code runs.
"""

from __future__ import annotations

import asyncio
import ctypes
import hashlib
import os
import random
import select
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ended
import pytest
from protocols import Made, Recorder, close_all, turns

Loop = asyncio.AbstractEventLoop

PATIENCE = 60.0  # seconds; far longer than any test takes

POLLIN = 1


class PollFD(ctypes.Structure):
    """struct pollfd."""

    _fields_ = (("fd", ctypes.c_int), ("events", ctypes.c_short), ("revents", ctypes.c_short))


def blocks_in_recv(client: socket.socket) -> None:
    """In the loop's own thread, without the GIL."""
    client.settimeout(PATIENCE)
    client.recv(1, socket.MSG_PEEK)


def computes(client: socket.socket) -> None:
    """Python code that never stops, until there is something."""
    end = time.monotonic() + PATIENCE
    client.setblocking(False)
    while time.monotonic() < end:
        try:
            client.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            continue
        return


def waits_in_c_with_the_gil(client: socket.socket) -> None:
    """No other Python thread runs meanwhile."""
    poll = PollFD(client.fileno(), POLLIN, 0)
    ctypes.PyDLL(None).poll(ctypes.byref(poll), 1, int(PATIENCE * 1000))


WAYS = [blocks_in_recv, computes, waits_in_c_with_the_gil]


def received(client: socket.socket) -> bytes:
    """Return the available bytes, without waiting."""
    client.setblocking(False)
    try:
        return client.recv(1 << 20)
    except BlockingIOError:
        return b""


async def accepted(loop: Loop, protocol: Callable[[], Any]) -> tuple[Any, socket.socket]:
    """Make a server of one connection, and its client's socket; the server's is not exposed."""
    server = await loop.create_server(protocol, "127.0.0.1", 0)
    client = socket.create_connection(server.sockets[0].getsockname())
    return server, client


@pytest.mark.parametrize("way", WAYS)
async def test_written_bytes_arrive_during_a_long_callback(
    loop: Loop, way: Callable[[socket.socket], None]
) -> None:
    made: list[Recorder] = []

    def factory() -> Recorder:
        made.append(Recorder())
        return made[0]

    server, client = await accepted(loop, factory)
    while not made:
        await asyncio.sleep(0)
    await made[0].made
    await turns(3)
    transport: Any = made[0].transport
    for message in (b"one", b"two", b"three"):
        transport.write(message[:1])
        transport.write(message[1:])
        way(client)
        assert received(client) == message
        assert transport.get_write_buffer_size() == 0
        await asyncio.sleep(0)
    transport.write(b"and what is written behind it")
    transport.close()
    await made[0].lost
    client.settimeout(PATIENCE)
    assert client.recv(1000) == b"and what is written behind it"
    assert client.recv(1000) == b""
    client.close()
    await close_all(server)


@pytest.mark.parametrize("way", WAYS)
async def test_bytes_written_by_connection_made_arrive_during_a_long_callback(
    loop: Loop, way: Callable[[socket.socket], None]
) -> None:
    done = loop.create_future()
    clients: list[socket.socket] = []

    class Greets(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            assert isinstance(transport, asyncio.Transport)
            transport.write(b"hello")
            way(clients[0])
            done.set_result((received(clients[0]), transport))

    server, client = await accepted(loop, Greets)
    clients.append(client)
    greeting, transport = await done
    assert greeting == b"hello"
    transport.abort()
    await turns(3)
    client.close()
    await close_all(server)


async def test_datagrams_and_pipe_bytes_arrive_during_a_long_callback(loop: Loop) -> None:
    reading, writing = os.pipe()
    transport, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, os.fdopen(writing, "wb", 0))
    transport.write(b"pipe")
    assert select.select([reading], [], [], PATIENCE)[0]
    assert os.read(reading, 100) == b"pipe"
    transport.close()
    await turns(3)
    os.close(reading)


async def test_tls_bytes_arrive_during_a_long_callback(loop: Loop, tmp_path: Path) -> None:
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    subprocess.run(
        "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost"
        f" -keyout {key} -out {cert}".split(),
        check=True,
        capture_output=True,
    )
    served, trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    served.load_cert_chain(cert, key)
    trusting.check_hostname = False
    trusting.verify_mode = ssl.CERT_NONE
    protocol = Recorder()
    server = await loop.create_server(lambda: protocol, "127.0.0.1", 0, ssl=served)
    plain = socket.create_connection(server.sockets[0].getsockname())
    client = await asyncio.to_thread(trusting.wrap_socket, plain)
    await protocol.made
    await asyncio.sleep(0.01)
    client.settimeout(PATIENCE)
    protocol.transport.write(b"secret")  # type: ignore[union-attr]
    assert client.recv(100) == b"secret"  # blocks the loop's thread
    protocol.transport.abort()  # type: ignore[union-attr]
    await protocol.lost
    client.close()
    await close_all(server)


async def test_every_byte_arrives_once_and_in_order(loop: Loop, loop_name: str) -> None:
    """A callback writes, pauses, ends while the monitor sends, for some thousand times."""
    chance = random.Random(3)
    made = Made()
    server = await loop.create_server(made, "127.0.0.1", 0)
    address = server.sockets[0].getsockname()
    for _ in range(6):
        client = socket.create_connection(address)
        seen = hashlib.sha256()
        lengths: list[int] = []

        def drain(
            client: socket.socket = client, seen: Any = seen, lengths: list[int] = lengths
        ) -> None:
            while data := client.recv(1 << 16):
                seen.update(data)
                lengths.append(len(data))

        reader = threading.Thread(target=drain)
        reader.start()
        count = len(made)
        while len(made) == count:
            await asyncio.sleep(0)
        protocol = made[-1]
        await protocol.made
        transport: Any = protocol.transport
        sent, total = hashlib.sha256(), 0
        for _ in range(40):
            end = time.monotonic() + 0.004
            while time.monotonic() < end:
                data = chance.randbytes(chance.choice((1, 10, 1000, 5000)))
                if chance.random() < 0.2:
                    pieces = [data[:3], data[3:]]
                    # asyncio sends for ever an empty one that is the last in its buffer.
                    if loop_name == "asyncio":
                        pieces = [piece for piece in pieces if piece]
                    transport.writelines(pieces)
                else:
                    transport.write(data)
                sent.update(data)
                total += len(data)
                if chance.random() < 0.01:
                    time.sleep(0.0015)
            loop.call_later(0.0001, int)
            if chance.random() < 0.5:
                await asyncio.sleep(0)
        transport.close()
        await protocol.lost
        while reader.is_alive():
            await asyncio.sleep(0.001)
        reader.join()
        assert sum(lengths) == total
        assert seen.digest() == sent.digest()
        client.close()
    await close_all(server)


GOLOOP_ONLY = """
import asyncio, os, socket, sys, time
import goloop
PATIENCE = 60

def monitor():
    # The thread of the monitor, and how often it has been put to sleep.
    for tid in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{tid}/status") as file:
            fields = dict(line.split(":", 1) for line in file)
        if fields["Name"].strip() == "goloop-monitor":
            return int(fields["voluntary_ctxt_switches"])
    return None
"""


def passes(program: str, *, expect: int = 0) -> str:
    """Runs a program that must end as expected."""
    done = ended.python("-X", "faulthandler", "-c", GOLOOP_ONLY + program, limit=100)
    assert done.returncode == expect, f"ended with {done.returncode}\n{done.stdout}"
    return done.stdout


linux_only = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@linux_only
def test_the_monitor_sleeps_while_all_loops_do() -> None:
    passes(
        """
async def main():
    await asyncio.sleep(0.2)          # it parks some milliseconds after the last turn
    before = monitor()
    time_is_up = asyncio.get_running_loop().create_future()
    other = goloop.new_event_loop()   # neither does a loop that does not run keep it awake
    asyncio.get_running_loop().call_later(0.5, time_is_up.set_result, before)
    await time_is_up
    # While the loop waited, at most the ticks around its two ends.
    assert monitor() - before < 40, monitor() - before
    end = time.monotonic() + 20
    before = monitor()
    while monitor() - before <= 20 and time.monotonic() < end:
        pass
    assert monitor() - before > 20, monitor() - before  # at work again: 60 in 0.2 s of a free core
    other.close()

goloop.run(main())
"""
    )


def test_monitor_rarely_wakes_for_a_loop_with_short_callbacks() -> None:
    passes(
        """
TICK = 0.0017

async def busy(seconds, long):
    # Ticks of the monitor while the loop turns, as a part of those that fit into the time.
    begun, before = time.monotonic(), monitor()
    while (spent := time.monotonic() - begun) < seconds:
        if long:
            writer.write(b"x")     # sent at once; later writes of the iteration wait
            writer.write(b"y")
            time.sleep(0.004)      # it is sent by the monitor
        await asyncio.sleep(0)
    return (monitor() - before) / (spent / TICK)

async def discard(reader, answers):
    while await reader.read(100):
        pass
    answers.close()

async def main():
    global writer
    async with await asyncio.start_server(discard, "127.0.0.1", 0) as server:
        _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        while monitor() is None:       # on a busy machine its thread begins late
            await asyncio.sleep(0.01)
        # A quarter in the end. Where others take the core, it looks as if the loop slept, so
        # only times in succession that the loop had for itself tell against the monitor.
        end, alone = time.monotonic() + 20, 0
        while time.monotonic() < end:
            begun, used = time.monotonic(), time.thread_time()
            part = await busy(0.5, False)
            if part <= 0.7:
                break
            quiet = time.thread_time() - used > 0.98 * (time.monotonic() - begun)
            alone = alone + 1 if quiet else 0
            if alone == 5:
                os._exit(9)
        loop = asyncio.get_running_loop()
        sent = loop.metrics().late_writes
        await busy(0.2, True)
        late = loop.metrics().late_writes - sent
        writer.close()
        await writer.wait_closed()
    assert late > 0

goloop.run(main())
"""
    )


def test_thousands_of_loops_leave_no_entry_in_the_monitor() -> None:
    passes(
        """
async def main():
    left, right = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=left)
    writer.write(b"x")
    time.sleep(0.0005)
    writer.close()
    await writer.wait_closed()
    assert right.recv(10) == b"x"
    right.close()

for _ in range(1000):
    goloop.run(main())
"""
    )


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_child_that_is_forked_while_the_monitor_sends_has_its_own() -> None:
    passes(
        """
import ctypes, gc, signal, sysconfig, warnings
warnings.simplefilter("ignore")
fork_in_c = ctypes.PyDLL(None).fork
without_gil = sysconfig.get_config_var("Py_GIL_DISABLED")

class Echo(asyncio.Protocol):
    def connection_made(self, transport):
        transports.append(transport)

async def child():
    global transports
    transports = []
    await main(0)

async def main(forks):
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Echo, "127.0.0.1", 0)
    client = socket.create_connection(server.sockets[0].getsockname())
    client.settimeout(PATIENCE)
    while not transports:
        await asyncio.sleep(0)
    mine = transports.pop()
    for n in range(forks):
        mine.write(b"x" * 100)
        end = time.monotonic() + n % 7 * 0.0004
        while time.monotonic() < end:
            pass
        pid = fork_in_c() if n % 2 else os.fork()
        if pid == 0:
            signal.alarm(30)
            code = 1
            # C's fork tells CPython nothing: without a GIL the collector would wait for
            # threads that are gone.
            collects = n % 2 == 0 or not without_gil
            if not collects:
                gc.disable()
            try:
                # Its parent's may be looked at and dropped.
                mine.get_write_buffer_size()
                mine = None
                if collects:
                    gc.collect()
                if n % 2 == 0:  # C's fork leaves CPython in the middle of the task
                    asyncio._set_running_loop(None)
                    goloop.run(child())
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(pid, 0)[1] == 0, n
    mine.write(b"end")
    got = b""
    while len(got) < 100 * forks + 3:
        got += client.recv(65536)
    assert got == b"x" * 100 * forks + b"end"
    mine.abort()
    client.close()
    server.close()

transports = []
goloop.run(main(40))
"""
    )


# A filter of system calls, for all threads of the process that there are.
REFUSE_MEMBARRIER = """
import ctypes, platform, struct
# BPF: membarrier(2) is EPERM, everything else is allowed.
number, seccomp = {"x86_64": (324, 317), "aarch64": (283, 277)}[platform.machine()]
program = b"".join(
    struct.pack("=HBBI", *each)
    for each in ((0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, 0x00050001),
                 (0x06, 0, 0, 0x7FFF0000))
)
buffer = ctypes.create_string_buffer(program, len(program))
class Prog(ctypes.Structure):
    _fields_ = [("len", ctypes.c_ushort), ("filter", ctypes.c_void_p)]
libc = ctypes.CDLL(None, use_errno=True)
prog = Prog(4, ctypes.addressof(buffer))
def refuse():
    assert libc.prctl(38, 1, 0, 0, 0) == 0
    assert libc.syscall(seccomp, 1, 1, ctypes.byref(prog)) == 0, ctypes.get_errno()
    assert libc.syscall(number, 0, 0, 0) == -1
"""


@linux_only
@pytest.mark.parametrize("when", ["at the start", "later on"])
def test_without_membarrier_there_are_fences(when: str) -> None:
    """The monitor sends nothing from when it is refused until C has said that it has fences."""
    passes(
        REFUSE_MEMBARRIER
        + f"late = {when == 'later on'}\n"
        + """
if not late:
    refuse()
made = []
class Keep(asyncio.Protocol):
    def connection_made(self, transport):
        made.append(transport)

def write(data):
    # In pieces: they leave together, and not within write().
    made[0].write(data[:1])
    made[0].write(data[1:])

async def main():
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Keep, "127.0.0.1", 0)
    client = socket.create_connection(server.sockets[0].getsockname())
    client.settimeout(PATIENCE)
    while not made:
        await asyncio.sleep(0)
    def fences():
        return goloop.diagnostics(loop)["loop"]["fences"]
    assert fences() == (0 if late else 2)
    write(b"first")
    assert client.recv(100) == b"first"
    if late:
        assert fences() == 0
        refuse()
        # The monitor is refused, which it learns when it wants to send; so is this one.
        while fences() == 0:
            write(b"..")
            time.sleep(0.003)
            await asyncio.sleep(0)
        write(b"..")
        assert fences() == 2
        await asyncio.sleep(0)
        assert set(client.recv(100000)) == set(b".")
    # The monitor counts what it has sent, and may lose the processor between the two; the turn
    # waits for it.
    await asyncio.sleep(0)
    sent = loop.metrics().late_writes
    for n in range(200):
        write(b"n%d" % n)
        assert client.recv(100) == b"n%d" % n
        await asyncio.sleep(0)
    assert loop.metrics().late_writes - sent == 200
    made[0].abort()
    client.close()
    server.close()

goloop.run(main())
"""
    )


def test_bytes_sent_within_write_are_not_late_writes() -> None:
    passes(
        """
class Answers(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport = transport
    def data_received(self, data):
        self.transport.write(data)
        if data == b"long":
            time.sleep(0.05)
        answered.append(data)

answered = []

async def main():
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Answers, "127.0.0.1", 0)
    address = server.sockets[0].getsockname()
    clients = [socket.create_connection(address) for _ in range(2)]
    await asyncio.sleep(0.1)
    for message in [b"short"] + [b"long"] * 5:
        for client in clients:
            client.send(message)
        while len(answered) < 2:
            await asyncio.sleep(0)
        answered.clear()
    for client in clients:
        client.close()
    server.close()
    assert loop.metrics().late_writes == 0

goloop.run(main())
"""
    )


async def test_lost_peer_is_reported_after_the_callback(loop: Loop) -> None:
    protocol = Recorder()
    server, client = await accepted(loop, lambda: protocol)
    await protocol.made
    await turns(3)
    transport: Any = protocol.transport
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    client.close()  # a reset
    for _ in range(3):
        transport.write(b"x")
        time.sleep(0.005)
        assert not protocol.lost.done()
    with pytest.raises(ConnectionError):
        raise await asyncio.wait_for(asyncio.shield(protocol.lost), PATIENCE) or OSError
    await close_all(server)


@linux_only
def test_threads_have_names() -> None:
    passes(
        """
async def main():
    loop = asyncio.get_running_loop()
    await loop.getaddrinfo("localhost", 80)
    end = time.monotonic() + 60
    while True:
        names = []
        for tid in os.listdir("/proc/self/task"):
            with open(f"/proc/self/task/{tid}/comm") as file:
                names.append(file.read().strip())
        if "goloop-monitor" in names or time.monotonic() > end:
            break
        await asyncio.sleep(0.01)  # a thread names itself
    assert names.count("goloop-monitor") == names.count("goloop-resolve") == 1, names
    assert names.count("goloop-go") >= 3, names

goloop.run(main())
"""
    )
