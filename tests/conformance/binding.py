"""Binds CPython's own asyncio tests to the loop under test.

Owns: which classes of `test.test_asyncio` run (`GROUPS`), and how each of them
comes to make the loop under test instead of asyncio's.  Used by run.py only,
in a process of its own, because `bind` changes the `asyncio` module itself.

There are three ways in which these classes make a loop:

* mixins call `create_event_loop()` or `new_loop()`: a subclass answers;
* `IsolatedAsyncioTestCase`, `asyncio.Runner` and `asyncio.new_event_loop()` ask
  the policy: the policy under test is set, and a reset to the default policy
  brings it back;
* others name `asyncio.EventLoop` or `asyncio.SelectorEventLoop`: these
  names are bound to the loop class under test before the tests are imported.

A test that still makes a loop of asyncio's is reported as "unbound", for it
would prove nothing.
"""

from __future__ import annotations

import asyncio
import asyncio.base_events
import importlib
import unittest
from collections.abc import Callable
from typing import Any

import task_binding
from groups import Group

LoopFactory = Callable[[], asyncio.AbstractEventLoop]


# The white-box modules (test_base_events, test_selector_events, test_unix_events)
# test asyncio's own classes, not a loop.
GROUPS: tuple[Group, ...] = (
    # With SubprocessTestsMixin, and the child watcher that it needs before 3.14.
    Group("test_events", classes=(), mixins=("SelectEventLoopTests",)),
    Group("test_sendfile", classes=(), mixins=("SelectEventLoopTests",)),
    Group("test_sslproto", classes=("SelectorStartTLSTests",)),
    Group("test_ssl", classes=("TestSSL",)),
    Group(
        "test_subprocess",
        # The first two test asyncio's transport and watchers against mocks, the
        # third skips itself on every loop, and the last is for Windows.
        skip_classes=(
            "SubprocessTransportTests",
            "GenericWatcherTests",
            "SubprocessMultiLoopWatcherTests",
            "SubprocessProactorTests",
        ),
    ),
    Group("test_sock_lowlevel", classes=(), mixins=("BaseSockTestsMixin",)),
    Group(
        "test_server",
        mixins=("BaseStartServer",),
        # The first is bound as a mixin, the second is for Windows.
        skip_classes=("SelectorStartServerTests", "ProactorStartServerTests"),
    ),
    # On the loops of asyncio.new_event_loop, as classes for plain connections and for TLS.
    Group("test_server_context"),
    Group("test_buffered_proto", classes=(), mixins=("BaseTestBufferedProtocol",)),
    Group("test_streams"),
    Group("test_locks"),
    Group("test_queues"),
    Group("test_taskgroups"),
    Group("test_timeouts"),
    Group("test_waitfor"),
    Group("test_runners", skip_classes=("BaseTest",)),
    Group("test_eager_task_factory"),
    Group("test_context"),
    Group("test_threads"),
    Group("test_staggered"),
    Group("test_futures2"),
)

foreign_loops: list[type] = []


def groups(loop_name: str) -> tuple[Group, ...]:
    """Return the groups of tests for a loop's name."""
    return task_binding.TASK_GROUPS if loop_name.startswith("tasks") else GROUPS


def bind(loop_name: str) -> LoopFactory:
    """Makes `loop_name` the loop that the tests get: "asyncio" or "goloop".

    "tasks" and "tasks-goloop": goloop's Task and Future, on asyncio's and on its own.
    """
    if loop_name == "asyncio":
        return asyncio.SelectorEventLoop
    if loop_name in ("tasks", "tasks-goloop"):
        task_binding.bind_classes()
        if loop_name == "tasks":
            return asyncio.SelectorEventLoop
        factory = bind("goloop")
        task_binding.bind_test_loop()
        foreign_loops.clear()
        return factory
    if loop_name != "goloop":
        raise ValueError(f"unknown loop {loop_name!r}")
    import goloop

    module: Any = asyncio
    events: Any = asyncio.events
    for name in ("SelectorEventLoop", "EventLoop"):
        if hasattr(module, name):
            setattr(module, name, goloop.Loop)
    for name in ("DefaultEventLoopPolicy", "_DefaultEventLoopPolicy"):
        if name in vars(module):
            setattr(module, name, goloop.EventLoopPolicy)
    set_policy = getattr(events, "_set_event_loop_policy", None) or events.set_event_loop_policy
    set_policy(goloop.EventLoopPolicy())

    base: Any = asyncio.base_events.BaseEventLoop
    original_init = base.__init__

    def counted_init(self: Any, *args: Any, **kwargs: Any) -> None:
        # goloop's loop is one of asyncio's base loops by inheritance.  Loops named Evil
        # stand for a foreign loop by intention.
        if not isinstance(self, goloop.Loop) and "Evil" not in type(self).__name__:
            foreign_loops.append(type(self))
        original_init(self, *args, **kwargs)

    base.__init__ = counted_init
    return goloop.new_event_loop


def load(group: Group, factory: LoopFactory, loop_name: str) -> list[type[unittest.TestCase]]:
    """Imports the group's module and returns its bound test classes."""
    module: Any = importlib.import_module(f"test.test_asyncio.{group.module}")
    if group.module == "test_runners" and loop_name != "asyncio":
        _bind_runners(module, factory)
    classes: list[type[unittest.TestCase]] = []
    for name in group.mixins:
        classes.append(_bound_mixin(module, name, factory))
    names = group.classes
    if names is None:
        names = tuple(
            name
            for name, value in vars(module).items()
            if isinstance(value, type)
            and issubclass(value, unittest.TestCase)
            and value.__module__ == module.__name__
            and name not in group.skip_classes
        )
    classes.extend(getattr(module, name) for name in names)
    return classes


def _bound_mixin(module: Any, name: str, factory: LoopFactory) -> type[unittest.TestCase]:
    mixin = getattr(module, name)
    bases: tuple[type, ...] = (mixin,)
    if not issubclass(mixin, unittest.TestCase):
        utils = getattr(module, "test_utils", unittest)
        bases = (mixin, utils.TestCase)
    body = {
        "__module__": module.__name__,
        "create_event_loop": lambda self: factory(),
        "new_loop": lambda self: factory(),
    }
    bound: type[unittest.TestCase] = type(name, bases, body)
    return bound


def _bind_runners(module: Any, factory: LoopFactory) -> None:
    """Gives test_runners a real loop where it builds one of asyncio's out of mocks."""

    def new_loop(self: unittest.TestCase) -> asyncio.AbstractEventLoop:
        loop: Any = factory()
        loop.shutdown_ag_run = False

        async def shutdown_asyncgens() -> None:
            loop.shutdown_ag_run = True

        loop.shutdown_asyncgens = shutdown_asyncgens
        result: asyncio.AbstractEventLoop = loop
        return result

    module.BaseTest.new_loop = new_loop
