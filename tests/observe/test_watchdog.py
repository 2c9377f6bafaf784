"""A blocked loop is reported while it is blocked, even if another thread has the GIL.

These tests measure no time: each block lasts until the report has come, so a report that comes
later or never ends in the test's time limit.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import gc
import importlib
import itertools
import json
import logging
import os
import pickle
import re
import select
import signal
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ended
import pytest
from observed_programs import Program

import goloop
from goloop import watchdog

SCENARIOS = Path(__file__).with_name("watchdog_scenarios.py")

LIMIT = 0.25  # seconds: a busy machine stops each process for a tenth
PATIENCE = 60.0

pytestmark = pytest.mark.skipif(
    os.environ.get("GOLOOP_TEST_LOOP") == "asyncio", reason="asyncio has no watchdog"
)

needs_gil = pytest.mark.skipif(
    bool(sysconfig.get_config_var("Py_GIL_DISABLED")), reason="there is no GIL to keep"
)

HERE = Path(__file__)
GIL_DISABLED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))


def line_of(mark: str) -> int:
    """Which line of this file ends with a comment."""
    lines = HERE.read_text().splitlines()
    return next(n for n, line in enumerate(lines, 1) if line.endswith(f"# {mark}"))


class Reports(list[watchdog.Blocked]):
    """The reports of the watchdog."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = threading.Event()
        self.reader, self.writer = os.pipe()

    def __call__(self, blocked: watchdog.Blocked) -> None:
        self.append(blocked)
        if not blocked.ended:
            os.write(self.writer, b"x")
            self.begun.set()


@contextlib.contextmanager
def subscribed() -> Iterator[Reports]:
    made = Reports()
    unsubscribe = watchdog.subscribe(made)
    yield made
    unsubscribe()
    unsubscribe()  # has no effect
    os.close(made.reader)
    os.close(made.writer)


@pytest.fixture
def reports(caplog: pytest.LogCaptureFixture) -> Iterator[Reports]:
    caplog.set_level(logging.WARNING, "goloop")
    watchdog._shown.clear()
    with subscribed() as made:
        yield made


def run(main: Any, limit: float = LIMIT) -> Any:
    async def body() -> Any:
        loop: Any = asyncio.get_running_loop()
        loop.set_watchdog(limit)
        return await main()

    try:
        return goloop.run(body())
    finally:
        all_is_told()


def all_is_told() -> None:
    """Wait until all threads of the watchdog have ended, also one that has just been started."""
    end = time.monotonic() + PATIENCE
    while any(thread.name == "goloop-watchdog" for thread in threading.enumerate()):
        assert time.monotonic() < end, "a thread of the watchdog still runs"
        time.sleep(0.001)


def spins(reports: Reports) -> None:
    end = time.monotonic() + PATIENCE
    while not reports.begun.is_set():
        assert time.monotonic() < end  # spins


def waits_in_c(reports: Reports) -> None:
    assert select.select([reports.reader], [], [], PATIENCE)[0]  # waits in C


def blocks_by(what: Callable[[Reports], None], reports: Reports) -> Callable[[], Any]:
    """Return a main function that blocks once."""

    async def main() -> None:
        what(reports)

    return main


@pytest.mark.parametrize(
    ("what", "mark"), [(spins, "spins"), (waits_in_c, "waits in C")], ids=["spins", "in-c"]
)
def test_a_block_is_reported_with_its_line_and_task(
    what: Callable[[Reports], None], mark: str, reports: Reports, caplog: pytest.LogCaptureFixture
) -> None:
    async def blocks() -> None:
        await asyncio.sleep(0)
        what(reports)

    async def main() -> float:
        loop: Any = asyncio.get_running_loop()
        inner = asyncio.create_task(blocks(), name="inner")
        outer = asyncio.create_task(asyncio.wait([inner]), name="outer")
        await outer
        metrics = loop.metrics()
        assert metrics.blocked_spells == 1
        assert metrics.blocked_for == 0.0
        return metrics.time_blocked

    blocked = run(main)
    begin, end = reports[:2]  # a machine that stands still makes more
    assert begin.serial == end.serial == 1
    assert blocked == pytest.approx(end.duration, rel=1e-6)
    assert begin.duration >= LIMIT
    assert end.duration >= begin.duration
    assert begin.thread_id == threading.get_ident()
    assert begin.task == "inner"
    assert begin.awaiters[0] == "outer"
    assert begin.stack == end.stack
    where = next(frame for frame in begin.stack if frame.function == what.__name__)
    assert where.file == str(HERE)
    # The line is one of the loop's two, or the call's.
    assert abs(where.line - line_of(mark)) <= 1
    assert begin.gil_holder == ()
    assert abs(begin.started - time.time()) < PATIENCE
    logged = [record for record in caplog.records if record.name == "goloop"]
    assert [record.levelno for record in logged[:2]] == [logging.WARNING] * 2
    assert "has been blocked for" in logged[0].getMessage()
    assert "'inner', awaited by 'outer'" in logged[0].getMessage()
    # The message is one line; formatters print the stack below it.
    assert "\n" not in logged[0].getMessage()
    stack = logged[0].exc_text or ""
    assert f'File "{HERE}", line {where.line}, in {what.__name__}' in stack
    assert logging.Formatter().format(logged[0]) == f"{logged[0].getMessage()}\n{stack}"
    # Below the frames that run the loop: the coroutine is the first of a task's step.
    assert [frame.function for frame in begin.stack].count("Running.run_forever") == 1
    assert stack.split("\n")[0].endswith(".blocks")
    assert "was blocked for" in logged[1].getMessage()
    assert logged[1].exc_text is None
    number = begin.loop._loop_number
    for record, block in zip(logged[:2], (begin, end), strict=True):
        assert f"[loop {number}, MainThread, block 1]" in record.getMessage()
        at = block.stack[-1]
        more = {name: each for name, each in vars(record).items() if name.startswith("goloop_")}
        assert more == {
            "goloop_function": at.function,
            "goloop_file": at.file,
            "goloop_line": at.line,
            "goloop_block": 1,
            "goloop_task": "inner",
            "goloop_loop": number,
            "goloop_seconds": block.duration,
            "goloop_gc": block.gc,
            "goloop_cpu": block.cpu,
            "goloop_callbacks": block.callbacks,
            "goloop_stack": block.format_stack(),
            "goloop_thread": block.thread_id,
            "goloop_thread_name": "MainThread",
            "goloop_ended": block.ended,
            "goloop_shares": [(frame.function, spent) for spent, frame in block.shares],
            "goloop_importing": False,
        }


class Imports:
    """Imports a module that blocks the loop until the watchdog has reported the block."""

    def __init__(self, reports: Reports, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.block = lambda: waits_in_c(reports)
        (folder / "slowly_imported.py").write_text("import imports_hook\nimports_hook.block()\n")
        patch.syspath_prepend(folder)
        patch.setitem(sys.modules, "imports_hook", self)
        patch.delitem(sys.modules, "slowly_imported", raising=False)

    def __call__(self) -> None:
        importlib.import_module("slowly_imported")


@pytest.fixture
def imports(reports: Reports, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Imports:
    return Imports(reports, tmp_path, monkeypatch)


def test_imports_before_the_first_event_are_information(
    reports: Reports, imports: Imports, caplog: pytest.LogCaptureFixture
) -> None:
    # As in a server that loads the application in the loop.
    caplog.set_level(logging.INFO, "goloop")

    async def main() -> None:
        imports()

    run(main)
    assert [each.importing for each in reports] == [True, True]
    assert [each.levelno for each in caplog.records] == [logging.INFO] * 2
    assert [each.exc_text for each in caplog.records] == [None] * 2
    begun, ended = (each.getMessage() for each in caplog.records)
    assert begun.startswith(f"the event loop of process {os.getpid()} has been importing modules")
    assert ended.startswith(f"the event loop of process {os.getpid()} was importing modules for ")
    assert ", before its first event, task " in begun
    assert "< <module>:2, " in begun


def test_an_import_in_a_loop_that_has_had_events_is_a_block(
    reports: Reports, imports: Imports, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        await asyncio.sleep(0.001)
        imports()

    run(main)
    assert [each.importing for each in reports[:2]] == [False, False]
    begun = caplog.records[0]
    assert begun.levelno == logging.WARNING
    assert begun.getMessage().startswith(
        f"the event loop of process {os.getpid()} has been blocked"
    )
    assert ", in an import, task " in begun.getMessage()
    assert "slowly_imported.py" in (begun.exc_text or "")


def test_other_blocks_before_the_first_event_are_warnings(
    reports: Reports, caplog: pytest.LogCaptureFixture
) -> None:
    run(blocks_by(waits_in_c, reports))
    assert not reports[0].importing
    assert caplog.records[0].levelno == logging.WARNING


def test_time_in_unknown_calls_has_no_place(reports: Reports) -> None:
    run(blocks_by(waits_in_c, reports))
    unknown, known = watchdog.Frame("?", "", 0), watchdog.Frame("f", "/app/app.py", 3)
    other = watchdog.Frame("g", "/app/app.py", 9)
    ended = reports[1]._replace(duration=1.0)

    def shown(*shares: tuple[float, watchdog.Frame]) -> str:
        return str(ended._replace(shares=shares))

    assert "time: 40% f (line 3), 30% g (line 9)" in shown(
        (0.4, known), (0.3, other), (0.3, unknown)
    )
    assert "time: " not in shown((0.7, known), (0.3, unknown))


def test_report_can_be_copied(reports: Reports) -> None:
    """The loop of a report is the same in a copy; it can be neither pickled nor copied deeply."""

    run(blocks_by(waits_in_c, reports))
    copied = copy.copy(reports[1])
    assert copied == reports[1]
    assert copied is not reports[1]
    assert (hash(copied), repr(copied)) == (hash(reports[1]), repr(reports[1]))
    with pytest.raises(AttributeError, match="cannot assign to field 'serial'"):
        copied.serial = 7
    for call in (copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match=r"cannot pickle '.*Loop' object"):
            call(reports[1])


def test_a_later_stack_with_the_same_own_call_is_not_repeated(reports: Reports) -> None:
    run(blocks_by(waits_in_c, reports))
    own, other = (watchdog.Frame(name, "/app/app.py", 3) for name in "fg")
    inner, deeper = (watchdog.Frame(name, os.__file__, 9) for name in ("walk", "scandir"))
    later = ((0.2, (own, inner, deeper)), (0.4, (other,)), (0.8, (other,)))
    text = str(reports[1]._replace(stack=(own, inner), later=later))
    assert re.findall(r"after (\S+) s in (\w+)", text) == [("0.400", "g")]


def test_the_stack_of_a_place_is_shown_once_in_a_while(
    reports: Reports, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        for _ in range(3):
            waits_in_c(reports)
            os.read(reports.reader, 1)
            await asyncio.sleep(0)

    def told() -> list[logging.LogRecord]:
        records = [each for each in caplog.records if "has been" in each.getMessage()]
        caplog.clear()
        return records

    monkeypatch.setattr(watchdog, "_REPEATS_SECONDS", 1000.0)
    run(main)
    first, second, third = told()
    assert "in waits_in_c" in (first.exc_text or "")
    assert second.getMessage().endswith(", 2 times in 1000 s")
    assert third.getMessage().endswith(", 3 times in 1000 s")
    assert second.exc_text is third.exc_text is None
    monkeypatch.setattr(watchdog, "_REPEATS_SECONDS", 0.0)
    run(main)
    assert all(each.exc_text for each in told())


def test_a_service_can_group_records_by_their_format(
    reports: Reports, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        for what in waits_in_c, waits_in_c, spins:
            reports.begun.clear()
            what(reports)
            assert reports.begun.wait(PATIENCE)
            if what is waits_in_c:
                os.read(reports.reader, 1)
            await asyncio.sleep(0)

    run(main)
    first, second, third = [
        str(each.msg).partition("[")[0] for each in caplog.records if "has been" in str(each.msg)
    ]
    assert first.replace(", %d times", "") == second.replace(", %d times", "")
    assert "in waits_in_c (observe/test_watchdog.py:%d" in first
    assert "in spins (" in third


def test_reported_place_is_the_programs_own_code() -> None:
    library = "/usr/lib/python3.12/"
    stack = tuple(
        watchdog.Frame(function, file, line)
        for function, file, line in [
            ("<module>", "/app/main.py", 90),
            ("Running.run_forever", watchdog.__file__, 50),
            ("App.__call__", library + "site-packages/starlette/app.py", 1),
            ("run", library + "site-packages/starlette/routes.py", 2),
            ("run", library + "site-packages/fastapi/routing.py", 3),
            ("100%", "/app/api/handlers.py", 40),
            ("get", library + "site-packages/requests.py", 7),
            ("recv_into", library + "socket.py", 8),
        ]
    )
    assert watchdog._format_own_frames(stack).split("\n") == [
        "  ... 3 calls in starlette, fastapi",
        '  File "/app/api/handlers.py", line 40, in 100%',
        "  ... 1 call in requests",
        f'  File "{library}socket.py", line 8, in recv_into',
    ]
    name, line, rest = watchdog._innermost_own_call(stack)
    assert f"{name}:{line}{rest}" == "100% (api/handlers.py:40)"
    deep = tuple(watchdog.Frame(f"f{i}", "/app/deep.py", i) for i in range(40))
    assert watchdog._format_own_frames(deep).split("\n")[0] == "  ..."
    assert watchdog._format_own_frames(deep).count("File") == 12
    assert watchdog._innermost_own_call(deep) == ("f39 (app/deep.py", 39, ") < f38:38 < f37:37")


def test_block_in_several_places_has_several_stacks(
    reports: Reports, caplog: pytest.LogCaptureFixture
) -> None:
    def logged() -> list[str]:
        return [each.exc_text for each in caplog.records if each.exc_text]

    def goes_on_in(count: int) -> None:
        end = time.monotonic() + PATIENCE
        found = 0
        while found < count:  # no call of Python's: a report has the three innermost
            assert time.monotonic() < end
            found = 0
            for each in tuple(caplog.records):
                if each.exc_text:
                    found += 1

    def first() -> None:
        goes_on_in(1)

    def second() -> None:
        goes_on_in(2)

    def stays() -> None:
        began = time.monotonic()
        while time.monotonic() < began + 4 * LIMIT:
            pass

    async def main() -> None:
        first()
        second()
        stays()

    run(main)
    begin, end = reports
    assert begin.later == ()
    assert any(frame.function.endswith(".first") for frame in begin.stack)
    (at, stack), *_ = end.later
    assert at >= 2 * LIMIT
    assert any(frame.function.endswith(".second") for frame in stack)
    assert [seconds for seconds, _ in end.later] == sorted(seconds for seconds, _ in end.later)
    assert len(end.later) <= 3
    one, two, *_ = logged()
    assert ".first" in one
    assert ".second" in two
    assert ".second" not in one
    ended = [each.getMessage() for each in caplog.records if "was blocked" in each.getMessage()]
    assert ".second" in ended[0]
    assert len(reports) == 2


def test_many_short_callbacks_are_reported_as_such(
    reports: Reports, caplog: pytest.LogCaptureFixture
) -> None:
    ran = itertools.count()

    def short(again: bool = True) -> None:
        next(ran)
        end = time.monotonic() + LIMIT / 100
        while time.monotonic() < end:
            pass

    async def main() -> None:
        loop = asyncio.get_running_loop()
        for _ in range(400):
            loop.call_soon(short)
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    run(main)
    begin, end = reports
    assert 1 < begin.callbacks <= 402
    assert end.callbacks >= 400
    # A machine that is busy with others makes one of them long now and then.
    assert begin.callback_time < begin.duration
    assert begin.cpu is not None
    assert end.cpu is not None
    assert 0 <= begin.cpu <= end.cpu <= end.duration
    assert " callbacks in this iteration" in watchdog._message(end, end.stack)[1][-4]
    caplog.clear()
    reports.clear()
    reports.begun.clear()

    os.read(reports.reader, 1)
    run(blocks_by(waits_in_c, reports))
    assert not any(" callbacks in" in each.getMessage() for each in caplog.records)
    # The thread has waited, and used no processor time.
    begin, end = reports[:2]
    assert end.cpu is not None
    assert end.cpu < end.duration / 2


def test_log_lines_identify_the_loop(reports: Reports, caplog: pytest.LogCaptureFixture) -> None:
    async def blocks() -> None:
        loop: Any = asyncio.get_running_loop()
        loop.set_watchdog(LIMIT)
        while len({each.loop for each in reports}) < 2:
            time.sleep(0.001)

    threads = [
        threading.Thread(target=goloop.run, args=(blocks(),), name=f"of-{i}") for i in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    all_is_told()
    found = [
        (each[1], each[2])
        for record in caplog.records
        if (each := re.search(r"\[(loop \d+, (of-\d), block 1)\]", record.getMessage()))
    ]
    begun = {name: key for key, name in found}
    # Begin and end of each have the same words.
    assert sorted(found) == sorted(2 * [(begun[name], name) for name in ("of-0", "of-1")])
    assert begun["of-0"] != begun["of-1"]


def test_awaiters_are_named_through_gather_and_shield(reports: Reports) -> None:
    async def blocks() -> None:
        await asyncio.sleep(0)
        spins(reports)

    async def gathers(inner: asyncio.Task[None]) -> None:
        await asyncio.gather(asyncio.shield(inner), asyncio.sleep(0))

    async def main() -> None:
        inner = asyncio.create_task(blocks(), name="inner")
        gathering = asyncio.create_task(gathers(inner), name="gathers")
        await asyncio.create_task(asyncio.wait([gathering]), name="outer")

    run(main)
    assert reports[0].awaiters[:2] == ("gathers", "outer")


def test_a_block_is_reported_once(reports: Reports) -> None:
    async def main() -> None:
        spins(reports)
        until = time.monotonic() + 4 * LIMIT
        while time.monotonic() < until:
            pass
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    run(main)
    assert [each.ended for each in reports] == [False, True]


def test_each_block_has_its_own_report(reports: Reports) -> None:
    async def main() -> None:
        for _ in range(3):
            reports.begun.clear()
            spins(reports)
            while len(reports) % 2:
                await asyncio.sleep(0.001)

    run(main)
    assert [(each.serial, each.ended) for each in reports] == [
        (serial, ended) for serial in (1, 2, 3) for ended in (False, True)
    ]


def test_late_watchdog_thread_ignores_a_closed_loop(
    reports: Reports, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, closed = threading.Event(), threading.Event()
    tell, failed = watchdog._report_block, list[Any]()

    def late(thread: Any, loop: Any) -> None:
        begun.set()
        assert closed.wait(PATIENCE)
        tell(thread, loop)

    monkeypatch.setattr(watchdog, "_report_block", late)
    monkeypatch.setattr(threading, "excepthook", failed.append)

    async def body() -> None:
        loop: Any = asyncio.get_running_loop()
        loop.set_watchdog(LIMIT)
        assert begun.wait(PATIENCE)

    goloop.run(body())
    closed.set()
    all_is_told()
    assert failed == []
    assert [each.ended for each in reports] == [False, True]


@pytest.mark.parametrize("leaves", [KeyboardInterrupt("of a test"), SystemExit(3)], ids=repr)
def test_end_of_a_block_is_reported_though_an_exception_leaves_run(
    reports: Reports, leaves: BaseException
) -> None:
    told_with: list[Any] = []
    unsubscribe = watchdog.subscribe(lambda blocked: told_with.append(sys.exception()))

    def fails() -> None:
        spins(reports)
        raise leaves

    loop = goloop.new_event_loop()
    loop.set_watchdog(LIMIT)
    for serial in 1, 2:
        reports.begun.clear()
        loop.call_soon(fails)
        with pytest.raises(type(leaves)) as caught:
            loop.run_forever()
        assert caught.value is leaves
        until = time.monotonic() + PATIENCE
        while len(reports) < 2 * serial:  # the thread that reported the beginning may still run
            assert time.monotonic() < until
            time.sleep(0.001)
    loop.close()
    unsubscribe()
    assert [(each.serial, each.ended) for each in reports] == [
        (1, False),
        (1, True),
        (2, False),
        (2, True),
    ]
    assert told_with == [None] * 4


def test_interrupt_during_the_end_report_has_the_exception_as_context(
    reports: Reports, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(loop: Any, seconds: float) -> None:
        raise KeyboardInterrupt("while it is told")

    monkeypatch.setattr(watchdog, "report_end", interrupted)

    def fails() -> None:
        spins(reports)
        raise SystemExit(3)

    loop = goloop.new_event_loop()
    loop.set_watchdog(LIMIT)
    loop.call_soon(fails)
    with pytest.raises(KeyboardInterrupt, match="while it is told") as caught:
        loop.run_forever()
    loop.close()
    context = caught.value.__context__
    assert isinstance(context, SystemExit)
    assert context.code == 3


def test_code_outside_a_run_is_not_a_block(reports: Reports) -> None:
    runner = asyncio.Runner(loop_factory=goloop.new_event_loop)
    loop: Any = runner.get_loop()
    loop.set_watchdog(LIMIT)
    runner.run(asyncio.sleep(0))
    time.sleep(3 * LIMIT)
    runner.run(asyncio.sleep(0))
    # A loop that sleeps is not blocked either.
    runner.run(asyncio.sleep(3 * LIMIT))
    runner.close()
    assert reports == []


def test_a_limit_of_0_reports_nothing(reports: Reports) -> None:
    async def quiet() -> None:
        loop: Any = asyncio.get_running_loop()
        loop.set_watchdog(0)
        spins(reports)  # until the other loop's block is reported, which began later

    thread = threading.Thread(target=goloop.run, args=(quiet(),))
    thread.start()
    run(blocks_by(spins, reports))
    thread.join()
    assert len(reports) == 2
    assert len({id(each.loop) for each in reports}) == 1


def test_garbage_collection_time_is_reported(reports: Reports) -> None:
    class Slow:
        def __init__(self) -> None:
            self.itself = self

        def __del__(self) -> None:
            spins(reports)

    async def main() -> None:
        Slow()
        gc.collect()

    run(main)
    begin, end = reports
    assert 0 < begin.gc <= begin.duration
    assert begin.gc <= end.gc <= end.duration
    assert end.gc > end.duration / 2
    assert any(frame.function.endswith("Slow.__del__") for frame in begin.stack)
    assert goloop.metrics().gc_time >= end.gc


@pytest.mark.parametrize("kind", [ZeroDivisionError, SystemExit, KeyboardInterrupt])
def test_a_subscriber_that_fails_is_logged(
    kind: type[BaseException], reports: Reports, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(blocked: watchdog.Blocked) -> None:
        raise kind("of a test")

    unsubscribe = watchdog.subscribe(fails)
    # The subscriber that fails is called first; the later one must be called, too.
    with subscribed() as last:
        run(blocks_by(spins, last))
    unsubscribe()
    assert len(last) == len(reports) == 2
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [kind] * 2


def test_failing_log_of_a_failed_subscriber_does_not_affect_the_others(
    reports: Reports, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Refusing(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.exc_info:
                raise OSError("of a test")

    def fails(blocked: watchdog.Blocked) -> None:
        raise ZeroDivisionError

    shown: list[Any] = []
    monkeypatch.setattr(sys, "excepthook", lambda kind, value, traceback: shown.append(kind))
    handler = Refusing()
    watchdog.logger.addHandler(handler)
    unsubscribe = watchdog.subscribe(fails)
    try:
        with subscribed() as last:
            run(blocks_by(spins, last))
    finally:
        watchdog.logger.removeHandler(handler)
        unsubscribe()
    assert [each.ended for each in last] == [False, True]
    assert shown == [OSError] * 2


def test_an_interrupt_of_the_log_stops_no_later_report(reports: Reports) -> None:
    class Interrupted(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise KeyboardInterrupt

    run(blocks_by(spins, reports))
    begin, end = reports
    handler = Interrupted()
    watchdog.logger.addHandler(handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            watchdog._publish((begin, 0), (end, 0))
    finally:
        watchdog.logger.removeHandler(handler)
    assert reports == [begin, end]
    watchdog._publish()  # reports the remaining events after the interrupt
    assert reports == [begin, end, end]
    reports.begun.clear()
    run(blocks_by(spins, reports))
    assert [each.ended for each in reports[3:]] == [False, True]


def test_end_report_follows_begin_report_without_blocking_the_loop(reports: Reports) -> None:
    passed = threading.Event()
    events: list[str] = []

    def slow(blocked: watchdog.Blocked) -> None:
        if blocked.ended:
            events.append("end")
            return
        events.append("begin")
        assert passed.wait(PATIENCE)  # the loop goes on meanwhile
        events.append("begun")

    async def main() -> None:
        spins(reports)
        await asyncio.sleep(0.001)
        passed.set()

    unsubscribe = watchdog.subscribe(slow)
    run(main)
    unsubscribe()
    assert events == ["begin", "begun", "end"]


def test_unsubscribed_callback_gets_no_reports(reports: Reports) -> None:
    with subscribed() as gone:
        pass
    run(blocks_by(spins, reports))
    assert gone == []
    assert reports


@pytest.mark.parametrize("limit", [-1, float("nan"), float("inf"), 1e9])
def test_invalid_limit_is_refused(limit: float) -> None:
    loop = goloop.new_event_loop()
    try:
        with pytest.raises(ValueError, match="limit must be >= 0"):
            loop.set_watchdog(limit)
        with pytest.raises(ValueError, match="abort_after must be >= 0"):
            loop.set_watchdog(1, abort_after=limit)
    finally:
        loop.close()
    with pytest.raises(RuntimeError, match="closed"):
        loop.set_watchdog(1)


# ---- programs of their own ------------------------------------------------------------


# Python 3.12 does not show which thread has the GIL.
HELD = "has not been written yet" if sys.version_info[:2] == (3, 12) else ", and the GIL is held"


def program(name: str, *arguments: object, **environment: str) -> Program:
    return Program(
        [sys.executable, SCENARIOS, name, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )


def read_report(process: Program, last: str) -> list[str]:
    """Return the program's output on stderr up to the line that ends with `last`."""
    lines: list[str] = []
    while not (lines and lines[-1].endswith(last)):
        line = process.stderr.readline()
        assert line, lines
        lines.append(line.rstrip("\n"))
    return lines


@needs_gil
def test_c_function_is_named_while_it_keeps_the_gil() -> None:
    with program("c_function_is_named_while_it_keeps_the_gil") as process:
        lines = read_report(process, "in keeps_the_gil")
        assert "has been blocked for" in lines[0]
        assert HELD in lines[0]
        assert f"process {process.pid} " in lines[0]
        assert lines[0].endswith(f" [loop 1, thread {process.pid}, block 1]")
        # The stack begins in the scenario, without asyncio.run() and the module.
        assert lines[1].endswith(" in c_function_is_named_while_it_keeps_the_gil")
        # The program continues, and reports the earlier block.
        out, err = process.communicate()
    assert out == "[False, True]\n"
    assert "has been blocked for" in err
    assert "was blocked for" in err


@pytest.mark.skipif(not GIL_DISABLED, reason="there is a GIL")
def test_held_gil_is_never_reported_without_a_gil() -> None:
    with program("held_gil_is_never_reported_without_a_gil") as process:
        [line] = read_report(process, "]")
        _, err = process.communicate()
    assert "and the log message has not been written yet" in line
    assert "another thread" not in err


@needs_gil
def test_a_regular_expression_is_named_while_it_searches() -> None:
    with program("a_regular_expression_is_named_while_it_searches") as process:
        try:
            lines = read_report(process, "match")  # prefixmatch from 3.15 on
        finally:
            process.kill()
    assert any(line.endswith("in searches") for line in lines)


@needs_gil
def test_another_thread_that_keeps_the_gil_is_named() -> None:
    with program("another_thread_that_keeps_the_gil_is_named") as process:
        if sys.version_info[:2] == (3, 12):
            lines = read_report(process, "")
        else:
            lines = read_report(process, "in keeps_the_gil")
            assert any("another thread holds the GIL" in line for line in lines)
        assert HELD in lines[0]
        _, err = process.communicate()
    assert process.returncode == 0
    assert "was blocked for" in err


@needs_gil
def test_a_loop_that_gets_no_gil_after_its_poll_is_blocked() -> None:
    with program("a_loop_that_gets_no_gil_after_its_poll_is_blocked") as process:
        lines = read_report(process, "" if sys.version_info[:2] == (3, 12) else "in keeps_the_gil")
        assert HELD in lines[0]
        _, err = process.communicate()
    assert process.returncode == 0
    assert "was blocked for" in err


def test_threads_that_take_turns_hold_no_gil() -> None:
    """With a limit in which Python gives the GIL up once or twice at most."""
    with program("threads_that_take_turns_hold_no_gil") as process:
        _, err = process.communicate()
    assert process.returncode == 0, err
    # A busy machine may take the processor from a thread that has it, for so long.
    assert err.count(", and the GIL is held") < 5


def test_failing_log_does_not_stop_further_reports() -> None:
    """The report would need the lock of the handler that blocks the loop."""
    with program("failing_log_does_not_stop_further_reports") as process:
        try:
            first = process.stderr.readline()
            more = first if GIL_DISABLED else read_report(process, "StreamHandler.flush")[-1]
        finally:
            process.kill()
    assert "has been blocked for" in first
    if not GIL_DISABLED:  # there the stack is had with a lock
        assert ", and a log handler delays the log message [loop 1, " in first
        assert "logging/__init__.py" in more


def test_logged_blocks_are_not_repeated_on_stderr() -> None:
    # Without a GIL a look at the stack stops all threads, which takes its time on a busy machine.
    limit = 1.6 if GIL_DISABLED else 0.8
    with program("logged_blocks_are_not_repeated_on_stderr", limit) as process:
        _, err = process.communicate()
    assert "goloop: the event loop" not in err


@needs_gil
def test_stderr_gets_json_where_that_is_wanted() -> None:
    with program("stderr_gets_json_where_that_is_wanted", GOLOOP_WATCHDOG_STDERR="json") as process:
        told = json.loads(process.stderr.readline())
        _, err = process.communicate()
    assert "was blocked for" in err
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", told["time"])
    assert HELD in told["message"]
    assert told["level"] == "WARNING"
    assert told["logger"] == "goloop"
    assert told["process"] == told["goloop_native_thread"] == process.pid
    assert told["goloop_loop"] == told["goloop_block"] == 1
    assert told["goloop_function"] == "keeps_the_gil"
    assert told["goloop_file"] == str(SCENARIOS)
    assert told["goloop_seconds"] >= 0.2
    names = [each[0].rpartition(".")[2] for each in told["stack"]]
    assert names == ["main", "keeps_the_gil"]
    assert told["stack"][-1] == ["keeps_the_gil", str(SCENARIOS), told["goloop_line"]]
    assert told["gil_holder"] == []


def test_the_environment_sets_the_limit() -> None:
    assert (
        ended.passes(SCENARIOS, "the_environment_sets_the_limit", GOLOOP_WATCHDOG="0.05")
        == "[False, True]\n"
    )


def test_invalid_watchdog_limit_gives_a_warning() -> None:
    done = ended.python(
        SCENARIOS, "invalid_limit_gives_a_warning", apart=True, GOLOOP_WATCHDOG="soon"
    )
    assert done.stdout == "ran\n"
    warning = "GOLOOP_WATCHDOG='soon' is not a number of seconds; using the default 1"
    assert f"RuntimeWarning: {warning}" in done.stderr


@pytest.mark.parametrize("what", ["keeps_the_gil", "spins"])
def test_the_process_gives_up(what: str) -> None:
    limits = {"GOLOOP_WATCHDOG": "0", "GOLOOP_WATCHDOG_ABORT": "0.2"}
    with program("the_process_gives_up", what, **limits) as process:
        err = process.stderr.read()
    assert process.returncode == -signal.SIGABRT
    assert "aborting the process" in err
    assert re.search(rf"in (\S+\.)?{what}\n", err)


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="no SIGSTOP")
def test_a_process_that_was_stopped_is_not_blocked() -> None:
    with program("a_process_that_was_stopped_is_not_blocked") as process:
        assert process.stdout.readline() == "ready\n"
        os.kill(process.pid, signal.SIGSTOP)
        time.sleep(1.5)
        os.kill(process.pid, signal.SIGCONT)
        out, err = process.communicate()
    assert out == "[]\n", err


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_child_has_a_watchdog_of_its_own() -> None:
    assert ended.passes(SCENARIOS, "a_forked_child_has_a_watchdog_of_its_own") == "well\n"


def test_block_ends_though_imports_are_impossible(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that has given up its rights."""
    import goloop._internal.observe as room

    loop = goloop.new_event_loop()

    monkeypatch.delattr(room, "profiling", raising=False)
    monkeypatch.setitem(sys.modules, "goloop._internal.observe.profiling", None)
    loop.set_watchdog(0.02)
    seen: list[watchdog.Blocked] = []
    unsubscribe = watchdog.subscribe(seen.append)
    loop.call_soon(time.sleep, 0.1)
    loop.run_until_complete(asyncio.sleep(0.05))
    unsubscribe()
    loop.close()
    assert [each.ended for each in seen] == [False, True]
