"""Descriptors over Unix streams: `send_fds()` of a transport, `fds_received()` of its protocol.

A pipe shows the open descriptors: its reader gets the end once no writing end is open.  After
each test the conftest checks that no descriptor is left.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import os
import socket
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ended
import pytest
import tls_tools
from protocols import BufferedRecorder, Made, Recorder, close_all, turns, until

SCENARIOS = Path(__file__).with_name("unix_descriptors_scenarios.py")

pytestmark = pytest.mark.goloop_only("asyncio's transports have no such method")

# Linux takes so many with one message.
MOST = 253


class Receiver(Recorder):
    """Notes the descriptors among the other calls, and keeps them."""

    def __init__(self) -> None:
        super().__init__()
        self.fds: list[int] = []

    def fds_received(self, fds: list[int]) -> None:
        self.calls.append(("fds", len(fds)))
        self.fds += fds

    def close_fds(self) -> None:
        while self.fds:
            os.close(self.fds.pop())


class BufferedReceiver(BufferedRecorder):
    def __init__(self) -> None:
        super().__init__(size=5)
        self.fds: list[tuple[int, int]] = []  # with the number of bytes before

    def fds_received(self, fds: list[int]) -> None:
        self.fds += [(len(self.data), fd) for fd in fds]


class Pipe:
    """A pipe whose writing ends are given away."""

    def __init__(self) -> None:
        self.reading, self.writing = os.pipe()
        os.set_blocking(self.reading, False)

    def give(self, transport: Any, data: bytes = b"x") -> None:
        """Sends its writing end; the own one is closed at once."""
        transport.send_fds(data, [self.writing])
        os.close(self.writing)

    def read(self) -> bytes:
        return os.read(self.reading, 100)

    def has_no_writer(self) -> bool:
        try:
            return self.read() == b""
        except BlockingIOError:
            return False


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    made = Pipe()
    yield made
    os.close(made.reading)


def rights(fds: list[int]) -> list[Any]:
    return [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]


async def with_peer(loop: Any, factory: Any = Receiver) -> tuple[Any, Any, socket.socket]:
    """A transport, its protocol, and the other end as a non-blocking socket."""
    near, far = socket.socketpair()
    far.setblocking(False)
    transport, protocol = await loop.create_unix_connection(factory, sock=near)
    return transport, protocol, far


async def end(transport: Any, protocol: Any, far: socket.socket | None = None) -> None:
    transport.close()
    await protocol.lost
    if far is not None:
        far.close()


async def chunks(loop: Any, far: socket.socket, size: int) -> tuple[bytearray, list[Any]]:
    """All bytes up to a size, and (begin, end, descriptors) of each receive that brought some."""
    data, found = bytearray(), []
    while len(data) < size:
        got, ancillary, flags, _ = await loop.sock_recvmsg(far, 100_000, socket.CMSG_SPACE(4000))
        assert got
        assert not flags & socket.MSG_CTRUNC
        fds = array.array("i", b"".join(each[2] for each in ancillary)).tolist()
        if fds:
            found.append((len(data), len(data) + len(got), fds))
        data += got
    return data, found


# ---- both ways -----------------------------------------------------------------------------------


async def test_descriptors_travel_both_ways_between_client_and_server(
    loop: Any, tmp_path: Path, pipe: Pipe
) -> None:
    accepted = Made(Receiver)
    server = await loop.create_unix_server(accepted, tmp_path / "s")
    transport, near = await loop.create_unix_connection(Receiver, tmp_path / "s")
    await until(lambda: accepted)
    far = accepted[0]
    await far.made
    transport.write(b"before")
    pipe.give(transport, b"with")
    transport.write(b"behind")
    await until(lambda: far.data == b"beforewithbehind")
    assert far.transport.get_extra_info("peername") == ""
    assert far.transport.get_extra_info("sockname") == str(tmp_path / "s")
    (copy,) = far.fds
    assert not os.get_inheritable(copy)
    # The kernel may join bytes before a message with it, never bytes after it.
    where = far.names().index("fds")
    assert far.calls[where + 1][1].startswith((b"with", b"beforewith"))
    far.transport.send_fds(b"back", iter([copy]))
    far.close_fds()
    await until(lambda: near.data == b"back")
    os.write(near.fds[0], b"through the pipe")
    assert pipe.read() == b"through the pipe"
    near.close_fds()
    assert pipe.has_no_writer()
    await end(transport, near)
    await far.lost
    await close_all(server)


async def test_descriptors_arrive_before_bytes_sent_after_them(loop: Any, pipe: Pipe) -> None:
    transport, near, far = await with_peer(loop)
    far.sendmsg([b"one"], rights([pipe.writing]))
    far.send(b"two")
    far.sendmsg([b"three"], rights([pipe.writing, pipe.writing]))
    far.send(b"four")
    os.close(pipe.writing)
    await until(lambda: near.data.endswith(b"four"))
    kinds = [(name, *rest) for name, *rest in near.calls[1:]]
    assert kinds == [
        ("fds", 1),
        ("data", b"one"),
        ("fds", 2),
        ("data", b"twothree" + b"four"),
    ]
    near.close_fds()
    assert pipe.has_no_writer()
    await end(transport, near, far)


async def test_buffered_protocol_gets_descriptors_before_its_bytes(loop: Any, pipe: Pipe) -> None:
    transport, near, far = await with_peer(loop, BufferedReceiver)
    far.sendmsg([b"abcdefgh"], rights([pipe.writing]))
    far.send(b"ijk")
    os.close(pipe.writing)
    await until(lambda: near.data == b"abcdefghijk")
    ((behind, fd),) = near.fds
    assert behind == 0
    os.close(fd)
    assert pipe.has_no_writer()
    await end(transport, near, far)


async def test_descriptors_travel_to_and_from_another_process(
    loop: Any, pipe: Pipe, tmp_path: Path
) -> None:
    transport, near, far = await with_peer(loop)
    child = subprocess.Popen(
        [sys.executable, SCENARIOS, "peer", str(far.fileno())], pass_fds=[far.fileno()]
    )
    far.close()
    with (tmp_path / "file").open("w+b") as file:
        file.write(b"a file")
        file.flush()
        transport.send_fds(b"take this", [pipe.writing, file.fileno()])
    os.close(pipe.writing)
    await until(lambda: near.data)
    assert near.data == b"and this"
    assert os.pread(near.fds[0], 100, 0) == b"a file"
    near.close_fds()
    assert pipe.read() == b"from the child"
    transport.write(b".")
    assert await loop.run_in_executor(None, child.wait) == 0
    assert pipe.has_no_writer()
    await end(transport, near)


# ---- a queue before them -------------------------------------------------------------------------


@pytest.mark.parametrize("lines", [False, True])
async def test_descriptors_keep_their_place_in_a_full_queue(
    loop: Any, pipe: Pipe, lines: bool
) -> None:
    transport, near, far = await with_peer(loop)
    expected = bytearray()
    places = []

    def write(data: bytes) -> None:
        transport.writelines([b"", data[:1], data[1:]]) if lines else transport.write(data)
        expected.extend(data)

    for index in range(6):
        write(bytes([index]) * 300_000)
        message = bytes([100 + index]) * (1 if index % 2 else 150_000)
        places.append((len(expected), len(expected) + len(message), index % 3 + 1))
        transport.send_fds(message, [pipe.writing] * (index % 3 + 1))
        expected.extend(message)
    write(b"the end")
    assert transport.get_write_buffer_size() > 1_000_000
    assert "pause" in near.names()
    os.close(pipe.writing)
    data, found = await chunks(loop, far, len(expected))
    assert data == expected
    assert len(found) == len(places)
    for (begin, finish, fds), (first, last, count) in zip(found, places, strict=True):
        assert begin <= first < finish <= last
        assert len(fds) == count
        for fd in fds:
            os.close(fd)
    assert "resume" in near.names()
    assert pipe.has_no_writer()
    await end(transport, near, far)


async def test_close_sends_and_abort_closes_queued_descriptors(loop: Any) -> None:
    for how in ("close", "abort"):
        pipe = Pipe()
        transport, near, far = await with_peer(loop)
        transport.write(bytes(1_000_000))
        pipe.give(transport, b"last")
        getattr(transport, how)()
        if how == "close":
            assert not pipe.has_no_writer()
            data, found = await chunks(loop, far, 1_000_004)
            assert data.endswith(b"last")
            os.close(found[0][2][0])
        await near.lost
        assert pipe.has_no_writer()
        os.close(pipe.reading)
        far.close()


async def test_queued_descriptors_are_closed_if_the_peer_disconnects(loop: Any, pipe: Pipe) -> None:
    transport, near, far = await with_peer(loop)
    transport.write(bytes(1_000_000))
    pipe.give(transport)
    far.close()
    assert isinstance(await near.lost, ConnectionError)
    assert pipe.has_no_writer()


async def test_descriptors_sent_after_sendfile_follow_the_file(
    loop: Any, pipe: Pipe, tmp_path: Path
) -> None:
    transport, near, far = await with_peer(loop)
    (tmp_path / "file").write_bytes(b"f" * 1_000_000)
    receiving = asyncio.ensure_future(chunks(loop, far, 1_000_008))
    transport.send_fds(b"one", [pipe.writing])
    with (tmp_path / "file").open("rb") as file:
        await loop.sendfile(transport, file)
    pipe.give(transport, b"three")
    data, found = await receiving
    assert data == b"one" + b"f" * 1_000_000 + b"three"
    (first, _, one), (_, last, two) = found
    assert (first, last) == (0, len(data))
    for fd in one + two:
        os.close(fd)
    assert pipe.has_no_writer()
    await end(transport, near, far)


def test_closed_loop_keeps_no_queued_descriptors(loop_factory: Any, pipe: Pipe) -> None:
    loop = loop_factory()
    transport, _, far = loop.run_until_complete(with_peer(loop))
    transport.write(bytes(1_000_000))
    pipe.give(transport)
    transport.abort()
    loop.run_until_complete(turns())
    loop.close()
    assert pipe.has_no_writer()
    far.close()


# ---- refused calls -------------------------------------------------------------------------------


async def test_wrong_calls_are_refused_and_send_nothing(loop: Any, pipe: Pipe) -> None:
    transport, near, far = await with_peer(loop)
    with pytest.raises(ValueError, match="data must have at least one byte"):
        transport.send_fds(b"", [pipe.writing])
    with pytest.raises(ValueError, match=f"at most {MOST} descriptors .*, got 254"):
        transport.send_fds(b"x", [pipe.writing] * (MOST + 1))
    with pytest.raises(TypeError, match="data argument must be a bytes"):
        transport.send_fds("x", [pipe.writing])
    # The ones before it are closed again.
    with pytest.raises(OSError, match="Bad file descriptor"):
        transport.send_fds(b"x", [pipe.writing, pipe.writing, 1_000_000])
    with pytest.raises(TypeError):
        transport.send_fds(b"x", [pipe.writing, "y"])
    transport.send_fds(memoryview(b"none"), [])
    transport.send_fds(bytearray(b"all"), [pipe.writing] * MOST)
    data, ((_, _, fds),) = await chunks(loop, far, 7)
    assert data == b"noneall"
    assert len(fds) == MOST
    for fd in fds:
        os.close(fd)
    transport.write_eof()
    with pytest.raises(RuntimeError, match="after write_eof"):
        transport.send_fds(b"x", [pipe.writing])
    await end(transport, near, far)
    transport, near, far = await with_peer(loop)
    await end(transport, near, far)
    pipe.give(transport, b"dropped, as by write()")
    assert pipe.has_no_writer()


async def test_send_fds_on_other_protocols_names_the_requirement(
    loop: Any, tmp_path: Path, pipe: Pipe
) -> None:
    # A protocol without the method.
    transport, near, far = await with_peer(loop, Recorder)
    with pytest.raises(TypeError, match="needs a protocol whose class has fds_received"):
        transport.send_fds(b"x", [pipe.writing])
    with pytest.raises(TypeError, match="needs a protocol whose class has fds_received"):
        transport.set_protocol(Receiver())
    assert transport.get_protocol() is near
    other = Recorder()
    transport.set_protocol(other)
    far.sendmsg([b"x"], rights([pipe.writing]))
    os.close(pipe.writing)
    await until(lambda: other.data == b"x")
    assert pipe.has_no_writer()  # the kernel has closed it
    await end(transport, other, far)
    # TCP, where a protocol that has the method may be used, too.
    async with await loop.create_server(Receiver, "127.0.0.1", 0) as server:
        address = server.sockets[0].getsockname()
        transport, near = await loop.create_connection(Receiver, *address)
        with pytest.raises(TypeError, match="only Unix streams can pass descriptors"):
            transport.send_fds(b"x", [0])
        other = Receiver()
        transport.set_protocol(other)
        await end(transport, other)
        await turns()


@pytest.mark.parametrize("later", [False, True])
async def test_tls_connections_carry_no_descriptors(loop: Any, tmp_path: Path, later: bool) -> None:
    made = Made(Receiver)
    server = await loop.create_unix_server(made, tmp_path / "s", ssl=tls_tools.server_context())
    context: ssl.SSLContext = tls_tools.client_context()
    if later:
        transport, near = await loop.create_unix_connection(Receiver, tmp_path / "s")
        below = transport
        transport = await loop.start_tls(below, near, context, server_hostname="localhost")
        with pytest.raises(TypeError, match="TLS connections cannot pass descriptors"):
            below.send_fds(b"x", [0])
    else:
        transport, near = await loop.create_unix_connection(
            Receiver, tmp_path / "s", ssl=context, server_hostname="localhost"
        )
    with pytest.raises(TypeError, match="TLS connections cannot pass descriptors"):
        transport.send_fds(b"x", [0])
    transport.write(b"by TLS")
    await until(lambda: made and made[0].data == b"by TLS")
    await end(transport, near)
    await made[0].lost
    await close_all(server)


# ---- protocols that change, pause, close and fail ------------------------------------------------


async def test_protocol_without_fds_received_loses_descriptors(loop: Any, pipe: Pipe) -> None:
    transport, _, far = await with_peer(loop)
    plain = Recorder()
    transport.set_protocol(plain)
    far.sendmsg([b"a"], rights([pipe.writing]))
    await until(lambda: plain.data == b"a")
    last = Receiver()
    transport.set_protocol(last)
    far.sendmsg([b"b"], rights([pipe.writing]))
    os.close(pipe.writing)
    await until(lambda: last.data == b"b")
    assert len(last.fds) == 1
    last.close_fds()
    assert pipe.has_no_writer()  # also the first one
    await end(transport, last, far)


async def test_paused_connection_leaves_descriptors_in_the_kernel(loop: Any, pipe: Pipe) -> None:
    transport, near, far = await with_peer(loop)
    await near.made
    transport.pause_reading()
    far.sendmsg([b"a"], rights([pipe.writing]))
    await turns(5)
    assert near.fds == []
    transport.resume_reading()
    await until(lambda: near.data == b"a")
    near.close_fds()
    transport.pause_reading()
    far.sendmsg([b"b"], rights([pipe.writing]))
    os.close(pipe.writing)
    assert not pipe.has_no_writer()
    await end(transport, near, far)
    assert pipe.has_no_writer()


async def test_pause_within_fds_received_delays_later_bytes(loop: Any, pipe: Pipe) -> None:
    class Pausing(Receiver):
        def fds_received(self, fds: list[int]) -> None:
            super().fds_received(fds)
            self.transport.pause_reading()

    transport, near, far = await with_peer(loop, Pausing)
    far.sendmsg([b"first"], rights([pipe.writing]))
    far.send(b"second")
    os.close(pipe.writing)
    await until(lambda: near.data)
    await turns(5)
    assert near.data == b"first"
    transport.resume_reading()
    await until(lambda: near.data == b"firstsecond")
    near.close_fds()
    await end(transport, near, far)


@pytest.mark.parametrize("how", ["close", "abort", BlockingIOError, LookupError])
async def test_no_bytes_follow_where_fds_received_ends_the_connection(
    loop: Any, pipe: Pipe, errors: Any, how: Any
) -> None:
    class Ending(Receiver):
        def fds_received(self, fds: list[int]) -> None:
            super().fds_received(fds)
            if not isinstance(how, str):
                raise how("of the protocol's own")
            getattr(self.transport, how)()

    _, near, far = await with_peer(loop, Ending)
    far.sendmsg([b"x"], rights([pipe.writing]))
    lost = await near.lost
    assert near.names() == ["made", "fds", "lost"]
    if isinstance(how, str):
        assert lost is None
    else:
        assert isinstance(lost, how)
    if how is LookupError:  # an OSError is not reported
        errors.expect(LookupError, "protocol.fds_received() call failed")
    near.close_fds()
    far.close()
    os.close(pipe.writing)


# ---- hostile peers -------------------------------------------------------------------------------


async def test_as_many_as_a_peer_can_send_are_all_handed_out(loop: Any, pipe: Pipe) -> None:
    class Closing(Receiver):
        def fds_received(self, fds: list[int]) -> None:
            super().fds_received(fds)
            self.close_fds()

    transport, near, far = await with_peer(loop, Closing)
    for _ in range(30):
        far.sendmsg([b"x"], rights([pipe.writing] * MOST))
    os.close(pipe.writing)
    await until(lambda: near.data == b"x" * 30)
    assert [call for call in near.calls if call[0] == "fds"] == [("fds", MOST)] * 30
    assert pipe.has_no_writer()
    await end(transport, near, far)


async def test_credentials_and_pidfds_are_not_passed_to_the_protocol(loop: Any, pipe: Pipe) -> None:
    transport, near, far = await with_peer(loop)
    sock = transport.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, 76, 1)  # SO_PASSPIDFD, which an old kernel has not
    far.sendmsg([b"x"], rights([pipe.writing] * MOST))
    far.send(b"y")
    os.close(pipe.writing)
    await until(lambda: near.data == b"xy")
    assert len(near.fds) == MOST
    near.close_fds()
    assert pipe.has_no_writer()
    await end(transport, near, far)


def test_process_without_free_descriptors_closes_received_ones_and_the_connection() -> None:
    assert ended.passes(SCENARIOS, "received_ones_are_closed_without_free_numbers") == "done\n"


def test_cancelled_server_closes_received_descriptors(loop_factory: Any, pipe: Pipe) -> None:
    """Descriptors that a task has not yet taken out of the protocol belong to the protocol."""

    class WithFds(asyncio.StreamReaderProtocol):
        def fds_received(self, fds: list[int]) -> None:
            self.fds = fds

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            for fd in self.fds:
                os.close(fd)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            assert await reader.readexactly(1) == b"x"
            await reader.read()
        finally:
            writer.close()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        tasks = []
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "s")

            def make() -> WithFds:
                return WithFds(
                    asyncio.StreamReader(),
                    lambda reader, writer: tasks.append(loop.create_task(serve(reader, writer))),
                )

            server = await loop.create_unix_server(make, path)
            transport, near = await loop.create_unix_connection(Receiver, path)
            pipe.give(transport)
            await until(lambda: tasks)
            await turns(5)
            tasks[0].cancel()
            await near.lost
            await asyncio.wait(tasks)
            await until(pipe.has_no_writer)
            server.close()
            await server.wait_closed()

    loop = loop_factory()
    try:
        loop.run_until_complete(main())
    finally:
        loop.close()
