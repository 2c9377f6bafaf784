"""Calls of the exception handler, their messages, and the log of the default handler."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import logging
import signal
import socket
import sys
import traceback
from typing import Any

import pytest
from conftest import Errors, LoopFactory
from protocols import one_turn, until

Loop = asyncio.AbstractEventLoop


def boom() -> None:
    raise ZeroDivisionError("boom")


def test_an_exception_in_a_callback_is_reported_with_its_handle(loop: Loop, errors: Errors) -> None:
    handle = loop.call_soon(boom)
    ran: list[int] = []
    loop.call_soon(ran.append, 1)
    one_turn(loop)
    assert ran == [1]
    context = errors.expect(ZeroDivisionError)
    line = boom.__code__.co_firstlineno
    assert context["message"] == f"Exception in callback boom() at {__file__}:{line}"
    assert context["handle"] is handle
    assert set(context) == {"message", "exception", "handle"}


def test_an_exception_in_a_timer_is_reported_with_its_handle(loop: Loop, errors: Errors) -> None:
    handle = loop.call_later(0, boom)
    loop.call_later(0.001, loop.stop)
    loop.run_forever()
    context = errors.expect(ZeroDivisionError, "Exception in callback boom() at ")
    assert context["handle"] is handle


async def test_debug_mode_reports_where_a_signal_handler_was_added(
    loop: Loop, errors: Errors
) -> None:
    loop.set_debug(True)
    loop.add_signal_handler(signal.SIGUSR1, boom)
    signal.raise_signal(signal.SIGUSR1)
    await until(lambda: errors.contexts)
    loop.remove_signal_handler(signal.SIGUSR1)
    context = errors.expect(ZeroDivisionError, "Exception in callback boom()")
    names = [frame.name for frame in context["source_traceback"]]
    assert "test_debug_mode_reports_where_a_signal_handler_was_added" in names
    assert "run_forever" in names
    assert "_drain_signals" not in names


def test_get_exception_handler_returns_the_set_handler(loop: Loop, errors: Errors) -> None:
    assert loop.get_exception_handler() is errors
    loop.set_exception_handler(None)
    assert loop.get_exception_handler() is None
    loop.set_exception_handler(errors)


def test_call_exception_handler_calls_the_handler(loop: Loop, errors: Errors) -> None:
    context = {"message": "by hand", "anything": 1}
    loop.call_exception_handler(context)
    assert errors.contexts.pop() is context


def test_the_default_handler_logs_the_exception_and_the_handle(
    loop: Loop, caplog: pytest.LogCaptureFixture
) -> None:
    loop.set_exception_handler(None)
    loop.call_soon(boom)
    one_turn(loop)
    (record,) = caplog.records
    assert record.name == "asyncio"
    assert record.levelno == logging.ERROR
    assert record.message.startswith("Exception in callback boom()")
    assert "\nhandle: <Handle boom() at " in record.message
    assert record.exc_info
    assert record.exc_info[0] is ZeroDivisionError


def test_default_handler_shows_every_key(loop: Loop, caplog: pytest.LogCaptureFixture) -> None:
    loop.default_exception_handler({"message": "a message", "b": 2, "a": [1]})
    (record,) = caplog.records
    assert record.message == "a message\na: [1]\nb: 2"
    caplog.clear()
    loop.default_exception_handler({})
    assert caplog.records[0].message == "Unhandled exception in event loop"


def test_default_handler_shows_tracebacks(loop: Loop, caplog: pytest.LogCaptureFixture) -> None:
    loop.default_exception_handler({"message": "m", "source_traceback": traceback.extract_stack()})
    (record,) = caplog.records
    assert "\nsource_traceback: Object created at (most recent call last):\n" in record.message


def test_a_handler_that_fails_is_logged(loop: Loop, caplog: pytest.LogCaptureFixture) -> None:
    def handler(of: Loop, context: dict[str, Any]) -> None:
        raise KeyError("in the handler")

    loop.set_exception_handler(handler)
    loop.call_soon(boom)
    one_turn(loop)
    (record,) = caplog.records
    assert record.message.startswith("Unhandled error in exception handler")
    assert record.exc_info
    assert record.exc_info[0] is KeyError


def test_a_default_handler_that_fails_is_logged(
    loop: Loop, caplog: pytest.LogCaptureFixture
) -> None:
    class Odd:
        def __repr__(self) -> str:
            raise KeyError("no repr")

    loop.set_exception_handler(None)
    loop.call_exception_handler({"message": "m", "thing": Odd()})
    assert caplog.records[-1].message == "Exception in default exception handler"


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_exits_from_the_handler_leave_the_loop(loop: Loop, kind: type[BaseException]) -> None:
    def handler(of: Loop, context: dict[str, Any]) -> None:
        raise kind

    loop.set_exception_handler(handler)
    loop.call_soon(boom)
    with pytest.raises(kind) as raised:
        loop.run_forever()
    assert isinstance(raised.value.__context__, ZeroDivisionError)
    assert not loop.is_running()


def test_the_handler_runs_in_the_context_of_the_callback(loop: Loop) -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")
    seen: list[Any] = []
    loop.set_exception_handler(lambda of, context: seen.extend([of, variable.get()]))
    context = contextvars.copy_context()
    context.run(variable.set, "the callback's")
    loop.call_soon(boom, context=context)
    one_turn(loop)
    # 3.11 ran it in the context of run_forever's caller.
    assert seen == [loop, "the callback's" if sys.version_info >= (3, 12) else "unset"]


def test_unretrieved_task_exception_is_reported(loop: Loop, errors: Errors) -> None:
    async def fail() -> None:
        boom()

    task = loop.create_task(fail())
    loop.call_later(0.001, loop.stop)
    loop.run_forever()
    del task
    gc.collect()
    context = errors.expect(ZeroDivisionError, "Task exception was never retrieved")
    assert isinstance(context["future"], asyncio.Task)


def test_unretrieved_future_exception_is_reported(loop: Loop, errors: Errors) -> None:
    future = loop.create_future()
    future.set_exception(ZeroDivisionError())
    del future
    gc.collect()
    errors.expect(ZeroDivisionError, "Future exception was never retrieved")


def test_a_pending_task_that_is_destroyed_is_reported(loop_factory: LoopFactory) -> None:
    loop = loop_factory()
    errors = Errors()
    loop.set_exception_handler(errors)

    async def wait() -> None:
        await loop.create_future()

    task = loop.create_task(wait())
    one_turn(loop)
    loop.close()
    del task
    gc.collect()
    context = errors.expect(message="Task was destroyed but it is pending!")
    assert isinstance(context["task"], asyncio.Task)


# ---- the exception being handled during a callback -------------------------------------------


class Fails(asyncio.Protocol, asyncio.DatagramProtocol):  # type: ignore[misc]
    """Raises when something comes."""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        boom()

    def datagram_received(self, data: bytes, address: Any) -> None:
        boom()


async def of_a_callback(loop: Loop) -> None:
    loop.call_soon(boom)


async def of_a_timer(loop: Loop) -> None:
    loop.call_later(0, boom)


async def of_a_done_callback(loop: Loop) -> None:
    future = loop.create_future()
    future.add_done_callback(lambda _: boom())
    future.set_result(None)


async def of_a_stream(loop: Loop) -> None:
    near, far = socket.socketpair()
    await loop.create_connection(Fails, sock=near)
    far.send(b"data")
    await asyncio.sleep(0.01)
    far.close()


async def of_a_datagram(loop: Loop) -> None:
    transport, _ = await loop.create_datagram_endpoint(Fails, local_addr=("127.0.0.1", 0))
    transport.sendto(b"data", transport.get_extra_info("sockname"))
    await asyncio.sleep(0.01)
    transport.close()


FAILURES = [of_a_callback, of_a_timer, of_a_done_callback, of_a_stream, of_a_datagram]


@pytest.mark.parametrize("fails", FAILURES, ids=lambda each: each.__name__)
async def test_the_handler_runs_while_the_exception_is_handled(loop: Loop, fails: Any) -> None:
    """For `logging.exception()`; an exception of the handler has it as its context."""
    seen: list[Any] = []

    def handler(_: Loop, context: dict[str, Any]) -> None:
        seen.append((context["exception"], sys.exc_info()[1], traceback.format_exc()))

    loop.set_exception_handler(handler)
    await fails(loop)
    for _ in range(3):
        await asyncio.sleep(0.005)
    [(exc, handled, text)] = seen
    assert isinstance(exc, ZeroDivisionError)
    assert handled is exc
    assert text.endswith("ZeroDivisionError: boom\n")
    assert "as_handled" not in text
    assert sys.exc_info() == (None, None, None)


@pytest.mark.parametrize("cause", [False, True])
def test_exceptions_keep_cause_and_context_in_a_loop_within_except(loop: Loop, cause: bool) -> None:
    def fails() -> None:
        try:
            raise KeyError("first")
        except KeyError as error:
            raise ValueError("second") from (error if cause else None)

    seen: list[Any] = []
    loop.set_exception_handler(lambda _, context: seen.append(context["exception"]))
    loop.call_soon(fails)
    try:
        raise OSError("whoever runs the loop has this")
    except OSError:
        one_turn(loop)
    [exc] = seen
    assert isinstance(exc.__context__, KeyError)
    assert exc.__cause__ is (exc.__context__ if cause else None)
    assert exc.__suppress_context__
    names = [frame.name for frame in traceback.extract_tb(exc.__traceback__)]
    assert names[-1] == "fails"
    assert "as_handled" not in names


async def test_error_received_runs_with_the_error_being_handled(loop: Loop) -> None:
    class Notes(asyncio.DatagramProtocol):
        def error_received(self, exc: Exception) -> None:
            told.set_result((exc, sys.exc_info()[1]))

    told = loop.create_future()
    with socket.socket(type=socket.SOCK_DGRAM) as nobody:
        nobody.bind(("127.0.0.1", 0))
        address = nobody.getsockname()
    transport, _ = await loop.create_datagram_endpoint(Notes, remote_addr=address)
    transport.sendto(b"data")
    exc, handled = await asyncio.wait_for(told, 10)
    assert isinstance(exc, ConnectionRefusedError)
    assert handled is exc
    transport.close()
