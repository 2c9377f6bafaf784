"""What reaches the exception handler, in which words, and what the default one logs."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import logging
from typing import Any

import pytest
from conftest import Errors, LoopFactory
from protocols import one_turn

Loop = asyncio.AbstractEventLoop


def boom() -> None:
    raise ZeroDivisionError("boom")


def run_once(loop: Loop) -> None:
    one_turn(loop)


def test_an_exception_in_a_callback_is_reported_with_its_handle(loop: Loop, errors: Errors) -> None:
    handle = loop.call_soon(boom)
    run_once(loop)
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


def test_debug_mode_adds_the_source_traceback(loop: Loop, errors: Errors) -> None:
    loop.set_debug(True)
    loop.call_soon(boom)
    run_once(loop)
    context = errors.expect(ZeroDivisionError, "Exception in callback boom()")
    assert context["source_traceback"][-1].filename == __file__


def test_the_callbacks_behind_a_failure_still_run(loop: Loop, errors: Errors) -> None:
    ran: list[int] = []
    loop.call_soon(boom)
    loop.call_soon(ran.append, 1)
    run_once(loop)
    assert ran == [1]
    errors.expect(ZeroDivisionError)


def test_get_exception_handler_tells_what_was_set(loop: Loop, errors: Errors) -> None:
    assert loop.get_exception_handler() is errors
    loop.set_exception_handler(None)
    assert loop.get_exception_handler() is None
    with pytest.raises(TypeError, match="A callable object or None is expected, got 5"):
        loop.set_exception_handler(5)  # type: ignore[arg-type]
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
    run_once(loop)
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
    import traceback

    loop.default_exception_handler({"message": "m", "source_traceback": traceback.extract_stack()})
    (record,) = caplog.records
    assert "\nsource_traceback: Object created at (most recent call last):\n" in record.message


def test_a_handler_that_fails_is_logged(loop: Loop, caplog: pytest.LogCaptureFixture) -> None:
    def handler(of: Loop, context: dict[str, Any]) -> None:
        raise KeyError("in the handler")

    loop.set_exception_handler(handler)
    loop.call_soon(boom)
    run_once(loop)
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
    with pytest.raises(kind):
        loop.run_forever()
    assert not loop.is_running()


def test_the_handler_is_called_with_the_loop(loop: Loop) -> None:
    seen: list[Any] = []
    loop.set_exception_handler(lambda of, context: seen.append(of))
    loop.call_soon(boom)
    run_once(loop)
    assert seen == [loop]


def test_the_handler_runs_in_the_context_of_the_callback(loop: Loop) -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")
    seen: list[str] = []
    loop.set_exception_handler(lambda of, context: seen.append(variable.get()))
    context = contextvars.copy_context()
    context.run(variable.set, "the callback's")
    loop.call_soon(boom, context=context)
    run_once(loop)
    import sys

    # 3.11 ran it in the context of run_forever's caller.
    assert seen == ["the callback's" if sys.version_info >= (3, 12) else "unset"]


def test_a_task_exception_that_nobody_took_is_reported(loop: Loop, errors: Errors) -> None:
    async def fail() -> None:
        boom()

    task = loop.create_task(fail())
    loop.call_later(0.001, loop.stop)
    loop.run_forever()
    del task
    gc.collect()
    context = errors.expect(ZeroDivisionError, "Task exception was never retrieved")
    assert isinstance(context["future"], asyncio.Task)


def test_a_future_exception_that_nobody_took_is_reported(loop: Loop, errors: Errors) -> None:
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
