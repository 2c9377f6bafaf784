"""Pipe transports: both ends of pipes, FIFOs, sockets, terminals and devices."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import gc
import hashlib
import io
import logging
import os
import socket
import tempfile
import warnings
from pathlib import Path
from typing import Any

import pytest
from conftest import tcp_pair
from protocols import HaltingRecorder, Recorder, close_each, failing, receive_all, turns, until

Loop = asyncio.AbstractEventLoop


async def read_end(loop: Loop, fd: int, factory: Any = Recorder) -> tuple[Any, Any]:
    return await loop.connect_read_pipe(factory, os.fdopen(fd, "rb", 0))


async def write_end(loop: Loop, fd: int, factory: Any = Recorder) -> tuple[Any, Any]:
    return await loop.connect_write_pipe(factory, os.fdopen(fd, "wb", 0))


async def both_ends(loop: Loop) -> tuple[Any, Any, Any, Any]:
    reading, writing = os.pipe()
    source, reader = await read_end(loop, reading)
    sink, writer = await write_end(loop, writing)
    return source, reader, sink, writer


# ---- data ----------------------------------------------------------------------------


async def test_every_byte_goes_from_end_to_end(loop: Loop) -> None:
    source, reader, sink, writer = await both_ends(loop)
    data = bytes(range(256)) * 4000
    sink.write(data)
    sink.write_eof()
    assert await reader.lost is None
    assert reader.data == data
    assert reader.names() == ["made", "data", "eof", "lost"]
    assert await writer.lost is None
    assert source.is_closing()
    assert sink.is_closing()


async def test_every_byte_arrives_in_pieces_of_every_size(loop: Loop) -> None:
    """Far more than a pipe holds, so that it is enlarged on the way."""
    source, reader, sink, writer = await both_ends(loop)
    expected = hashlib.sha256()
    piece = os.urandom(1 << 18)
    for round_ in range(60):
        part = piece[: (round_ * 4099) % len(piece)]
        expected.update(part)
        sink.write(part)
        if sink.get_write_buffer_size() > 1 << 20:
            await until(lambda: sink.get_write_buffer_size() == 0)
    sink.close()
    assert await writer.lost is None
    assert await reader.lost is None
    assert hashlib.sha256(reader.data).digest() == expected.digest()
    assert source.is_closing()


@pytest.mark.parametrize("kind", [bytearray, memoryview])
async def test_every_kind_of_bytes_is_written(loop: Loop, kind: Any) -> None:
    _, reader, sink, _ = await both_ends(loop)
    sink.write(kind(b"one "))
    sink.writelines([kind(b"two "), b"three"])
    sink.write(b"")
    sink.close()
    await reader.lost
    assert reader.data == b"one two three"


async def test_mutable_buffer_may_change_after_write(loop: Loop) -> None:
    _, reader, sink, _ = await both_ends(loop)
    data = bytearray(b"a" * 300_000)
    sink.write(data)
    data[:] = b"b" * len(data)
    sink.close()
    await reader.lost
    assert set(reader.data) == {ord("a")}


# ---- errors of the kernel within write() -----------------------------------------------


@pytest.mark.parametrize("size", [1, 70_000])
@pytest.mark.parametrize("then", ["close", "write_eof", "abort"])
async def test_refused_bytes_are_known_after_write(
    loop: Loop, size: int, then: str, errors: Any
) -> None:
    """The refused bytes count neither as sent nor as pending."""
    reading, writing = os.pipe()
    sink, writer = await write_end(loop, writing)
    os.close(reading)
    sink.write(bytes(size))
    assert sink.is_closing()
    assert sink.get_write_buffer_size() == 0
    getattr(sink, then)()
    lost = await writer.lost
    assert (type(lost), lost.errno) == (BrokenPipeError, errno.EPIPE)
    assert writer.names() == ["made", "lost"]
    await turns()
    errors.contexts.clear()  # asyncio's abort() loses the connection twice


async def test_drain_raises_for_a_full_device(loop: Loop) -> None:
    full = os.fdopen(os.open("/dev/full", os.O_WRONLY), "wb", 0)
    transport, protocol = await loop.connect_write_pipe(
        lambda: asyncio.streams.FlowControlMixin(loop), full
    )
    writer = asyncio.StreamWriter(transport, protocol, None, loop)
    writer.write(b"x")
    with pytest.raises(ConnectionResetError):
        await writer.drain()
    await turns()
    assert full.closed


async def test_a_view_in_pieces_is_fatal(loop: Loop, errors: Any) -> None:
    _, reader, sink, writer = await both_ends(loop)
    sink.write(memoryview(b"abcdef")[::2])
    assert isinstance(await writer.lost, BufferError)
    errors.expect(BufferError, "Fatal write error on pipe transport")
    await reader.lost


async def test_a_blocking_pipe_is_made_nonblocking(loop: Loop) -> None:
    reading, writing = os.pipe()
    source, reader = await read_end(loop, reading)
    assert not os.get_blocking(reading)
    os.close(writing)
    await reader.lost
    source.close()


# ---- the end -------------------------------------------------------------------------


async def test_the_end_loses_the_reader_in_one_iteration_though_eof_received_is_true(
    loop: Loop,
) -> None:
    """asyncio ignores the result for pipes; both calls come in one iteration, in this order."""
    reading, writing = os.pipe()
    source, reader = await read_end(loop, reading)
    reader.keep_open = True
    os.close(writing)
    await reader.eof
    assert source.is_closing()
    assert reader.calls == [("made",), ("eof",), ("lost", None)]


async def test_closed_reading_end_loses_the_writer(loop: Loop) -> None:
    reading, writing = os.pipe()
    sink, writer = await write_end(loop, writing)
    await turns()
    os.close(reading)
    assert await writer.lost is None
    assert sink.is_closing()
    assert writer.names() == ["made", "lost"]


@pytest.mark.parametrize("closing", [False, True])
async def test_lost_reader_ends_a_writer_with_pending_data(loop: Loop, closing: bool) -> None:
    reading, writing = os.pipe()
    sink, writer = await write_end(loop, writing)
    sink.write(b"x" * 1_000_000)
    if closing:
        sink.write_eof()
    await turns()
    assert sink.get_write_buffer_size() > 0
    os.close(reading)
    assert isinstance(await writer.lost, BrokenPipeError)
    assert sink.get_write_buffer_size() == 0


async def test_writing_to_a_pipe_without_a_reader_ends_the_writer(loop: Loop) -> None:
    reading, writing = os.pipe()
    sink, writer = await write_end(loop, writing)
    await turns()
    os.close(reading)
    sink.write(b"x")  # before the loop has seen it
    exc = await writer.lost
    assert exc is None or isinstance(exc, BrokenPipeError)


async def test_late_writes_are_dropped_and_logged(
    loop: Loop, caplog: pytest.LogCaptureFixture
) -> None:
    _, reader, sink, writer = await both_ends(loop)
    sink.close()
    for _ in range(5):
        sink.write(b"late")
    assert not caplog.records
    sink.write(b"late")
    assert [record.message for record in caplog.records] == [
        "pipe closed by peer or os.write(pipe, data) raised exception."
    ]
    await writer.lost
    await reader.lost
    assert reader.data == b""


async def test_write_eof_closes_when_all_is_sent(loop: Loop) -> None:
    reading, writing = os.pipe()
    sink, writer = await write_end(loop, writing)
    data = b"y" * 500_000
    sink.write(data)
    assert sink.can_write_eof()
    sink.write_eof()
    sink.write_eof()
    sink.close()
    assert sink.is_closing()
    await turns()
    assert not writer.lost.done()
    source, reader = await read_end(loop, reading)
    assert await writer.lost is None
    await reader.lost
    assert reader.data == data
    assert source.is_closing()


@pytest.mark.parametrize("closing", [False, True])
async def test_abort_drops_pending_bytes_at_once(loop: Loop, closing: bool) -> None:
    reading, writing = os.pipe()
    sink, writer = await write_end(loop, writing)
    sink.write(b"z" * 1_000_000)
    if closing:
        sink.close()
    await turns()
    assert not writer.lost.done()
    sink.abort()
    assert sink.get_write_buffer_size() == 0
    assert await writer.lost is None
    os.close(reading)


class CountingFile(io.FileIO):
    """Counts how often it is closed."""

    closes = 0

    def close(self) -> None:
        if not self.closed:
            self.closes += 1
        super().close()


async def test_the_pipe_object_is_closed_once_and_last(loop: Loop) -> None:
    reading, writing = os.pipe()
    ours = CountingFile(reading, "rb")
    theirs = CountingFile(writing, "wb")

    class Looking(Recorder):
        def connection_lost(self, exc: Exception | None) -> None:
            assert not self.transport.get_extra_info("pipe").closed
            super().connection_lost(exc)

    source, reader = await loop.connect_read_pipe(Looking, ours)
    sink, writer = await loop.connect_write_pipe(Looking, theirs)
    sink.close()
    await writer.lost
    await reader.lost
    await turns()
    close_each(source, sink)
    await turns()
    assert (ours.closes, theirs.closes) == (1, 1)


async def test_close_of_the_reading_end_is_reported_once(loop: Loop) -> None:
    source, reader, _sink, writer = await both_ends(loop)
    close_each(source, source)
    assert source.is_closing()
    assert await reader.lost is None
    assert reader.names() == ["made", "lost"]
    await writer.lost


# ---- protocols that raise --------------------------------------------------------------


async def test_exception_of_data_received_is_reported_and_reading_continues(
    loop: Loop, errors: Any
) -> None:
    class Failing(Recorder):
        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if len(self.data) == 1:
                raise ZeroDivisionError

    reading, writing = os.pipe()
    _, reader = await read_end(loop, reading, Failing)
    os.write(writing, b"1")
    await until(lambda: errors.contexts)
    errors.expect(ZeroDivisionError, "Exception in callback")
    os.write(writing, b"2")
    os.close(writing)
    assert await reader.lost is None
    assert reader.data == b"12"


async def test_an_exception_of_connection_lost_is_reported(loop: Loop, errors: Any) -> None:
    reading, writing = os.pipe()
    source, reader = await read_end(loop, reading, failing("connection_lost"))
    source.close()
    await reader.lost
    await turns()
    errors.expect(ZeroDivisionError)
    os.close(writing)


# ---- flow control -------------------------------------------------------------------------


async def test_pause_reading_holds_data_until_resume_reading(loop: Loop) -> None:
    reading, writing = os.pipe()
    source, reader = await read_end(loop, reading)
    assert source.is_reading()
    source.pause_reading()
    source.pause_reading()
    assert not source.is_reading()
    os.write(writing, b"held back")
    await turns(5)
    assert reader.data == b""
    source.resume_reading()
    source.resume_reading()
    await until(lambda: reader.data == b"held back")
    source.pause_reading()
    os.close(writing)
    await turns(5)
    assert reader.names() == ["made", "data"]
    source.resume_reading()
    assert await reader.lost is None
    assert not source.is_reading()


async def test_pause_within_data_received_loses_no_data(loop: Loop) -> None:
    reading, writing = os.pipe()
    _, reader = await read_end(loop, reading, HaltingRecorder)
    sink, writer = await write_end(loop, writing)
    data = os.urandom(700_000)
    sink.write(data)
    sink.close()
    assert await reader.lost is None
    assert await writer.lost is None
    assert reader.data == data


async def test_the_writer_is_paused_and_resumed(loop: Loop) -> None:
    reading, writing = os.pipe()
    sink, writer = await write_end(loop, writing)
    assert sink.get_write_buffer_limits() == (16384, 65536)
    sink.set_write_buffer_limits(high=1000, low=10)
    sink.write(b"x" * 500_000)
    assert writer.names() == ["made", "pause"]
    assert sink.get_write_buffer_size() > 1000
    _, reader = await read_end(loop, reading)
    await until(lambda: writer.names() == ["made", "pause", "resume"])
    assert sink.get_write_buffer_size() <= 10
    sink.close()
    await reader.lost
    assert len(reader.data) == 500_000


# ---- kinds of pipes ------------------------------------------------------------------------


async def test_regular_files_are_refused(loop: Loop) -> None:
    with tempfile.TemporaryFile() as file:
        with pytest.raises(ValueError, match=r"Pipe transport is for pipes/sockets only\."):
            await loop.connect_read_pipe(Recorder, file)
        with pytest.raises(
            ValueError, match="Pipe transport is only for pipes, sockets and character devices"
        ):
            await loop.connect_write_pipe(Recorder, file)
        assert not file.closed
        gc.collect()
        assert not file.closed


async def test_a_fifo_carries_data(loop: Loop, tmp_path: Path) -> None:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    reading = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    writing = os.open(path, os.O_WRONLY)
    _, reader = await read_end(loop, reading)
    sink, writer = await write_end(loop, writing)
    sink.write(b"through a fifo")
    sink.close()
    await writer.lost
    assert await reader.lost is None
    assert reader.data == b"through a fifo"


async def test_sockets_serve_as_pipes(loop: Loop) -> None:
    near, far = socket.socketpair()
    source, reader = await loop.connect_read_pipe(Recorder, near)
    sink, writer = await loop.connect_write_pipe(Recorder, far)
    assert source.get_extra_info("pipe") is near
    sink.write(b"s" * 300_000)
    sink.write_eof()
    assert await reader.lost is None
    assert len(reader.data) == 300_000
    await writer.lost
    assert near.fileno() == far.fileno() == -1


async def test_incoming_bytes_on_a_write_only_socket_end_it(loop: Loop) -> None:
    near, far = socket.socketpair()
    with far:
        sink, writer = await loop.connect_write_pipe(Recorder, near)
        copy = near.dup()
        await turns()
        far.send(b"unasked")
        assert await writer.lost is None
        assert sink.is_closing()
        with copy:
            assert copy.recv(100) == b"unasked"  # the bytes were left unread


@pytest.mark.goloop_only("what comes to the reader closes the writer")
@pytest.mark.parametrize("make", [tcp_pair, socket.socketpair])
@pytest.mark.parametrize("first", ["reader", "writer"])
async def test_one_socket_is_read_and_written_as_two_pipes(
    loop: Loop, make: Any, first: str
) -> None:
    """As stdin and stdout of a program that inetd or ssh's ProxyCommand has started."""
    near, far = make()
    far.setblocking(False)
    ends = {"reader": near, "writer": near.dup()}
    connect = {"reader": loop.connect_read_pipe, "writer": loop.connect_write_pipe}
    made = {}
    for name in (first, "writer" if first == "reader" else "reader"):
        made[name] = await connect[name](Recorder, ends[name])
    (_, reader), (sink, writer) = made["reader"], made["writer"]
    await loop.sock_sendall(far, b"q" * 100_000)
    far.shutdown(socket.SHUT_WR)
    assert await reader.lost is None
    assert bytes(reader.data) == b"q" * 100_000
    await turns(10)
    assert not sink.is_closing()
    sink.write(b"a" * 1_000_000)
    sink.close()
    assert await receive_all(far) == b"a" * 1_000_000
    assert await writer.lost is None
    far.close()


async def test_dev_null_takes_everything(loop: Loop) -> None:
    sink, writer = await write_end(loop, os.open("/dev/null", os.O_WRONLY))
    sink.write(b"n" * 1_000_000)
    assert sink.get_write_buffer_size() == 0
    await turns()
    sink.close()
    assert await writer.lost is None


async def test_reading_dev_null_is_reported_as_asyncio_does(loop: Loop, errors: Any) -> None:
    """epoll takes no /dev/null: asyncio reports that, and the transport stays deaf."""
    source, reader = await read_end(loop, os.open("/dev/null", os.O_RDONLY))
    await turns()
    errors.expect(PermissionError, "Exception in callback")
    assert not source.is_closing()
    source.close()
    assert await reader.lost is None
    assert reader.names() == ["made", "lost"]


async def test_a_full_device_ends_the_writer_with_its_error(loop: Loop) -> None:
    _sink, writer = await write_end(loop, os.open("/dev/full", os.O_WRONLY))
    _sink.write(b"x")
    exc = await writer.lost
    assert isinstance(exc, OSError)
    assert exc.errno == errno.ENOSPC


# ---- a pipe's size -------------------------------------------------------------------------


def pipe_size(fd: int) -> int:
    return fcntl.fcntl(fd, fcntl.F_GETPIPE_SZ)


@pytest.mark.goloop_only("asyncio leaves a pipe's size alone")
async def test_only_a_busy_pipe_is_enlarged(loop: Loop) -> None:
    reading, writing = os.pipe()
    usual = pipe_size(reading)
    _, reader = await read_end(loop, reading)
    sink, _ = await write_end(loop, writing)
    for _ in range(50):
        got = len(reader.data)
        sink.write(b"x" * 1000)
        await until(lambda got=got: len(reader.data) == got + 1000)
    assert pipe_size(writing) == usual
    copy = os.dup(reading)
    sink.write(b"x" * (20 << 20))
    sink.close()
    await reader.lost
    assert pipe_size(copy) in (usual, 256 * 1024)  # the kernel may refuse
    if os.geteuid() == 0:
        assert pipe_size(copy) == 256 * 1024
    os.close(copy)


async def test_a_large_pipe_is_not_made_smaller(loop: Loop) -> None:
    reading, writing = os.pipe()
    fcntl.fcntl(reading, fcntl.F_SETPIPE_SZ, 1 << 20)
    copy = os.dup(reading)
    _, reader = await read_end(loop, reading)
    sink, _ = await write_end(loop, writing)
    sink.write(b"x" * (20 << 20))
    sink.close()
    await reader.lost
    assert pipe_size(copy) == 1 << 20
    os.close(copy)


async def test_a_full_wide_pipe_is_read_by_256_kib(loop: Loop) -> None:
    """Smaller reads before and after it lose nothing."""
    reading, writing = os.pipe()
    fcntl.fcntl(reading, fcntl.F_SETPIPE_SZ, 1 << 20)
    sizes: list[int] = []

    class Sizes(Recorder):
        def data_received(self, data: bytes) -> None:
            sizes.append(len(data))
            super().data_received(data)

    data = os.urandom(1 << 20)
    assert os.write(writing, data) == len(data)
    _, reader = await read_end(loop, reading, Sizes)

    def all_is_there() -> bool:
        return len(reader.data) == len(data)

    await until(all_is_there)
    assert max(sizes) == 256 * 1024
    for size in (40_000, 10, 100_000, 1 << 20, 40_000):
        more = os.urandom(size)
        data += more
        assert os.write(writing, more) == size
        await until(all_is_there)
    assert reader.data == data
    os.close(writing)
    assert await reader.lost is None


# ---- the object and its repr ------------------------------------------------------------------


async def test_pipes_have_asyncios_types_and_extra_info(loop: Loop) -> None:
    source, reader, sink, writer = await both_ends(loop)
    assert isinstance(source, asyncio.ReadTransport)
    assert not isinstance(source, asyncio.WriteTransport)
    assert isinstance(sink, asyncio.WriteTransport)
    assert source.get_extra_info("pipe").fileno() == source._fileno
    assert source.get_extra_info("peername", "nobody") == "nobody"
    assert source.get_protocol() is reader
    assert sink.get_protocol() is writer
    other = Recorder()
    source.set_protocol(other)
    assert source.get_protocol() is other
    sink.write(b"for the other")
    sink.close()
    await other.lost
    assert other.data == b"for the other"
    assert reader.names() == ["made"]


async def test_repr_has_the_state_of_each_end(loop: Loop) -> None:
    source, reader, sink, writer = await both_ends(loop)
    await turns()
    fds = source._fileno, sink._fileno
    assert f"fd={fds[0]} polling>" in repr(source)
    assert f"fd={fds[1]} idle bufsize=0>" in repr(sink)
    source.pause_reading()
    assert f"fd={fds[0]} idle>" in repr(source)
    sink.write(b"x" * 400_000)
    waiting = sink.get_write_buffer_size()
    assert f"fd={fds[1]} polling bufsize={waiting}>" in repr(sink)
    sink.close()
    assert f" closing fd={fds[1]} " in repr(sink)
    source.resume_reading()
    await reader.lost
    await writer.lost
    for transport, fd in zip((source, sink), fds, strict=True):
        await turns()
        assert f" closed fd={fd} closed>" in repr(transport)


async def test_debug_mode_logs_pauses_and_the_end(
    loop: Loop, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="asyncio")
    loop.set_debug(True)
    reading, writing = os.pipe()
    source, reader = await read_end(loop, reading)
    source.pause_reading()
    source.resume_reading()
    os.close(writing)
    await reader.lost
    for words in ("pauses reading", "resumes reading", "was closed by peer"):
        assert words in caplog.text


def test_a_forgotten_transport_warns_and_closes_its_pipe(loop_factory: Any) -> None:
    loop = loop_factory()
    reading, writing = os.pipe()

    async def connect() -> None:
        running = asyncio.get_running_loop()
        await read_end(running, reading, asyncio.Protocol)
        await write_end(running, writing, asyncio.Protocol)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loop.run_until_complete(connect())
        loop.close()
        del loop
        gc.collect()
    texts = [str(w.message) for w in caught if w.category is ResourceWarning]
    for fd in (reading, writing):
        assert any(
            text.startswith("unclosed transport") and f" fd={fd} " in text for text in texts
        ), texts
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(fd)


def test_write_before_the_loop_runs_arrives(loop_factory: Any) -> None:
    loop = loop_factory()
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    sink, writer = loop.run_until_complete(write_end(loop, writing, lambda: asyncio.Protocol()))
    sink.write(b"at once")
    assert os.read(reading, 100) == b"at once"
    sink.close()
    loop.run_until_complete(turns())
    loop.close()
    os.close(reading)
    assert writer is not None


async def test_streams_work_over_pipes(loop: Loop) -> None:
    reading, writing = os.pipe()
    reader = asyncio.StreamReader()
    source, _ = await read_end(loop, reading, lambda: asyncio.StreamReaderProtocol(reader))
    sink, protocol = await write_end(loop, writing, asyncio.streams.FlowControlMixin)
    writer = asyncio.StreamWriter(sink, protocol, None, loop)

    async def fill() -> None:
        for _ in range(100):
            writer.write(b"line" * 5000 + b"\n")
            await writer.drain()
        writer.close()

    filling = asyncio.ensure_future(fill())
    data = await reader.read()
    await filling
    assert data == (b"line" * 5000 + b"\n") * 100
    source.close()
    await turns()
