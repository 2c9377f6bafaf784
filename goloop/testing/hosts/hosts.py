"""Hosts of a simulation: their programs, and how hosts are killed, paused and restarted.

All hosts run in one loop.  The context of a callback refers to the host run to which the callback
belongs (lifecycle.py).  A socket belongs to the host that made it; the simulated kernel transmits
the packets (netloop/simulated/hosts.go).
"""

from __future__ import annotations

import asyncio
import contextvars
import enum
import functools
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

from ..._internal.coroutine_check import refuse_coroutine
from ..simulated.kernel import Request, current_host_run, request
from ..simulation.faults import Faults
from . import lifecycle
from .lifecycle import HostRun

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .session_protocol import Session

_T = TypeVar("_T")


class _Change(enum.IntEnum):
    """Changes of a host's state that the kernel makes; the numbers are those of hosts.go."""

    KILL = 0
    CRASH = 1
    START = 2
    PAUSE = 3
    RESUME = 4


class _Program:
    """A program of a host, which runs again after each restart until it has returned."""

    def __init__(self, call: Callable[[], Coroutine[Any, Any, Any]], result: Any) -> None:
        """Store the program; `call()` returns its coroutine, `result` is the caller's future."""
        self.call = call
        self.result = result
        self.task: asyncio.Task[Any] | None = None

    def start(self, loop: Any, host_run: HostRun) -> None:
        """Start the program as a task of a host run."""
        context = contextvars.Context()
        context.run(current_host_run.set, host_run)
        coroutine = context.run(self.call)
        task = self.task = loop.create_own_task(coroutine, context=context)
        # The context names no host, so the result is set even while the host is paused.
        task.add_done_callback(self._task_done, context=contextvars.Context())

    def _task_done(self, task: asyncio.Task[Any]) -> None:
        """Copy the task's result to the future, unless a restart has replaced the task."""
        if task is not self.task or self.result.done():
            return
        if task.cancelled():
            self.result.cancel()
        elif (exc := task.exception()) is not None:
            self.result.set_exception(exc)
        else:
            self.result.set_result(task.result())

    def cancel_task(self, result: Any) -> None:
        """Cancel the task when the caller has cancelled the result."""
        if result.cancelled() and self.task is not None:
            self.task.cancel()


class Host:
    """A machine of a simulation, with its own address, name, clock and programs.

    `Simulation.host()` makes hosts.  Since 0.3.0.
    """

    __module__ = "goloop.testing"

    def __init__(self, session: Session, name: str, ipv6: bool) -> None:
        """Create the machine in the simulation's kernel; it is up and has no programs."""
        self._session = session
        self._ipv6 = ipv6
        self._name = name
        self._number = request(Request.MAKE_HOST, session.kernel.number)[0]
        session.note(f"* host {self._number} {name}")
        self._faults = Faults(session.kernel, self._number)
        self._host_run = HostRun(self, self._number)
        self._programs: list[_Program] = []
        self._skew = 0
        self._up = self._powered = True

    def __repr__(self) -> str:
        return f"<Host {self._name} {self.address}>"

    @property
    def name(self) -> str:
        """Return the name, which `getaddrinfo` resolves on all hosts."""
        return self._name

    @property
    def address(self) -> str:
        """Return the IPv4 address."""
        n = self._number
        return f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}"

    @property
    def address6(self) -> str:
        """Return the IPv6 address."""
        n = self._number
        return f"fd00::{n >> 16:x}:{n & 0xFFFF:x}" if n >> 16 else f"fd00::{n:x}"

    @property
    def ipv6(self) -> bool:
        """Return true if the host's name and its `localhost` resolve to IPv4 and IPv6 addresses."""
        return self._ipv6

    @property
    def faults(self) -> Faults:
        """Return this host's faults, which replace `Simulation.faults`; a restart keeps them."""
        return self._faults

    @property
    def is_up(self) -> bool:
        """Return true if the host runs: it was not killed or crashed since its last start."""
        return self._up

    def spawn(
        self, program: Callable[..., Coroutine[Any, Any, _T]], *args: Any, **options: Any
    ) -> asyncio.Future[_T]:
        """Run a program on this host: `program(*args, **options)`, now and after each restart.

        The tasks, callbacks and sockets that the program makes belong to this host.

        Args:
            program: A coroutine function.
            *args: Its positional arguments.
            **options: Its keyword arguments.

        Returns:
            A future with the program's result or exception.  It stays pending over restarts until
            the program returns.  Cancelling the future cancels the program.

        Raises:
            RuntimeError: The host is down.
            TypeError: `program` is a coroutine.
        """
        refuse_coroutine(program, "host.spawn")
        if not self._up:
            raise RuntimeError(f"{self!r} is down; call restart() first")
        result = contextvars.Context().run(self._session.loop.create_future)
        made = _Program(functools.partial(program, *args, **options), result)
        result.add_done_callback(made.cancel_task, context=contextvars.Context())
        self._programs.append(made)
        made.start(self._session.loop, self._host_run)
        future: asyncio.Future[_T] = result
        return future

    def kill(self) -> None:
        """Kill the host's programs at once, as SIGKILL does: no `except` or `finally` block runs.

        The machine stays up, closes the programs' sockets and refuses connections.  A peer reads
        EOF, or a reset if bytes were left unread, and gets a reset when it sends.  Does nothing if
        the host is down.
        """
        self._stop(_Change.KILL)

    def crash(self) -> None:
        """Power the host off: as `kill()`, but no packet notifies the peers.

        Peers notice by their own timeouts, or when they send: after 15 minutes of retransmissions,
        or by a reset once the host has been restarted.
        """
        self._stop(_Change.CRASH)
        self._powered = False

    def restart(self) -> None:
        """Start the host, after `kill()` if it is up, and run the unfinished programs again."""
        self.kill()
        self._change(_Change.START)
        self._host_run = HostRun(self, self._number)
        self._up = self._powered = True
        self._programs = [each for each in self._programs if not each.result.done()]
        for each in self._programs:
            each.start(self._session.loop, self._host_run)

    def pause(self) -> None:
        """Pause the host: until `resume()` no callback runs, and packets to it wait.

        Does nothing if the host is down or paused.
        """
        if self._up and not self._host_run.paused:
            for each in self._host_run.family():
                each.paused = True
            self._change(_Change.PAUSE)

    def resume(self) -> None:
        """Resume the host after `pause()`; callbacks that came due in the pause run now.

        Does nothing if the host is not paused.
        """
        if not self._host_run.paused:
            return
        if self._up:
            self._change(_Change.RESUME)
        for each in self._host_run.family():
            lifecycle.resume(each, self._session.loop)

    def clock_skew(self, seconds: float) -> None:
        """Set the offset of the host's wall clock, which `time.time()` and `datetime.now()` read.

        The monotonic clock does not change.

        Args:
            seconds: Seconds that the host's wall clock is ahead of the simulation's; a negative
                number sets it back.
        """
        self._skew = round(seconds * 1e9)

    def signal(self, sig: int) -> None:
        """Send a signal to the host's programs.

        The handler that a program has registered with `loop.add_signal_handler()` runs.  Without a
        handler the signal has its default action of Linux, which for most signals kills.
        """
        if self._host_run.signal(sig, self._session.loop):
            self.kill()

    def _change(self, change: _Change) -> None:
        """Request a change of this host from the kernel."""
        request(Request.CHANGE_HOST, self._session.kernel.number, self._number, change)

    def _stop(self, change: _Change) -> None:
        """Kill or crash the host: end all its callbacks, tasks and transports.

        If the host is down, only a crash after kill() has an effect: it powers the machine off.
        """
        if not self._up:
            if change == _Change.CRASH and self._powered:
                self._change(change)
            return
        self._up = False
        for program in self._programs:
            program.task = None
        self._change(change)
        lifecycle.end_host_runs(self._host_run.family(), self._session.loop)


class Hosts:
    """The hosts of one simulation."""

    def __init__(self, session: Session) -> None:
        """Create the set without hosts."""
        self._session = session
        self._by_name: dict[str, Host] = {}

    def make(self, name: str, ipv6: bool = False) -> Host:
        """Make and return a host; ValueError if the name is empty, taken or `localhost`.

        The loop's callbacks are gated by host runs from then on.
        """
        if not name or name in self._by_name or name == "localhost":
            raise ValueError(
                f"the name of a host must be new, not empty and not 'localhost', got {name!r}"
            )
        lifecycle.enable_hosts(self._session.loop)
        made = self._by_name[name] = Host(self._session, name, ipv6)
        return made

    def name_of(self, task: Any) -> str | None:
        """Return the name of the host on which a task runs; None if it runs on no host."""
        host_run = lifecycle.host_run_of(task)
        return None if host_run is None or host_run.host is None else host_run.host.name

    def by_name(self) -> Mapping[str, Host]:
        """Return all hosts by name."""
        return self._by_name

    def end(self) -> None:
        """Kill all hosts, after the main function has returned."""
        for each in self._by_name.values():
            each.kill()
