"""Hosts of a simulation: what runs where, and how it ends and begins anew.

All hosts run in one loop, and what runs on one is told apart by its boot (lifecycle.py).  Sockets
belong to the host that made them; packets are the kernel's (netloop/simulated/hosts.go).
"""

from __future__ import annotations

import asyncio
import contextvars
import enum
import functools
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

from ..._internal.coroutine_check import refuse_coroutine
from ..simulated.kernel import Ask, ask, host_here
from ..simulation.faults import Faults
from . import lifecycle
from .lifecycle import HostRun

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .session_protocol import Session

_T = TypeVar("_T")


class _Change(enum.IntEnum):
    """What the kernel can do with a host, see hosts.go."""

    KILL = 0
    CRASH = 1
    START = 2
    PAUSE = 3
    RESUME = 4


class _Program:
    """What a host runs, each time that it starts, until it has returned."""

    def __init__(self, call: Callable[[], Coroutine[Any, Any, Any]], result: Any) -> None:
        self.call = call
        self.result = result
        self.task: asyncio.Task[Any] | None = None

    def start(self, loop: Any, boot: HostRun) -> None:
        context = contextvars.Context()
        context.run(host_here.set, boot)
        coroutine = context.run(self.call)
        task = self.task = loop.create_own_task(coroutine, context=context)
        # In a context of no host: a paused one has its result known.
        task.add_done_callback(self._returned, context=contextvars.Context())

    def _returned(self, task: asyncio.Task[Any]) -> None:
        if task is not self.task or self.result.done():
            return
        if task.cancelled():
            self.result.cancel()
        elif (exc := task.exception()) is not None:
            self.result.set_exception(exc)
        else:
            self.result.set_result(task.result())

    def given_up(self, result: Any) -> None:
        """Who cancels the result wants the task cancelled."""
        if result.cancelled() and self.task is not None:
            self.task.cancel()


class Host:
    """A machine of a simulation, with an address, a name, a clock and programs of its own.

    `Simulation.host()` makes them.  Since 0.3.0.
    """

    __module__ = "goloop.testing"

    def __init__(self, session: Session, name: str, ipv6: bool) -> None:
        self._session = session
        self._ipv6 = ipv6
        self._name = name
        self._number = ask(Ask.MAKE_HOST, session.kernel.number)[0]
        session.note(f"* host {self._number} {name}")
        self._faults = Faults(session.kernel, self._number)
        self._boot = HostRun(self, self._number)
        self._programs: list[_Program] = []
        self._skew = 0
        self._up = self._powered = True

    def __repr__(self) -> str:
        return f"<Host {self._name} {self.address}>"

    @property
    def name(self) -> str:
        """Its name, which `getaddrinfo` knows on all hosts."""
        return self._name

    @property
    def address(self) -> str:
        """Its address, of IPv4."""
        n = self._number
        return f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}"

    @property
    def address6(self) -> str:
        """Its address, of IPv6."""
        n = self._number
        return f"fd00::{n >> 16:x}:{n & 0xFFFF:x}" if n >> 16 else f"fd00::{n:x}"

    @property
    def ipv6(self) -> bool:
        """Whether its name is both of its addresses, and localhost there both of its own."""
        return self._ipv6

    @property
    def faults(self) -> Faults:
        """What the kernel does wrong here, instead of `Simulation.faults`; restarts leave it."""
        return self._faults

    @property
    def is_up(self) -> bool:
        """Whether it runs: it was not killed since its last start."""
        return self._up

    def spawn(
        self, program: Callable[..., Coroutine[Any, Any, _T]], *args: Any, **options: Any
    ) -> asyncio.Future[_T]:
        """Run a program here: `program(*args, **options)`, now and after each restart.

        What it makes, tasks, callbacks, sockets, belongs to this host.

        Args:
            program: A coroutine function.
            *args: What it is called with.
            **options: What it is called with by name.

        Returns:
            A future of what it returns or raises, over all restarts until then.  To cancel it is to
            cancel the program.

        Raises:
            RuntimeError: The host is down.
            TypeError: `program` is a coroutine.
        """
        refuse_coroutine(program, "host.spawn")
        if not self._up:
            raise RuntimeError(f"{self!r} is down")
        result = contextvars.Context().run(self._session.loop.create_future)
        made = _Program(functools.partial(program, *args, **options), result)
        result.add_done_callback(made.given_up, context=contextvars.Context())
        self._programs.append(made)
        made.start(self._session.loop, self._boot)
        future: asyncio.Future[_T] = result
        return future

    def kill(self) -> None:
        """End its programs at once, as SIGKILL does: no `except` and no `finally` of theirs runs.

        The machine lives on, closes their sockets and refuses connections: a peer reads the end of
        the stream, or a reset where bytes were left unread, and gets a reset when it sends.
        """
        self._end(_Change.KILL)

    def crash(self) -> None:
        """Take its power: as `kill()`, but the network hears nothing of it.

        Peers notice by their timeouts, or when they send: after 15 minutes of retransmissions, or
        by a reset once the host has been restarted.
        """
        self._end(_Change.CRASH)
        self._powered = False

    def restart(self) -> None:
        """Start it, killing it first if it is up; its programs that have not returned run anew."""
        self.kill()
        self._change(_Change.START)
        self._boot = HostRun(self, self._number)
        self._up = self._powered = True
        self._programs = [each for each in self._programs if not each.result.done()]
        for each in self._programs:
            each.start(self._session.loop, self._boot)

    def pause(self) -> None:
        """Stop it: until `resume()` its callbacks do not run, and what is sent to it waits."""
        if self._up and not self._boot.paused:
            for each in self._boot.family():
                each.paused = True
            self._change(_Change.PAUSE)

    def resume(self) -> None:
        """Let it go on after `pause()`; what was due meanwhile runs now."""
        if not self._boot.paused:
            return
        if self._up:
            self._change(_Change.RESUME)
        for each in self._boot.family():
            lifecycle.resume(each, self._session.loop)

    def clock_skew(self, seconds: float) -> None:
        """Set its calendar's clock, what `time.time()` and `datetime.now()` go by, ahead or behind.

        Args:
            seconds: What it says more than the simulation's; the monotonic clock stays.
        """
        self._skew = round(seconds * 1e9)

    def signal(self, sig: int) -> None:
        """Send a signal to its programs.

        It runs the handler that they have set by `loop.add_signal_handler()`.  Without one it does
        what Linux does: most kill.
        """
        if self._boot.signal(sig, self._session.loop):
            self.kill()

    def _change(self, change: _Change) -> None:
        ask(Ask.CHANGE_HOST, self._session.kernel.number, self._number, change)

    def _end(self, change: _Change) -> None:
        if not self._up:
            if change == _Change.CRASH and self._powered:
                self._change(change)
            return
        self._up = False
        for program in self._programs:
            program.task = None
        self._change(change)
        lifecycle.end(self._boot.family(), self._session.loop)


class Hosts:
    """The hosts of one simulation."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._by_name: dict[str, Host] = {}

    def make(self, name: str, ipv6: bool = False) -> Host:
        """A new host."""
        if not name or name in self._by_name or name == "localhost":
            raise ValueError(f"{name!r} is no name for a host, or is taken")
        lifecycle.have_boots(self._session.loop)
        made = self._by_name[name] = Host(self._session, name, ipv6)
        return made

    def name_of(self, task: Any) -> str | None:
        """The host of a task."""
        boot = lifecycle.boot_of(task)
        return None if boot is None or boot.host is None else boot.host.name

    def by_name(self) -> Mapping[str, Host]:
        """The hosts."""
        return self._by_name

    def end(self) -> None:
        """The main function has returned: nothing of them runs any more."""
        for each in self._by_name.values():
            each.kill()
