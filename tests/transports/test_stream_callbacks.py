"""A stream's callbacks that close, abort, pause, collect garbage, or raise.

Each test runs on asyncio too: ours must behave as asyncio's transport.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest
from conftest import Errors
from protocols import BufferedRecorder, Recorder, failing, hang_up, turns, until
from stream_tools import Meddler, attach, attached, received

Loop = asyncio.AbstractEventLoop
Pair = tuple[socket.socket, socket.socket]


# ---- every action from every callback ------------------------------------------------


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
async def test_any_callback_may_do_anything_to_its_transport(
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
        # The remaining bytes must be sent before the end of file can arrive.
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
async def test_bytes_written_by_connection_made_before_close_are_sent(
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


async def test_abort_sends_bytes_that_the_kernel_accepts(loop: Loop, pair: Pair) -> None:
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
    assert near.fileno() == -1
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
    # A reader that keeps pace would let the kernel accept any amount in one call: so the
    # buffers are small, and nothing is read while the second half is written.
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


@pytest.mark.parametrize("method", ["data_received", "eof_received"])
async def test_a_failing_callback_is_fatal(
    loop: Loop, pair: Pair, errors: Errors, method: str
) -> None:
    near, far = pair
    protocol = await attach(loop, near, failing(method)())
    if method == "data_received":
        far.send(b"x")
    else:
        far.shutdown(socket.SHUT_WR)
    assert type(await protocol.lost) is ZeroDivisionError
    context = errors.expect(ZeroDivisionError, f"Fatal error: protocol.{method}() call failed.")
    assert context["transport"] is protocol.transport
    assert context["protocol"] is protocol
    assert protocol.names() == ["made", method.removesuffix("_received"), "lost"]
    assert await loop.sock_recv(far, 1) == b""


@pytest.mark.parametrize("last", [b"", b"x" * (16 << 20)], ids=["nothing", "much"])
async def test_an_exception_of_connection_lost_is_reported_and_all_is_released(
    loop: Loop, pair: Pair, errors: Errors, last: bytes
) -> None:
    near, far = pair
    protocol = await attach(loop, near, failing("connection_lost")())
    protocol.transport.write(last)
    protocol.transport.close()
    await loop.run_in_executor(None, received, far)
    await protocol.lost
    await turns()
    errors.expect(ZeroDivisionError, "Exception in callback ")
    assert near.fileno() == -1
    assert protocol.transport.get_protocol() is None


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_leaves_the_loop_and_loses_no_byte(
    loop: Loop, pair: Pair, kind: type[BaseException]
) -> None:
    near, far = pair

    class Interrupted(BufferedRecorder):
        def buffer_updated(self, nbytes: int) -> None:
            super().buffer_updated(nbytes)
            if len(self.data) == 6:
                raise kind

    protocol = attached(loop, near, lambda: Interrupted(3))
    far.send(b"0123456789")
    far.shutdown(socket.SHUT_WR)
    with pytest.raises(kind):
        loop.run_until_complete(protocol.eof)
    assert protocol.data == b"012345"
    loop.run_until_complete(protocol.eof)
    assert protocol.data == b"0123456789"
    loop.run_until_complete(hang_up(protocol))


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
@pytest.mark.goloop_only("asyncio's transport stays half closed for ever")
def test_an_interrupt_when_the_last_byte_has_left_leaves_the_loop(
    loop: Loop, pair: Pair, kind: type[BaseException]
) -> None:
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
