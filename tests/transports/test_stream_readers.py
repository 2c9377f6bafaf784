"""StreamReader and StreamReaderProtocol: goloop feeds the stdlib's own readers without Python.

The native rule decides whether it may.  The same tests run on asyncio's loop, so that a replaced
method, a changed attribute and an error have the same effects on both.
"""

from __future__ import annotations

import asyncio
import gc
import os
import random
import socket
import sys
import weakref
from asyncio import futures
from collections.abc import Callable
from typing import Any

import pytest
from conftest import factory_of
from protocols import Recorder, one_turn, turns, until
from reader_tools import LARGE, Stream, exchange

Loop = asyncio.AbstractEventLoop
KINDS = ["socket", "pipe", "tls"]
FEEDING = {"data_received", "_stream_reader", "feed_data", "_wakeup_waiter"}


# ---- without Python --------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
async def test_a_reader_is_fed_without_a_call_of_python(
    loop: Loop, loop_name: str, kind: str
) -> None:
    stream = await Stream(loop).open(kind)
    called: set[str] = set()

    def profile(frame: Any, event: str, argument: Any) -> None:
        if event == "call" and "asyncio" in frame.f_code.co_filename:
            called.add(frame.f_code.co_name)

    await exchange(stream)
    sys.setprofile(profile)
    try:
        await exchange(stream)
    finally:
        sys.setprofile(None)
    assert "readexactly" in called
    assert called & FEEDING == (FEEDING if loop_name == "asyncio" else set())
    await stream.close()


# ---- replaced methods ------------------------------------------------------------------


class Counted:
    """Counts the calls of a function that stands in for another."""

    def __init__(self, original: Any) -> None:
        self.calls = 0
        self.original = original

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.calls += 1
        return self.original(*args, **kwargs)


def replace(stream: Stream, name: str, way: str, patch: pytest.MonkeyPatch) -> Counted:
    """Replaces a method of the protocol or of the reader; returns the counter of its calls."""
    on_protocol = name == "data_received"
    made = stream.protocol if on_protocol else stream.reader
    cls = type(made)
    counted = Counted(getattr(cls, name))

    def method(self: Any, *args: Any) -> Any:
        return counted(self, *args)

    if way == "subclass":
        made.__class__ = type(cls.__name__, (cls,), {name: method})
    elif way == "class":
        patch.setattr(cls, name, method)
    elif way == "instance":
        setattr(made, name, lambda *args: counted(made, *args))
    elif way == "property":
        patch.setattr(cls, name, property(lambda self: lambda *args: counted(self, *args)))
    else:

        class Wrapper:
            def __getattr__(self, wanted: str) -> Any:
                return getattr(made, wanted)

        setattr(Wrapper, name, lambda self, *args: counted(made, *args))
        if on_protocol:
            stream.protocol = Wrapper()
        else:
            stream.wrapper = Wrapper()  # the protocol has only a weak reference
            stream.protocol._stream_reader_wr = weakref.ref(stream.wrapper)
    return counted


WAYS = ["subclass", "class", "instance", "wrapper", "property"]
# feed_data() of the wrapped reader calls the reader's own _wakeup_waiter().
REPLACED = [
    (name, way)
    for name in ("data_received", "feed_data", "_wakeup_waiter")
    for way in WAYS
    if (name, way) != ("_wakeup_waiter", "wrapper")
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("name", "way"), REPLACED)
async def test_a_method_that_is_replaced_before(
    loop: Loop, monkeypatch: pytest.MonkeyPatch, name: str, way: str, kind: str
) -> None:
    counters: list[Counted] = []
    stream = Stream(loop, made=lambda s: counters.append(replace(s, name, way, monkeypatch)))
    await stream.open(kind)
    await exchange(stream)
    assert counters[0].calls >= 6
    await stream.close()


@pytest.mark.parametrize(("name", "way"), [each for each in REPLACED if each[1] != "wrapper"])
async def test_a_method_that_is_replaced_later(
    loop: Loop, monkeypatch: pytest.MonkeyPatch, name: str, way: str
) -> None:
    """Called from the next bytes on, and no more once it is the original again."""
    stream = await Stream(loop).open()
    for _ in range(2):
        await exchange(stream)
        with monkeypatch.context() as patch:
            counted = replace(stream, name, way, patch)
            await exchange(stream)
            assert counted.calls
        counted.calls = 0
        stream.reader.__class__ = asyncio.StreamReader
        stream.protocol.__class__ = asyncio.StreamReaderProtocol
        for made in (stream.reader, stream.protocol):
            made.__dict__.pop(name, None)
        await exchange(stream)
        assert not counted.calls
    await stream.close()


@pytest.mark.parametrize("way", ["subclass", "class"])
async def test_the_property_of_the_reader(
    loop: Loop, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    stream = await Stream(loop).open()
    await exchange(stream)
    cls = asyncio.StreamReaderProtocol
    counted = Counted(cls._stream_reader.fget)  # type: ignore[attr-defined]
    replacement = property(lambda self: counted(self))
    if way == "subclass":
        stream.protocol.__class__ = type("Own", (cls,), {"_stream_reader": replacement})
    else:
        monkeypatch.setattr(cls, "_stream_reader", replacement)
    counted.calls = 0
    await exchange(stream)
    assert counted.calls >= 6
    await stream.close()


USES = {"_buffer": 2, "_eof": 1, "_limit": 1, "_paused": 2, "_transport": 2, "_waiter": 2}


@pytest.mark.parametrize("way", ["subclass", "class", "setattr", "getattribute"])
@pytest.mark.parametrize("name", USES)
async def test_an_attribute_that_a_class_defines(
    loop: Loop, monkeypatch: pytest.MonkeyPatch, name: str, way: str
) -> None:
    """Each way in which a class can observe that feed_data() uses the attribute."""
    used: list[str] = []
    stream = await Stream(loop, limit=10).open()
    reader, cls = stream.reader, asyncio.StreamReader

    def getter(self: Any) -> Any:
        used.append(name)
        return vars(self)[name]

    def setter(self: Any, value: Any) -> None:
        used.append(name)
        vars(self)[name] = value

    def observe(self: Any, wanted: str, *value: Any) -> Any:
        used.append(wanted)
        if value:
            return object.__setattr__(self, wanted, *value)
        return object.__getattribute__(self, wanted)

    if way == "subclass":
        reader.__class__ = type("Own", (cls,), {name: property(getter, setter)})
    elif way == "class":
        monkeypatch.setattr(cls, name, property(getter, setter), raising=False)
    elif way == "setattr":
        monkeypatch.setattr(cls, "__setattr__", observe)
    else:
        monkeypatch.setattr(cls, "__getattribute__", observe)
    buffer, attributes = reader.__dict__["_buffer"], reader.__dict__
    waiter = attributes["_waiter"] = loop.create_future()
    del used[:]
    stream.send(b"more than twice the limit")
    await until(lambda: buffer)
    assert waiter.done()
    assert attributes["_waiter"] is None
    assert attributes["_paused"] is True
    if way == "setattr":
        assert used == ["_waiter", "_paused"]
    else:  # as often as feed_data() uses it
        unseen = way == "getattribute" and name in ("_paused", "_waiter")  # the store
        assert used.count(name) == USES[name] - unseen
    await stream.close()


# ---- values of the reader's attributes ---------------------------------------------------


async def ended(stream: Stream, errors: Any, kind: type[BaseException]) -> None:
    """The transport ends, because data_received() has raised."""
    await until(lambda: stream.protocol._transport is None)
    errors.expect(kind, "protocol.data_received() call failed")
    await stream.close()
    if stream.protocol._closed.done():
        stream.protocol._closed.exception()


async def test_bytes_for_a_reader_that_is_gone_are_dropped(loop: Loop) -> None:
    stream = await Stream(loop).open()
    stream.reader = None
    gc.collect()
    assert stream.protocol._stream_reader is None
    for size in (10, LARGE, LARGE, 10):
        stream.send(b"x" * size)
    stream.send(b"last")
    other = asyncio.StreamReader(loop=loop)
    await until(lambda: stream.closers[0].get_write_buffer_size() == 0)
    await turns(10)
    assert not stream.transport.is_closing()
    stream.protocol._stream_reader_wr = None
    stream.send(b"dropped, too")
    await turns(10)
    assert not stream.transport.is_closing()
    assert not other._buffer  # type: ignore[attr-defined]
    await stream.close()


@pytest.mark.parametrize("size", [10, LARGE])
async def test_bytes_after_feed_eof_are_an_error(loop: Loop, errors: Any, size: int) -> None:
    stream = await Stream(loop, limit=2**20).open()
    for _ in range(2):  # the next receive is a large one
        stream.send(b"x" * size)
        await stream.reader.readexactly(size)
    stream.reader.feed_eof()
    stream.send(b"x" * size)
    await ended(stream, errors, AssertionError)


@pytest.mark.parametrize("size", [10, LARGE])
async def test_an_exported_buffer_cannot_grow(loop: Loop, errors: Any, size: int) -> None:
    stream = await Stream(loop, limit=2**20).open()
    for _ in range(2):
        stream.send(b"x" * size)
        await stream.reader.readexactly(size)
    with memoryview(stream.reader._buffer):
        stream.send(b"x" * size)
        await ended(stream, errors, BufferError)
    assert stream.reader._buffer == b""


async def test_a_buffer_of_another_class(loop: Loop) -> None:
    class Buffer(bytearray):
        extended = 0

        def extend(self, data: Any) -> None:
            Buffer.extended += 1
            super().extend(data)

    stream = await Stream(loop).open()
    stream.reader._buffer = Buffer()
    await exchange(stream)
    assert Buffer.extended >= 6
    await stream.close()


@pytest.mark.parametrize("kind", KINDS)
async def test_the_transport_is_paused_beyond_twice_the_limit(loop: Loop, kind: str) -> None:
    stream = await Stream(loop, limit=10).open(kind)
    reader = stream.reader
    stream.send(b"x" * 20)
    await until(lambda: len(reader._buffer) == 20)
    assert not reader._paused
    assert stream.transport.is_reading()
    stream.send(b"y")
    await until(lambda: len(reader._buffer) == 21)
    assert reader._paused
    assert not stream.transport.is_reading()
    stream.send(b"z" * 5)
    await turns(20)
    assert len(reader._buffer) == 21
    assert await reader.readexactly(26) == b"x" * 20 + b"y" + b"z" * 5
    assert not reader._paused
    assert stream.transport.is_reading()
    await stream.close()


class Twice(int):
    def __rmul__(self, other: Any) -> Any:
        return 5 if other == 2 else NotImplemented


@pytest.mark.parametrize("limit", [2.5, True, 2**70, Twice(1000)])
async def test_a_limit_of_another_kind(loop: Loop, limit: Any) -> None:
    stream = await Stream(loop).open()
    stream.reader._limit = limit
    stream.send(b"12")
    await until(lambda: len(stream.reader._buffer) == 2)
    assert not stream.reader._paused
    stream.send(b"3456")
    await until(lambda: len(stream.reader._buffer) == 6)
    assert stream.reader._paused == (2 * limit < 6)
    await stream.close()


@pytest.mark.parametrize("raises", [None, NotImplementedError, ValueError])
async def test_the_readers_transport_is_another_object(
    loop: Loop, errors: Any, raises: Any
) -> None:
    class Other:
        paused = 0

        def pause_reading(self) -> None:
            self.paused += 1
            if raises is not None:
                raise raises

        def resume_reading(self) -> None:
            pass

    stream = await Stream(loop, limit=1).open()
    stream.reader._transport = other = Other()
    stream.send(b"12345")
    await until(lambda: other.paused)
    if raises is ValueError:
        await ended(stream, errors, ValueError)
        return
    assert stream.reader._transport is (None if raises else other)
    assert stream.reader._paused == (raises is None)
    stream.send(b"6")
    await until(lambda: len(stream.reader._buffer) == 6)
    assert other.paused == 1
    await stream.close()


async def test_a_waiter_that_is_cancelled(loop: Loop) -> None:
    stream = await Stream(loop).open()
    waiter = stream.reader._waiter = loop.create_future()
    waiter.cancel()
    stream.send(b"hello")
    await until(lambda: stream.reader._buffer)
    assert stream.reader._waiter is None
    assert await stream.reader.read(10) == b"hello"
    await stream.close()


async def test_a_waiter_that_is_done_is_an_error(loop: Loop, errors: Any) -> None:
    stream = await Stream(loop).open()
    waiter = stream.reader._waiter = loop.create_future()
    waiter.set_result(None)
    stream.send(b"hello")
    await ended(stream, errors, asyncio.InvalidStateError)
    assert stream.reader._buffer == b"hello"


@pytest.mark.parametrize("cls", [futures._PyFuture, asyncio.Future])  # type: ignore[attr-defined]
@pytest.mark.parametrize("subclass", [False, True])
async def test_a_waiter_of_another_class(loop: Loop, cls: Any, subclass: bool) -> None:
    results: list[Any] = []
    if subclass:

        class Own(cls):  # type: ignore[misc]
            def cancelled(self) -> bool:
                results.append("cancelled")
                return bool(super().cancelled())

            def set_result(self, result: Any) -> None:
                results.append(result)
                super().set_result(result)

        cls = Own
    stream = await Stream(loop).open()
    waiter = stream.reader._waiter = cls(loop=loop)
    stream.send(b"hello")
    assert await waiter is None
    assert stream.reader._waiter is None
    assert results[:2] == (["cancelled", None] if subclass else [])
    await stream.close()


async def test_set_protocol_changes_the_receiver(loop: Loop) -> None:
    stream = await Stream(loop).open()
    lines = Recorder()
    for _ in range(2):
        await exchange(stream)
        lines.data.clear()
        stream.transport.set_protocol(lines)
        stream.send(b"x" * LARGE)
        await until(lambda: len(lines.data) == LARGE)
        stream.transport.set_protocol(stream.protocol)
    stream.protocol._stream_reader_wr = None
    stream.reader = asyncio.StreamReader(loop=loop)
    stream.reader.set_transport(stream.transport)
    stream.protocol._stream_reader_wr = weakref.ref(stream.reader)
    await exchange(stream)
    await stream.close()


async def test_the_end_and_an_error_reach_the_reader(loop: Loop) -> None:
    stream = await Stream(loop).open()
    stream.send(b"x" * 10)
    await until(lambda: stream.reader._buffer)
    waiting = loop.create_task(stream.reader.read(-1))
    await turns(2)
    stream.closers[0].close()
    assert await waiting == b"x" * 10
    assert stream.reader.at_eof()
    await stream.close()


# ---- no memory -------------------------------------------------------------------------


@pytest.mark.skipif("GOLOOP_SANITIZE" in os.environ, reason="its allocator is refused nothing")
@pytest.mark.parametrize("size", [10, 100_000])
def test_any_allocation_may_fail(
    loop_factory: Callable[[], Loop], loop_name: str, size: int
) -> None:
    """Then the transport ends with MemoryError, or the reader has the bytes."""
    testcapi = pytest.importorskip("_testcapi")
    if loop_name == "asyncio":
        pytest.skip("asyncio's loop ends if an allocation of its own fails")
    loop = loop_factory()
    loop.set_exception_handler(lambda loop, context: contexts.append(context["exception"]))
    contexts: list[BaseException] = []
    try:
        for first in range(25):
            ours, theirs = socket.socketpair()
            theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2**20)
            stream = Stream(loop, limit=4)
            stream.transport, _ = loop.run_until_complete(
                loop.create_connection(lambda s=stream: s.protocol, sock=ours)  # type: ignore[misc]
            )
            data = b"\1" * size
            stream.reader._limit = 2**30
            for _ in range(2):  # the second receive is a large one
                theirs.sendall(data)
                loop.run_until_complete(stream.reader.readexactly(size))
            stream.reader._limit = 4
            waiter = stream.reader._waiter = loop.create_future()
            theirs.sendall(data)
            testcapi.set_nomemory(first, first + 1)
            try:
                one_turn(loop)
            except MemoryError:
                pass
            finally:
                testcapi.remove_mem_hooks()
            for _ in range(5):
                one_turn(loop)
            buffer = stream.reader._buffer
            if stream.transport.is_closing():
                assert isinstance(stream.reader.exception(), MemoryError)
                assert buffer.rstrip(b"\0") in (b"", data)
            else:
                assert buffer == data
                assert waiter.done()
                assert stream.reader._paused
            stream.transport.abort()
            theirs.close()
            one_turn(loop)
            one_turn(loop)
            if stream.protocol._closed.done():
                stream.protocol._closed.exception()
    finally:
        loop.close()
    assert all(isinstance(each, MemoryError) for each in contexts)


# ---- random programs -----------------------------------------------------------------


async def random_life(seed: int) -> list[Any]:
    """Runs a random program on a reader; returns the visible state after each of its steps."""
    dice = random.Random(seed)
    loop = asyncio.get_running_loop()
    stream = await Stream(loop, limit=dice.choice([1, 10, 1000, 2**16])).open()
    reader = stream.reader
    tasks: list[asyncio.Task[Any]] = []
    seen: list[Any] = []

    def reading() -> Any:
        size = dice.choice([0, 1, 7, 5000, 40_000])
        return dice.choice([
            lambda: reader.read(size), lambda: reader.readexactly(size),
            lambda: reader.readline(), lambda: reader.readuntil(b"ab"),
        ])()  # fmt: skip

    for _ in range(dice.randrange(5, 25)):
        step = dice.choice(["send", "send", "send", "read", "read", "cancel", "waiter", "limit"])
        if step == "send":
            size = dice.choice([1, 3, 100, 17_000, 33_000])
            data = dice.choice([b"a", b"ab", b"\n", b"xyz"]) * size
            if not reader._paused:  # else bytes wait in the kernel, and arrive in other pieces
                stream.send(data)
        elif step == "read":
            tasks.append(loop.create_task(reading()))
        elif step == "cancel" and tasks:
            dice.choice(tasks).cancel()
        elif step == "waiter" and reader._waiter is None:
            reader._waiter = loop.create_future()
            if dice.random() < 0.5:
                reader._waiter.cancel()
        elif step == "limit":
            reader._limit = dice.choice([1, 50, 20_000, 2**16])
        for _ in range(8):  # sockets in one process: nothing is under way after that
            await asyncio.sleep(0)
            await asyncio.sleep(0.0001)
        seen.append((step, len(reader._buffer), bytes(reader._buffer[:20]), reader._paused))
        seen.append([reader._waiter is None, stream.transport.is_reading(), reader._eof])
        seen.append([each.done() for each in tasks])
    stream.closers[0].close()
    reader._waiter = None
    for task in tasks:
        task.cancel()
    seen += [repr(each) for each in await asyncio.gather(*tasks, return_exceptions=True)]
    await stream.close()
    return seen


@pytest.mark.timeout(300)
def test_random_programs_see_the_same_on_both_loops() -> None:
    for seed in range(30):
        outcomes = []
        for name in ("asyncio", "goloop"):
            loop = factory_of(name)()
            try:
                outcomes.append(loop.run_until_complete(random_life(seed)))
            finally:
                loop.close()
        assert outcomes[0] == outcomes[1], f"seed {seed}"
