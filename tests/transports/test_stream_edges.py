"""Stream transports at their edges: re-entrant calls, strange buffers, held data, the end.

Each callback of a protocol may close, abort, pause, collect garbage or replace the
protocol, and each test runs on asyncio too: what asyncio's transport does is what ours
has to do.  The tests that look at goloop alone say why.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import contextvars
import gc
import logging
import os
import socket
import sys
import threading
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from conftest import Errors, LoopFactory, tcp_pair
from protocols import BufferedRecorder, Recorder, hang_up, turns, until

Loop = asyncio.AbstractEventLoop
Pair = tuple[socket.socket, socket.socket]


async def attach(loop: Loop, sock: socket.socket, protocol: Any) -> Any:
    """A transport over a connected socket; returns the protocol."""
    _, made = await loop.create_connection(lambda: protocol, sock=sock)
    return made


def attached(loop: Loop, sock: socket.socket) -> Recorder:
    """The same for a loop that does not run, with a Recorder."""

    async def run() -> Recorder:
        recorder: Recorder = await attach(loop, sock, Recorder())
        return recorder

    return loop.run_until_complete(run())


def received(sock: socket.socket) -> bytes:
    """All that the peer sent, to its end of file."""
    sock.setblocking(True)
    sock.settimeout(20)
    data = bytearray()
    while chunk := sock.recv(65536):
        data += chunk
    return bytes(data)


# ---- every action from every callback ------------------------------------------------


class Meddler(Recorder):
    """Does something to its transport in one of its callbacks, once."""

    def __init__(self, where: str, action: Callable[[Any], None]) -> None:
        super().__init__()
        self.where = where
        self.action = action

    def meddle(self, where: str) -> None:
        if where == self.where:
            self.where = ""
            self.action(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.meddle("made")

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self.meddle("data")

    def eof_received(self) -> bool:
        answer = super().eof_received()
        self.meddle("eof")
        return answer

    def pause_writing(self) -> None:
        super().pause_writing()
        self.meddle("pause")

    def resume_writing(self) -> None:
        super().resume_writing()
        self.meddle("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.meddle("lost")


def close(protocol: Meddler) -> None:
    protocol.transport.close()
    assert protocol.transport.is_closing()


def abort(protocol: Meddler) -> None:
    protocol.transport.abort()
    assert protocol.transport.is_closing()
    assert protocol.transport.get_write_buffer_size() == 0


def abort_then_close(protocol: Meddler) -> None:
    abort(protocol)
    close(protocol)


def write_and_close(protocol: Meddler) -> None:
    protocol.transport.write(b"last words")
    protocol.transport.close()


def pause_and_resume(protocol: Meddler) -> None:
    for _ in range(3):
        protocol.transport.pause_reading()
        protocol.transport.pause_reading()
        protocol.transport.resume_reading()
        protocol.transport.resume_reading()


def collect(protocol: Meddler) -> None:
    gc.collect()


def lower_limits(protocol: Meddler) -> None:
    protocol.transport.set_write_buffer_limits(0)
    protocol.transport.set_write_buffer_limits()


ACTIONS = [
    close,
    abort,
    abort_then_close,
    write_and_close,
    pause_and_resume,
    collect,
    lower_limits,
]


@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: action.__name__)
@pytest.mark.parametrize("where", ["made", "data", "eof", "pause", "resume", "lost"])
async def test_any_action_in_any_callback(
    loop_name: str,
    loop: Loop,
    pair: Pair,
    errors: Errors,
    where: str,
    action: Callable[[Any], None],
) -> None:
    near, far = pair
    protocol = await attach(loop, near, Meddler(where, action))
    far.send(b"question")
    await until(lambda: protocol.data or protocol.transport.is_closing())
    if not protocol.transport.is_closing():
        protocol.transport.write(b"x" * (16 << 20))
        assert protocol.names()[-1] == "pause"
        drained = bytearray()
        while not protocol.lost.done() and protocol.names()[-1] == "pause":
            with contextlib.suppress(BlockingIOError, ConnectionError):
                drained += far.recv(1 << 20)
            await asyncio.sleep(0)
    if not protocol.transport.is_closing():
        # Whatever is left must leave before the end of file can come.
        far.shutdown(socket.SHUT_WR)
    while not protocol.lost.done():
        with contextlib.suppress(BlockingIOError, ConnectionError):
            far.recv(1 << 20)
        await asyncio.sleep(0)
    await turns()
    names = protocol.names()
    assert names.count("lost") == 1
    assert names[-1] == "lost"
    assert names.count("pause") - names.count("resume") in (0, 1)
    assert protocol.data in (b"", b"question")
    if where == "made" and action in (close, abort, abort_then_close, write_and_close):
        assert names == ["made", "lost"]
    assert protocol.where == "" or where in ("resume", "eof")
    assert near.fileno() == -1
    if loop_name == "asyncio" and where == "resume":
        # Closed from resume_writing, asyncio's transport loses its connection twice.
        errors.contexts.clear()


@pytest.mark.parametrize("words", [b"a few", b"many" * (1 << 18)])
async def test_words_written_in_connection_made_and_close(
    loop: Loop, pair: Pair, words: bytes
) -> None:
    near, far = pair

    def action(protocol: Meddler) -> None:
        protocol.transport.write(words)
        protocol.transport.close()

    protocol = await attach(loop, near, Meddler("made", action))
    got = await loop.run_in_executor(None, received, far)
    assert got == words
    assert await protocol.lost is None


async def test_abort_sends_what_the_kernel_takes(loop: Loop, pair: Pair) -> None:
    near, far = pair
    protocol = await attach(loop, near, Recorder())
    protocol.transport.write(b"an error message")
    protocol.transport.abort()
    assert await protocol.lost is None
    assert await loop.run_in_executor(None, received, far) == b"an error message"


async def test_writes_after_close_follow_those_before_while_the_queue_lasts(
    loop: Loop, pair: Pair
) -> None:
    near, far = pair
    protocol = await attach(loop, near, Recorder())
    size = 16 << 20
    protocol.transport.write(b"x" * size)
    assert protocol.transport.get_write_buffer_size() > 0
    protocol.transport.close()
    protocol.transport.write(b"tail")
    got = await loop.run_in_executor(None, received, far)
    assert len(got) == size + 4
    assert got.endswith(b"xtail")
    assert await protocol.lost is None
    assert protocol.names() == ["made", "pause", "resume", "lost"]


async def test_connection_lost_may_use_the_transport(loop: Loop, pair: Pair) -> None:
    near, _ = pair

    def action(protocol: Meddler) -> None:
        transport = protocol.transport
        transport.close()
        transport.abort()
        transport.write(b"too late")
        transport.pause_reading()
        transport.resume_reading()
        assert transport.get_write_buffer_size() == 0
        assert transport.get_protocol() is protocol
        assert transport.get_extra_info("socket").fileno() == near.fileno() != -1
        assert not transport.is_reading()

    protocol = await attach(loop, near, Meddler("lost", action))
    protocol.transport.close()
    await protocol.lost
    await turns()
    assert protocol.names() == ["made", "lost"]
    assert protocol.transport.get_protocol() is None


async def test_pause_writing_may_write_and_close(loop: Loop, pair: Pair) -> None:
    near, far = pair

    def action(protocol: Meddler) -> None:
        protocol.transport.write(b"more")
        protocol.transport.close()
        protocol.transport.write(b"still")

    protocol = await attach(loop, near, Meddler("pause", action))
    protocol.transport.write(b"x" * (16 << 20))
    got = await loop.run_in_executor(None, received, far)
    assert got[16 << 20 :] == b"morestill"
    await protocol.lost


async def test_resume_writing_may_write_to_the_mark_again(loop: Loop, pair: Pair) -> None:
    near, far = pair
    size = 8 << 20
    # A reader that keeps pace would let the kernel take any amount in one call: so the
    # buffers are small, and nobody reads while the second half is written.
    near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 256 * 1024)
    far.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 256 * 1024)
    again = threading.Event()

    def action(protocol: Meddler) -> None:
        protocol.transport.write(b"y" * size)
        protocol.transport.write_eof()
        again.set()

    def read() -> bytes:
        far.setblocking(True)
        far.settimeout(20)
        data = bytearray()
        while len(data) < size:
            data += far.recv(min(65536, size - len(data)))
        assert again.wait(20)
        return bytes(data) + received(far)

    protocol = await attach(loop, near, Meddler("resume", action))
    protocol.transport.write(b"x" * size)
    got = await loop.run_in_executor(None, read)
    assert got == b"x" * size + b"y" * size
    await until(lambda: protocol.names()[-1] == "resume")
    assert protocol.names() == ["made", "pause", "resume", "pause", "resume"]
    await hang_up(protocol)


@pytest.mark.parametrize("method", ["pause_writing", "resume_writing"])
async def test_exceptions_of_flow_control_are_reported(
    loop: Loop, pair: Pair, errors: Errors, method: str
) -> None:
    near, far = pair
    protocol = await attach(loop, near, Recorder())

    def fail() -> None:
        raise ZeroDivisionError

    setattr(protocol, method, fail)
    protocol.transport.write(b"x" * (16 << 20))
    protocol.transport.close()
    await loop.run_in_executor(None, received, far)
    await protocol.lost
    context = errors.expect(ZeroDivisionError, f"protocol.{method}() failed")
    assert context["transport"] is protocol.transport
    assert context["protocol"] is protocol


# ---- exceptions of the protocol ------------------------------------------------------


class Failing(Recorder):
    def data_received(self, data: bytes) -> None:
        raise ZeroDivisionError

    def eof_received(self) -> bool:
        raise ZeroDivisionError


@pytest.mark.parametrize("method", ["data_received", "eof_received"])
async def test_a_failing_callback_is_fatal(
    loop: Loop, pair: Pair, errors: Errors, method: str
) -> None:
    near, far = pair
    protocol = await attach(loop, near, Failing())
    if method == "data_received":
        far.send(b"x")
    else:
        far.shutdown(socket.SHUT_WR)
    assert type(await protocol.lost) is ZeroDivisionError
    context = errors.expect(ZeroDivisionError, f"Fatal error: protocol.{method}() call failed.")
    assert context["transport"] is protocol.transport
    assert context["protocol"] is protocol


async def test_an_exception_of_connection_lost_is_reported_and_all_is_released(
    loop: Loop, pair: Pair, errors: Errors
) -> None:
    near, _ = pair

    class Bad(Recorder):
        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            raise ZeroDivisionError

    protocol = await attach(loop, near, Bad())
    protocol.transport.close()
    await protocol.lost
    await turns()
    errors.expect(ZeroDivisionError)
    assert near.fileno() == -1
    assert protocol.transport.get_protocol() is None


async def test_the_same_when_the_last_byte_brings_it(
    loop: Loop, pair: Pair, errors: Errors
) -> None:
    near, far = pair

    class Bad(Recorder):
        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            raise ZeroDivisionError

    protocol = await attach(loop, near, Bad())
    protocol.transport.write(b"x" * (16 << 20))
    protocol.transport.close()
    await loop.run_in_executor(None, received, far)
    await protocol.lost
    await turns()
    errors.expect(ZeroDivisionError)
    assert near.fileno() == -1


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_leaves_the_loop_and_loses_no_byte(
    loop: Loop, pair: Pair, kind: type[BaseException]
) -> None:
    near, far = pair

    class Interrupted(asyncio.BufferedProtocol):
        def __init__(self) -> None:
            self.buffer = bytearray(3)
            self.data = bytearray()
            self.eof = False
            self.lost = loop.create_future()

        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport: Any = transport

        def get_buffer(self, sizehint: int) -> bytearray:
            return self.buffer

        def buffer_updated(self, nbytes: int) -> None:
            self.data += self.buffer[:nbytes]
            if len(self.data) == 6:
                raise kind

        def eof_received(self) -> bool:
            self.eof = True
            return True

        def connection_lost(self, exc: Exception | None) -> None:
            self.lost.set_result(exc)

    protocol = loop.run_until_complete(attach(loop, near, Interrupted()))
    far.send(b"0123456789")
    far.shutdown(socket.SHUT_WR)
    with pytest.raises(kind):
        loop.run_until_complete(until(lambda: protocol.eof))
    assert protocol.data == b"012345"
    loop.run_until_complete(until(lambda: protocol.eof))
    assert protocol.data == b"0123456789"
    loop.run_until_complete(hang_up(protocol))


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_when_the_last_byte_has_left(
    loop_name: str, loop: Loop, pair: Pair, kind: type[BaseException]
) -> None:
    if loop_name == "asyncio":
        pytest.skip("asyncio's transport stays half closed for ever")
    near, far = pair
    protocol = attached(loop, near)

    def interrupt() -> None:
        raise kind

    protocol.resume_writing = interrupt  # type: ignore[method-assign]

    async def last_words() -> None:
        protocol.transport.write(b"x" * (16 << 20))
        protocol.transport.close()
        reading = loop.run_in_executor(None, received, far)
        await protocol.lost
        await reading

    task = loop.create_task(last_words())
    with pytest.raises(kind):
        loop.run_until_complete(task)
    loop.run_until_complete(task)
    assert near.fileno() == -1


# ---- data in hand --------------------------------------------------------------------


async def both_ready(loop: Loop, first: Any, second: Any) -> tuple[Pair, Pair]:
    """Two transports whose peers have sent data and an end of file before the loop looks."""
    one, two = tcp_pair(), tcp_pair()
    await attach(loop, one[0], first)
    await attach(loop, two[0], second)
    for _, far in (one, two):
        far.send(b"data")
        far.shutdown(socket.SHUT_WR)
    return one, two


def other_of(first: Any, second: Any) -> Callable[[Any], Any]:
    return lambda protocol: second if protocol is first else first


@pytest.mark.parametrize("action", ["close", "abort"])
async def test_closing_another_transport_drops_what_it_has_received(
    loop: Loop, action: str
) -> None:
    # Whichever of the two is called first closes the other one.
    protocols: list[Any] = []

    def act(protocol: Meddler) -> None:
        other = other_of(*protocols)(protocol)
        if not other.data:
            getattr(other.transport, action)()

    protocols += [Meddler("data", act), Meddler("data", act)]
    one, two = await both_ready(loop, *protocols)
    await protocols[0].lost
    await protocols[1].lost
    names = sorted(protocol.names() for protocol in protocols)
    assert names == [["made", "data", "eof", "lost"], ["made", "lost"]]
    for sock in (*one, *two):
        sock.close()


async def test_data_of_a_paused_transport_comes_in_order_after_resume(loop: Loop) -> None:
    protocols: list[Any] = []

    def act(protocol: Meddler) -> None:
        other_of(*protocols)(protocol).transport.pause_reading()

    protocols += [Meddler("data", act), Meddler("data", act)]
    one, two = await both_ready(loop, *protocols)
    await until(lambda: any(protocol.data for protocol in protocols))
    await turns(20)
    paused = [protocol for protocol in protocols if not protocol.transport.is_reading()]
    assert [protocol.names() for protocol in protocols if protocol.names() == ["made"]]
    silent = next(protocol for protocol in protocols if protocol.names() == ["made"])
    assert silent in paused
    # Resumed and paused again before anything could be delivered: still silent.
    silent.transport.resume_reading()
    silent.transport.pause_reading()
    await turns(20)
    assert silent.names() == ["made"]
    for protocol in protocols:
        protocol.transport.resume_reading()
    await silent.lost
    assert silent.names() == ["made", "data", "eof", "lost"]
    assert silent.data == b"data"
    for protocol in protocols:
        await protocol.lost
    for sock in (*one, *two):
        sock.close()


async def test_a_new_protocol_gets_what_was_held(loop: Loop, pair: Pair) -> None:
    near, far = pair
    second = BufferedRecorder(3)

    def act(protocol: Meddler) -> None:
        protocol.transport.set_protocol(second)
        second.transport = protocol.transport
        protocol.transport.pause_reading()

    first = await attach(loop, near, Meddler("data", act))
    far.send(b"to the first")
    await until(lambda: first.data)
    far.send(b"to the second")
    far.shutdown(socket.SHUT_WR)
    await turns(20)
    assert not second.data
    first.transport.resume_reading()
    await second.lost
    assert first.data + second.data == b"to the firstto the second"
    assert second.eof.done()
    assert first.names() == ["made", "data"]


async def test_a_buffer_that_pauses_between_two_rounds(loop: Loop, pair: Pair) -> None:
    near, far = pair

    class Pausing(BufferedRecorder):
        def buffer_updated(self, nbytes: int) -> None:
            super().buffer_updated(nbytes)
            self.transport.pause_reading()

    protocol = await attach(loop, near, Pausing(4))
    far.send(b"0123456789")
    far.shutdown(socket.SHUT_WR)
    for end in (4, 8, 10):
        await until(lambda end=end: len(protocol.data) == end)
        await turns(5)
        assert protocol.data == b"0123456789"[:end]
        assert not protocol.eof.done()
        protocol.transport.resume_reading()
    await protocol.lost
    assert protocol.eof.done()
    assert set(protocol.hints) == {-1}


async def test_a_buffer_that_changes_the_protocol_between_two_rounds(
    loop: Loop, pair: Pair
) -> None:
    near, far = pair
    second = Recorder()

    class Changing(BufferedRecorder):
        def buffer_updated(self, nbytes: int) -> None:
            super().buffer_updated(nbytes)
            self.transport.set_protocol(second)

    first = await attach(loop, near, Changing(4))
    second.transport = first.transport
    far.send(b"0123456789")
    far.shutdown(socket.SHUT_WR)
    await second.lost
    assert first.data == b"0123"
    assert second.data == b"456789"


@pytest.mark.parametrize("action", ["close", "abort"])
async def test_a_buffer_that_closes_between_two_rounds(loop: Loop, pair: Pair, action: str) -> None:
    near, far = pair

    class Closing(BufferedRecorder):
        def buffer_updated(self, nbytes: int) -> None:
            super().buffer_updated(nbytes)
            getattr(self.transport, action)()

    protocol = await attach(loop, near, Closing(4))
    far.send(b"0123456789")
    await protocol.lost
    assert protocol.data == b"0123"


async def test_the_end_of_file_is_told_again_to_who_reads_again(loop: Loop, pair: Pair) -> None:
    near, far = pair
    first, second = Recorder(), Recorder()
    first.keep_open = second.keep_open = True
    await attach(loop, near, first)
    second.transport = first.transport
    far.shutdown(socket.SHUT_WR)
    await first.eof
    first.transport.pause_reading()
    first.transport.set_protocol(second)
    first.transport.resume_reading()
    await second.eof
    first.transport.write(b"answer")
    first.transport.close()
    assert await loop.run_in_executor(None, received, far) == b"answer"
    await second.lost


async def test_pausing_before_reading_began(loop: Loop, pair: Pair) -> None:
    near, far = pair
    far.send(b"early")
    protocol = await attach(
        loop, near, Meddler("made", lambda protocol: protocol.transport.pause_reading())
    )
    await turns(20)
    assert protocol.names() == ["made"]
    assert not protocol.transport.is_reading()
    protocol.transport.resume_reading()
    await until(lambda: protocol.data == b"early")
    await hang_up(protocol)


# ---- buffers to read into ------------------------------------------------------------


class Strange(BufferedRecorder):
    """Its get_buffer answers, or raises, something else."""

    def __init__(self, answer: Any) -> None:
        super().__init__()
        self.answer = answer

    def get_buffer(self, sizehint: int) -> Any:
        if isinstance(self.answer, type):
            raise self.answer
        return self.answer


GET_BUFFER = "Fatal error: protocol.get_buffer() call failed."
READ = "Fatal read error on socket transport"


@pytest.mark.parametrize(
    ("answer", "kind", "message"),
    [
        (bytearray(), RuntimeError, GET_BUFFER),
        (None, TypeError, GET_BUFFER),
        (ZeroDivisionError, ZeroDivisionError, GET_BUFFER),
        (b"read-only", TypeError, READ),
        ("text", TypeError, READ),
        (memoryview(b"read-only"), TypeError, READ),
    ],
)
async def test_buffers_that_cannot_be_read_into(
    loop: Loop, pair: Pair, errors: Errors, answer: Any, kind: type[Exception], message: str
) -> None:
    near, far = pair
    protocol = await attach(loop, near, Strange(answer))
    far.send(b"data")
    assert type(await protocol.lost) is kind
    context = errors.expect(kind, message)
    if message == READ:
        assert "read-write bytes-like object" in str(context["exception"])
    elif kind is RuntimeError:
        assert str(context["exception"]) == "get_buffer() returned an empty buffer"


async def test_buffers_of_larger_items(loop: Loop, pair: Pair) -> None:
    near, far = pair
    items = array.array("I", [0, 0])
    protocol = await attach(loop, near, Strange(items))
    protocol.buffer_updated = lambda nbytes: protocol.data.extend(items.tobytes()[:nbytes])
    far.send(b"01234567")
    await until(lambda: len(protocol.data) == 8)
    assert protocol.data == b"01234567"
    await hang_up(protocol)


async def test_a_failing_buffer_updated_is_fatal(loop: Loop, pair: Pair, errors: Errors) -> None:
    near, far = pair
    protocol = await attach(loop, near, BufferedRecorder())

    def fail(nbytes: int) -> None:
        raise ZeroDivisionError

    protocol.buffer_updated = fail
    far.send(b"data")
    assert type(await protocol.lost) is ZeroDivisionError
    errors.expect(ZeroDivisionError, "Fatal error: protocol.buffer_updated() call failed.")


async def test_methods_assigned_later_are_called(loop: Loop, pair: Pair) -> None:
    near, far = pair
    protocol = await attach(loop, near, Recorder())
    far.send(b"a")
    await until(lambda: protocol.data)
    other = bytearray()
    protocol.data_received = other.extend
    far.send(b"b")
    await until(lambda: other)
    assert (protocol.data, other) == (b"a", b"b")
    await hang_up(protocol)


# ---- buffers to write ----------------------------------------------------------------


class Word(bytes):
    pass


def slices(data: bytes) -> memoryview:
    return memoryview(b"--" + data + b"--")[2:-2]


@pytest.mark.parametrize(
    "make",
    [
        bytes,
        Word,
        bytearray,
        memoryview,
        slices,
        lambda data: memoryview(bytearray(data)),
        lambda data: memoryview(memoryview(slices(data))),
        lambda data: memoryview(array.array("B", data)).cast("c"),
    ],
)
async def test_whatever_holds_bytes_is_sent(
    loop: Loop, pair: Pair, make: Callable[[bytes], Any]
) -> None:
    near, far = pair
    protocol = await attach(loop, near, Recorder())
    for data in (b"", b"one", b"", b"two" * 70_000):
        protocol.transport.write(make(data))
        gc.collect()
    protocol.transport.writelines([make(b"three"), make(b""), b"four"])
    protocol.transport.writelines([])
    protocol.transport.writelines(make(data) for data in (b"five", b"six"))
    protocol.transport.close()
    expected = b"one" + b"two" * 70_000 + b"threefourfivesix"
    assert await loop.run_in_executor(None, received, far) == expected
    await protocol.lost


async def test_a_mutable_buffer_may_change_after_write(loop_name: str, loop: Loop) -> None:
    near, far = tcp_pair()
    protocol = await attach(loop, near, Recorder())
    buffer = bytearray(b"before")
    protocol.transport.write(buffer)
    buffer[:] = b"behind"
    buffer += b"and no export keeps it from growing"
    protocol.transport.write(memoryview(buffer)[:6])
    protocol.transport.close()
    assert await loop.run_in_executor(None, received, far) == b"beforebehind"
    await protocol.lost
    far.close()


@pytest.mark.parametrize("data", ["text", None, 1, array.array("B", b"x"), [b"x"]])
async def test_what_write_refuses(loop: Loop, pair: Pair, data: Any) -> None:
    protocol = await attach(loop, pair[0], Recorder())
    words = (
        "a bytes, bytearray, or memoryview object"
        if sys.version_info >= (3, 14)
        else "a bytes-like object"
    )
    with pytest.raises(TypeError) as caught:
        protocol.transport.write(data)
    assert str(caught.value) == f"data argument must be {words}, not {type(data).__name__!r}"
    await hang_up(protocol)


async def test_writelines_with_one_bad_item_sends_nothing(loop: Loop, pair: Pair) -> None:
    near, far = pair
    protocol = await attach(loop, near, Recorder())
    with pytest.raises(TypeError):
        protocol.transport.writelines([b"good", "bad"])
    with pytest.raises(TypeError):
        protocol.transport.writelines(1)
    assert protocol.transport.get_write_buffer_size() == 0
    protocol.transport.close()
    assert await loop.run_in_executor(None, received, far) == b""
    await protocol.lost


async def test_a_released_view_and_one_in_pieces(loop: Loop, pair: Pair, errors: Errors) -> None:
    near, _ = pair
    protocol = await attach(loop, near, Recorder())
    view = memoryview(b"gone")
    view.release()
    with pytest.raises(ValueError, match="released memoryview"):
        protocol.transport.write(view)
    assert not protocol.transport.is_closing()
    protocol.transport.write(memoryview(b"0123456789")[::2])
    assert type(await protocol.lost) is BufferError
    errors.expect(BufferError, "Fatal write error on socket transport")


async def test_errors_after_write_eof(loop: Loop, pair: Pair) -> None:
    near, far = pair
    protocol = await attach(loop, near, Recorder())
    protocol.transport.write(b"all")
    protocol.transport.write_eof()
    protocol.transport.write_eof()
    with pytest.raises(RuntimeError, match=r"^Cannot call write\(\) after write_eof\(\)$"):
        protocol.transport.write(b"more")
    name = "writelines" if sys.version_info >= (3, 12) else "write"
    with pytest.raises(RuntimeError, match=rf"^Cannot call {name}\(\) after write_eof\(\)$"):
        protocol.transport.writelines([b"more"])
    assert await loop.run_in_executor(None, received, far) == b"all"
    await hang_up(protocol)


async def test_writes_after_the_loss_are_counted_and_told(
    loop: Loop, pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    protocol = await attach(loop, pair[0], Recorder())
    protocol.transport.abort()
    with caplog.at_level(logging.WARNING, logger="asyncio"):
        for _ in range(4):
            protocol.transport.write(b"x")
        assert not caplog.records
        protocol.transport.write(b"x")
    assert [record.getMessage() for record in caplog.records] == ["socket.send() raised exception."]
    await protocol.lost


@pytest.mark.parametrize(
    ("arguments", "limits"),
    [
        ({}, (16384, 65536)),
        ({"high": 1000}, (250, 1000)),
        ({"low": 1000}, (1000, 4000)),
        ({"high": 0}, (0, 0)),
        ({"high": 7, "low": 7}, (7, 7)),
        ({"high": 10.5, "low": 1}, (1, 10.5)),
        ({"high": float("inf"), "low": 1}, (1, float("inf"))),
        ({"high": 1 << 100}, (1 << 98, 1 << 100)),
    ],
)
async def test_limits(loop: Loop, pair: Pair, arguments: dict[str, Any], limits: Any) -> None:
    protocol = await attach(loop, pair[0], Recorder())
    protocol.transport.set_write_buffer_limits(**arguments)
    assert protocol.transport.get_write_buffer_limits() == limits
    with pytest.raises(ValueError, match=r"^high \(1\) must be >= low \(2\) must be >= 0$"):
        protocol.transport.set_write_buffer_limits(1, 2)
    with pytest.raises(ValueError, match="must be >= 0"):
        protocol.transport.set_write_buffer_limits(-1)
    with pytest.raises(TypeError):
        protocol.transport.set_write_buffer_limits("much")
    await hang_up(protocol)


async def test_lower_limits_pause_at_once(loop: Loop, pair: Pair) -> None:
    near, far = pair
    protocol = await attach(loop, near, Recorder())
    protocol.transport.set_write_buffer_limits(high=64 << 20)
    protocol.transport.write(b"x" * (16 << 20))
    assert protocol.names() == ["made"]
    protocol.transport.set_write_buffer_limits(high=1)
    assert protocol.names() == ["made", "pause"]
    protocol.transport.close()
    await loop.run_in_executor(None, received, far)
    await protocol.lost
    assert protocol.names() == ["made", "pause", "resume", "lost"]


async def test_the_empty_waiter(loop: Loop, pair: Pair) -> None:
    near, far = pair
    protocol = await attach(loop, near, Recorder())
    transport = protocol.transport
    transport.write(b"few")
    waiter = transport._make_empty_waiter()
    assert waiter.done()
    with pytest.raises(RuntimeError, match="sendfile is in progress"):
        transport.write(b"x")
    with pytest.raises(RuntimeError, match="already set"):
        transport._make_empty_waiter()
    transport._reset_empty_waiter()
    transport.write(b"x" * (16 << 20))
    waiter = transport._make_empty_waiter()
    assert not waiter.done()
    reading = loop.run_in_executor(None, received, far)
    await waiter
    assert transport.get_write_buffer_size() == 0
    transport._reset_empty_waiter()
    transport.close()
    assert len(await reading) == 3 + (16 << 20)
    await protocol.lost


async def test_the_empty_waiter_of_a_lost_connection(loop: Loop, pair: Pair) -> None:
    protocol = await attach(loop, pair[0], Recorder())
    protocol.transport.write(b"x" * (16 << 20))
    waiter = protocol.transport._make_empty_waiter()
    protocol.transport.abort()
    with pytest.raises(ConnectionError, match=r"^Connection is closed by peer$"):
        await waiter
    await protocol.lost


# ---- the object ----------------------------------------------------------------------


async def test_attributes_subclasses_and_weak_references(loop: Loop, pair: Pair) -> None:
    protocol = await attach(loop, pair[0], Recorder())
    transport = protocol.transport
    assert isinstance(transport, asyncio.Transport)
    assert isinstance(transport, asyncio.transports._FlowControlMixin)
    transport.mine = 1
    assert transport.__dict__["mine"] == 1
    known = weakref.WeakSet([transport])
    assert transport in known
    assert transport._start_tls_compatible is True
    assert transport._sendfile_compatible.name == "TRY_NATIVE"
    assert transport.can_write_eof() is True
    assert transport._loop is loop
    assert transport._protocol is protocol
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


async def test_extra_info_of_an_accepted_connection(loop: Loop) -> None:
    accepted = Recorder()
    server = await loop.create_server(lambda: accepted, "127.0.0.1", 0)
    client = socket.create_connection(server.sockets[0].getsockname())
    await accepted.made
    transport = accepted.transport
    assert transport.get_extra_info("peername") == client.getsockname()
    assert transport.get_extra_info("sockname") == client.getpeername()
    sock = transport.get_extra_info("socket")
    assert isinstance(sock, asyncio.trsock.TransportSocket)
    assert transport.get_extra_info("socket") is sock
    assert (sock.family, sock.type) == (socket.AF_INET, socket.SOCK_STREAM)
    assert sock.gettimeout() == 0
    assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    assert transport.get_extra_info("sslcontext") is None
    assert transport.get_extra_info("sslcontext", 5) == 5
    assert transport.get_extra_info(name="sslcontext", default=6) == 6
    assert set(transport._extra) == {"socket", "sockname", "peername"}
    transport._extra["more"] = 7
    assert transport.get_extra_info("more") == 7
    with pytest.raises(TypeError):
        transport.get_extra_info([])
    await hang_up(accepted)
    await turns()
    assert sock.fileno() == -1
    assert transport.get_extra_info("peername") == client.getsockname()
    client.close()
    server.close()
    await server.wait_closed()


async def test_extra_info_that_is_asked_for_too_late(loop: Loop) -> None:
    accepted = Recorder()
    server = await loop.create_server(lambda: accepted, "127.0.0.1", 0)
    client = socket.create_connection(server.sockets[0].getsockname())
    await accepted.made
    await hang_up(accepted)
    await turns()
    transport = accepted.transport
    assert transport.get_extra_info("peername") == client.getsockname()
    assert transport.get_extra_info("sockname") == client.getpeername()
    sock = transport.get_extra_info("socket")
    assert (sock.fileno(), sock.family) == (-1, socket.AF_INET)
    client.close()
    server.close()
    await server.wait_closed()


@pytest.mark.parametrize("family", [socket.AF_INET6, socket.AF_UNIX])
async def test_names_of_other_families(loop: Loop, tmp_path: Any, family: int) -> None:
    accepted = Recorder()
    client = socket.socket(family, socket.SOCK_STREAM)
    client.setblocking(False)
    if family == socket.AF_UNIX:
        server: Any = await loop.create_unix_server(lambda: accepted, str(tmp_path / "s"))
    else:
        server = await loop.create_server(lambda: accepted, "::1", 0)
    await loop.sock_connect(client, server.sockets[0].getsockname())
    await accepted.made
    transport = accepted.transport
    assert transport.get_extra_info("peername") == client.getsockname()
    assert transport.get_extra_info("sockname") == client.getpeername()
    assert transport.get_extra_info("socket").family == family
    await hang_up(accepted)
    client.close()
    server.close()
    await server.wait_closed()


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

    variable.set("at birth")
    protocol = await attach(loop, near, Looking())
    variable.set("later")
    far.send(b"x")
    far.shutdown(socket.SHUT_WR)
    await protocol.lost
    assert seen == {"made": "at birth", "data": "at birth", "eof": "at birth"}
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


def test_a_transport_that_is_resurrected_by_its_warning(loop_factory: LoopFactory) -> None:
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


def test_calls_after_the_loop_was_closed(loop_factory: LoopFactory) -> None:
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


def test_a_transport_without_a_socket(loop_factory: LoopFactory) -> None:
    """goloop alone: asyncio's transport fails with AttributeError here."""
    from goloop.streams import StreamTransport

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
    transport._sync()
    transport._deliver_held()
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


def test_constructors_that_fail_leave_the_socket_alone(
    loop_name: str, loop: Loop, pair: Pair
) -> None:
    if loop_name == "asyncio":
        pytest.skip("goloop's constructor; asyncio's has other arguments")
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


async def test_a_python_subclass(loop_name: str, loop: Loop, pair: Pair) -> None:
    if loop_name == "asyncio":
        pytest.skip("goloop's type")
    from goloop.streams import StreamTransport

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


def test_a_loop_with_transports_that_is_garbage(loop_factory: LoopFactory) -> None:
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


async def test_writes_of_another_thread(loop: Loop, pair: Pair) -> None:
    """Not allowed, and asyncio's usually works: it must not corrupt memory."""
    near, far = pair
    protocol = await attach(loop, near, Recorder())
    count = 2000

    def write() -> None:
        for _ in range(count):
            protocol.transport.write(b"0123456789")
            protocol.transport.pause_reading()
            protocol.transport.resume_reading()

    protocol.transport.set_write_buffer_limits(high=1 << 30)
    reading = loop.run_in_executor(None, received, far)
    await loop.run_in_executor(None, write)
    protocol.transport.close()
    got = await reading
    assert got == b"0123456789" * count
    await protocol.lost


def test_the_child_of_a_fork_is_refused(loop_name: str, loop: Loop, pair: Pair) -> None:
    if loop_name == "asyncio":
        pytest.skip("asyncio lets the child use its parent's transports")
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


@pytest.mark.parametrize("debug", [False, True])
@pytest.mark.filterwarnings("ignore::ResourceWarning")
async def test_a_factory_that_raises(
    loop_name: str, loop: Loop, errors: Errors, debug: bool
) -> None:
    loop.set_debug(debug)

    def factory() -> asyncio.Protocol:
        raise ZeroDivisionError

    server = await loop.create_server(factory, "127.0.0.1", 0)
    client = socket.create_connection(server.sockets[0].getsockname())
    if loop_name == "goloop" or not debug:
        # asyncio leaves the socket to the garbage collector, and what it reports holds it.
        assert await loop.run_in_executor(None, received, client) == b""
    if debug:
        await until(lambda: errors.contexts)
        context = errors.expect(
            ZeroDivisionError, "Error on transport creation for incoming connection"
        )
        assert set(context) == {"message", "exception"}
        del context
    client.close()
    server.close()
    await server.wait_closed()


async def test_a_protocol_without_connection_made(
    loop_name: str, loop: Loop, errors: Errors
) -> None:
    if loop_name == "asyncio":
        pytest.skip("asyncio leaves the socket to the garbage collector")
    loop.set_debug(True)

    class NoProtocol:
        pass

    server = await loop.create_server(NoProtocol, "127.0.0.1", 0)  # type: ignore[arg-type]
    client = socket.create_connection(server.sockets[0].getsockname())
    assert await loop.run_in_executor(None, received, client) == b""
    client.close()
    server.close()
    await server.wait_closed()
    context = errors.expect(AttributeError, "Error on transport creation")
    assert type(context["protocol"]) is NoProtocol


def test_connections_that_nobody_took_are_closed_with_the_server(
    loop_name: str, loop: Loop
) -> None:
    if loop_name == "asyncio":
        pytest.skip("asyncio leaves the sockets to the garbage collector")
    made: list[Recorder] = []

    def factory() -> Recorder:
        server.close()
        made.append(Recorder())
        return made[-1]

    async def run() -> None:
        nonlocal server
        server = await loop.create_server(factory, "127.0.0.1", 0, start_serving=False)
        address = server.sockets[0].getsockname()
        server.sockets[0]._sock.listen(5)
        clients = [socket.create_connection(address) for _ in range(3)]
        await server.start_serving()
        for client in clients:
            # Nothing was ever sent: an end of file, or a reset where the kernel's queue
            # of the listening socket held it.
            with contextlib.suppress(ConnectionResetError):
                assert await loop.run_in_executor(None, received, client) == b""
            client.close()
        assert len(made) == 1

    server: Any = None
    loop.run_until_complete(run())


async def test_a_listener_alone(loop_name: str, loop: Loop, listener: socket.socket) -> None:
    if loop_name == "asyncio":
        pytest.skip("goloop's type")
    from goloop import _core

    taken: list[tuple[socket.socket, Any]] = []
    made = _core.Listener(
        loop,
        listener,
        None,
        None,
        5,
        contextvars.copy_context(),
        on_accept=lambda sock, address: taken.append((sock, address)),
    )
    client = socket.create_connection(listener.getsockname())
    await until(lambda: taken)
    (sock, address) = taken.pop()
    assert address == client.getsockname()
    assert sock.gettimeout() == 0
    sock.close()
    client.close()
    assert "Listener on" in repr(made)
    made.stop()
    made.stop()
    assert "stopped" in repr(made)
    assert listener.fileno() >= 0
    with pytest.raises(RuntimeError):
        made.__init__(loop, listener, None, None, 5, contextvars.copy_context())  # type: ignore[misc]


def test_a_thread_that_collects_garbage_while_the_loop_waits(loop: Loop, pair: Pair) -> None:
    """Finalizers of another loop's transports run in a stranger's thread."""
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
