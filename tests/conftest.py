"""Fixtures of all Python tests: the two loops, and the checks after each test.

The same test runs on asyncio and on goloop, so that the two can't drift apart:
the `loop` and `loop_factory` fixtures are parametrised.  GOLOOP_TEST_LOOP names
one of the two ("asyncio", "goloop"), or another module with new_event_loop(), as "uvloop";
unset, the two run.  An `async def` test runs on the `loop` fixture that it has to name.

After each test that used a loop these hold, or the test fails:

* the process has exactly the file descriptors that it had before;
* nothing reached the loop's exception handler except errors that the test named by
  `errors.expect(...)` or removed from `errors.contexts`;
* no thread is left that was not there before.

The other fixtures are small tools that several areas need.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import importlib.util
import inspect
import os
import pkgutil
import re
import signal
import socket
import sys
import threading
import time
import warnings
import zlib
from collections.abc import Callable, Generator, Iterator
from typing import Any

import limits
import pytest

# A shell that starts the tests in the background lets them ignore SIGINT, and so would
# every program that a test starts: Python then raises no KeyboardInterrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# nohup, and a shell that starts the tests in the background, let them ignore these, too.
for _ignored in (signal.SIGHUP, signal.SIGQUIT):
    if signal.getsignal(_ignored) is signal.SIG_IGN:
        signal.signal(_ignored, signal.SIG_DFL)

# On a busy machine, or under a sanitizer, any test's program may be blocked for a second, and the
# watchdog's report would stand in the output that the test reads.  Tests of the default remove it.
os.environ.setdefault("GOLOOP_WATCHDOG", "30")

LoopFactory = Callable[[], asyncio.AbstractEventLoop]

LOOP_NAMES = (
    [os.environ["GOLOOP_TEST_LOOP"]]
    if os.environ.get("GOLOOP_TEST_LOOP", "both") != "both"
    else ["asyncio", "goloop"]
)


def factory_of(name: str) -> LoopFactory:
    """The function that makes a loop of the given kind."""
    if name == "asyncio":
        return asyncio.SelectorEventLoop
    made: LoopFactory = importlib.import_module(name).new_event_loop
    return made


def pytest_collection_finish() -> None:
    """Freeze the objects that exist before the first test, so that collections skip them."""
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests that may take longer than others come first, so that none is left alone at the end.

    Of asyncio's loop, whose code does not change, GOLOOP_TEST_PART=1 leaves every third test.
    The mark `report` becomes a property of the results, which tools/proof.py reads.
    """
    for item in items:
        item.user_properties += [("report", each.args[0]) for each in item.iter_markers("report")]
    if os.environ.get("GOLOOP_TEST_PART") == "1" and len(LOOP_NAMES) > 1:
        left_out = {
            item
            for item in items
            if getattr(item, "callspec", None) is not None
            and "asyncio" in item.callspec.params.values()
            and zlib.crc32(item.nodeid.encode()) % 3
        }
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]
    limits = [item.get_closest_marker("timeout") for item in items]
    seconds = {item: mark.args[0] for item, mark in zip(items, limits, strict=True) if mark}
    items.sort(key=lambda item: -seconds.get(item, 0))


def pytest_configure(config: pytest.Config) -> None:
    """Unclosed resources and unretrieved exceptions fail the test; tests have limits."""
    config.pluginmanager.register(limits, "goloop-limits")
    for category in (
        "ResourceWarning",
        "pytest.PytestUnraisableExceptionWarning",
        "pytest.PytestUnhandledThreadExceptionWarning",
    ):
        config.addinivalue_line("filterwarnings", f"error::{category}")
    # goloop must not use features that a Python version deprecates.
    package = importlib.util.find_spec("goloop")
    for module in pkgutil.iter_modules(package and package.submodule_search_locations):
        name = f"goloop.{module.name}"
        config.addinivalue_line("filterwarnings", f"error::DeprecationWarning:{name}")

    cache = getattr(config, "cache", None)  # none under -p no:cacheprovider
    if cache is not None and not hasattr(config, "workerinput"):
        cache.set("goloop/crashed", "")


@pytest.hookimpl(optionalhook=True)
def pytest_handlecrashitem(crashitem: str, sched: Any) -> None:
    """A worker's interpreter died: noted for tools/dev.py, which tries no test again then."""
    cache = getattr(sched.config, "cache", None)
    if cache is not None:
        cache.set("goloop/crashed", crashitem)


# ---- checks after each test ----------------------------------------------------


def open_fds() -> dict[int, str]:
    """Return the open file descriptors of this process, with the file of each."""
    found: dict[int, str] = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            found[int(name)] = os.readlink(f"/proc/self/fd/{name}")
        except FileNotFoundError:
            continue  # the directory that was being listed
    return found


def difference(before: dict[int, str]) -> tuple[dict[int, str], dict[int, str]]:
    """Return the descriptors that were opened since `before`, and those that were closed."""
    after = open_fds()
    leaked = {fd: what for fd, what in after.items() if before.get(fd) != what}
    # The check `tsan`: after the first race.
    leaked = {fd: what for fd, what in leaked.items() if "/tsan-reports/" not in what}
    # A thread that gives itself or another a name has this file open for a moment.
    named = re.compile(r"/proc/\d+/task/\d+/comm")
    missing = {
        fd: what for fd, what in before.items() if fd not in after and not named.fullmatch(what)
    }
    return leaked, missing


class Errors:
    """Records the calls of a loop's exception handler."""

    def __init__(self) -> None:
        self.contexts: list[dict[str, Any]] = []

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.contexts.append(context)

    def expect(self, kind: type[BaseException] | None = None, message: str = "") -> dict[str, Any]:
        """Removes and returns the first context; it must be of that kind and message."""
        assert self.contexts, "nothing came to the exception handler"
        context = self.contexts.pop(0)
        if kind is not None:
            assert isinstance(context.get("exception"), kind), context
        assert message in context["message"], context
        return context


@pytest.fixture(scope="session")
def warmed() -> None:
    """Open the descriptors that a first loop opens for the process, before any are counted."""
    for name in LOOP_NAMES:
        factory_of(name)().close()
    # libffi keeps its own file open from the first callback on.
    ctypes.CFUNCTYPE(None)(lambda: None)
    # pytest's own objects need no look at each of the collections below.
    gc.collect()
    gc.freeze()


# The traceback of a failed test keeps its sockets open until some later moment,
# so from then on nothing can be said about fds that go.
_some_test_failed = False
FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    global _some_test_failed
    report = yield
    _some_test_failed = _some_test_failed or report.failed
    item.stash[FAILED] = item.stash.get(FAILED, False) or report.failed
    if report.failed:
        for name in ("last_exc", "last_type", "last_value", "last_traceback"):
            vars(sys).pop(name, None)
    return report


@pytest.fixture
def no_leaks(warmed: None, request: pytest.FixtureRequest) -> Iterator[None]:
    """The file descriptors and threads after the test are those from before it."""
    with warnings.catch_warnings():
        # Leftovers of an earlier, failed test are that test's fault.
        warnings.simplefilter("ignore" if _some_test_failed else "default")
        gc.collect()
    before = open_fds()
    threads = set(threading.enumerate())
    yield
    if request.node.stash.get(FAILED, False):
        return
    # A reference cycle may hold a socket; that is garbage and no leak.
    gc.collect()
    leaked, missing = difference(before)
    left = set(threading.enumerate()) - threads
    # libc holds a socket to a name server until a lookup that was cancelled ends; and on a busy
    # machine a thread that has nothing left to do may not have ended.
    deadline = time.monotonic() + 10
    while (leaked or left) and time.monotonic() < deadline:
        time.sleep(0.01)
        leaked, missing = difference(before)
        left = set(threading.enumerate()) - threads
    assert not leaked, f"left open: {leaked}"
    assert _some_test_failed or not missing, f"closed though somebody else's: {missing}"
    assert not left, f"threads left: {left}"


@pytest.fixture(params=LOOP_NAMES)
def loop_name(request: pytest.FixtureRequest) -> str:
    """Which loop this run of the test is for."""
    name: str = request.param
    mark = request.node.get_closest_marker("goloop_only")
    if name == "asyncio" and mark is not None:
        pytest.skip(mark.args[0])
    return name


@pytest.fixture
def loop_factory(loop_name: str, no_leaks: None) -> LoopFactory:
    """Makes loops; the test closes them."""
    return factory_of(loop_name)


@pytest.fixture
def errors() -> Errors:
    """The exception handler of the `loop` fixture."""
    return Errors()


@pytest.fixture
def loop(loop_factory: LoopFactory, errors: Errors) -> Iterator[asyncio.AbstractEventLoop]:
    """A loop, closed after the test."""
    made = loop_factory()
    made.set_exception_handler(errors)
    yield made
    if not made.is_closed():
        made.run_until_complete(made.shutdown_asyncgens())
        made.run_until_complete(made.shutdown_default_executor())
        made.close()
    # Tasks and futures report a forgotten exception when they are collected.
    gc.collect()
    assert not errors.contexts, f"unexpected calls of the exception handler: {errors.contexts}"


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Runs `async def` tests on their `loop` fixture."""
    function = pyfuncitem.obj
    if not inspect.iscoroutinefunction(function):
        return None
    wanted = inspect.signature(function).parameters
    arguments = {name: pyfuncitem.funcargs[name] for name in wanted}
    used: asyncio.AbstractEventLoop = pyfuncitem.funcargs["loop"]
    used.run_until_complete(function(**arguments))
    return True


# ---- tools -----------------------------------------------------------------------


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """A blocking listening socket on the IPv4 loopback."""
    with socket.create_server(("127.0.0.1", 0)) as made:
        yield made


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two non-blocking connected TCP sockets."""
    first, second = tcp_pair()
    with first, second:
        yield first, second


@pytest.fixture
def udp() -> Iterator[socket.socket]:
    """A bound, blocking UDP socket on the IPv4 loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        made.bind(("127.0.0.1", 0))
        made.settimeout(10)
        yield made


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    """Two non-blocking connected TCP sockets, on the IPv4 loopback."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        first = socket.create_connection(listening.getsockname())
        second, _ = listening.accept()
    first.setblocking(False)
    second.setblocking(False)
    return first, second
