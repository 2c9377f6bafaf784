"""Child processes: CPython's own subprocess transport, reaped by pidfd.

subprocess_exec and subprocess_shell are inherited and ask for the transport here.
The child is started by `subprocess.Popen`.  Its end is seen on a pidfd, so SIGCHLD
and its handler stay the user's, no child watcher is asked on any version, and
only this child is waited for: by the pidfd, because the program may have reaped the child,
and its number may be another's.  Where the kernel or a sandbox refuses a pidfd, a thread
waits instead, as asyncio's ThreadedChildWatcher does, and where there is no thread either, a
timer looks.
"""

from __future__ import annotations

import asyncio
import asyncio.unix_events
import contextlib
import errno
import os
import signal
import sys
import threading
from asyncio.log import logger

from ..loop.base import CoreLoop

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_unix_events: Any = asyncio.unix_events
_SubprocessTransport: Any = _unix_events._UnixSubprocessTransport

# What is reported for a child that somebody else has waited for.
_STATUS_UNKNOWN = 255

# As the kernel has it: a Python that was built with older headers has no name for it.
_P_PIDFD: int = getattr(os, "P_PIDFD", 3)

# In seconds.
_LOOK_EVERY = 0.05


class _UnixSubprocessTransport(_SubprocessTransport):  # type: ignore[misc] # of Any
    """A child that gets what was written to its stdin before a signal."""

    def _check_proc(self) -> None:
        # Of send_signal(), terminate() and kill().  A transport whose connection is lost has
        # neither a child nor a loop.
        super()._check_proc()
        self._loop._flush_deferred_sends()


class Processes(CoreLoop):
    """Transports of child processes."""

    # Of children that run, or have not been reaped.
    _pidfds: set[int]

    def _init_processes(self) -> None:
        self._pidfds = set()

    async def _make_subprocess_transport(
        self,
        protocol: asyncio.SubprocessProtocol,
        args: Any,
        shell: bool,
        stdin: Any,
        stdout: Any,
        stderr: Any,
        bufsize: int,
        extra: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> asyncio.SubprocessTransport:
        waiter = self.create_future()
        transport: Any = _UnixSubprocessTransport(
            self,
            protocol,
            args,
            shell,
            stdin,
            stdout,
            stderr,
            bufsize,
            waiter=waiter,
            extra=extra,
            **kwargs,
        )
        self._count("children")
        self._count("children_started")
        self._watch_child(transport.get_pid(), transport)
        try:
            await waiter
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException:
            transport.close()
            # A second cancellation must not leave the child to nobody.
            await asyncio.shield(transport._wait())
            raise
        started: asyncio.SubprocessTransport = transport
        return started

    def _watch_child(self, pid: int, transport: Any) -> None:
        """Arranges for transport._process_exited once the child has ended."""
        pidfd = -1
        try:
            pidfd = os.pidfd_open(pid)
            self._pidfds.add(pidfd)
            self._add_reader(pidfd, self._child_ended, pid, pidfd, transport)
        except Exception:  # the child runs, and must not be left to nobody
            self._forget_pidfd(pidfd)
            self._watch_child_by_thread(pid, transport)

    def _watch_child_by_thread(self, pid: int, transport: Any) -> None:
        waiting = threading.Thread(
            target=self._wait_for_child,
            args=(pid, transport),
            name=f"goloop-waitpid-{pid}",
            daemon=True,
        )
        try:
            waiting.start()
        except Exception:  # no more threads, or no memory
            self._look_for_child(pid, transport)

    def _child_ended(self, pid: int, pidfd: int, transport: Any) -> None:
        """The pidfd is readable, so waiting does not block."""
        self._remove_reader(pidfd)
        if sys.version_info >= (3, 14):
            # One iteration later, so that what the child wrote last is read first.
            self.call_soon(self._exited, pid, pidfd, transport)
        else:
            # At once: the handler of a FastChildWatcher, which these versions still have, runs
            # in this iteration too, and reaps every child.
            self._exited(pid, pidfd, transport)

    def _wait_for_child(self, pid: int, transport: Any) -> None:
        """In a thread of its own, which leaves the child to the loop's to reap."""
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        try:
            self.call_soon_threadsafe(self._exited, pid, -1, transport)
        except RuntimeError:
            self._reap(pid, -1)
            logger.warning("Loop %r that handles pid %r is closed", self, pid)

    def _look_for_child(self, pid: int, transport: Any) -> None:
        """Where neither a pidfd nor a thread can be had: looks again and again."""
        ended: object = True
        with contextlib.suppress(ChildProcessError):
            ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
        if ended is None:
            self.call_later(_LOOK_EVERY, self._look_for_child, pid, transport)
        else:
            self._exited(pid, -1, transport)

    def _exited(self, pid: int, pidfd: int, transport: Any) -> None:
        """Reaps the child and tells its transport.

        In one callback: in between, the number could be another process's, and a
        transport that knows of no end would send its signals there.
        """
        self._count("children", -1)
        popen = transport._proc
        # Up to 3.12 kill() and its kin go through Popen.poll(), which reaps.
        known = None if popen is None else popen.returncode
        try:
            code = self._reap(pid, pidfd) if known is None else known
        finally:
            self._forget_pidfd(pidfd)
        transport._process_exited(code)

    def _reap(self, pid: int, pidfd: int) -> int:
        try:
            code = _wait(pid, pidfd)
        except ChildProcessError:
            logger.warning(
                "child process pid %d exit status already read:  will report returncode %d",
                pid,
                _STATUS_UNKNOWN,
            )
            return _STATUS_UNKNOWN
        if self._debug:
            logger.debug("process %s exited with returncode %s", pid, code)
        return code

    def _forget_pidfd(self, pidfd: int) -> None:
        if pidfd in self._pidfds:  # else there is none, or the loop's close() has closed it
            self._pidfds.remove(pidfd)
            _close_pidfd(pidfd)

    def _close_pidfds(self) -> None:
        """The loop is being closed: its children run on, and nobody waits for them."""
        while self._pidfds:
            _close_pidfd(self._pidfds.pop())


def _wait(pid: int, pidfd: int) -> int:
    """Reaps a child that has ended: returns its code, or raises ChildProcessError where somebody
    else has reaped it, whoever has its number by now."""
    if pidfd >= 0:
        try:
            ended = os.waitid(_P_PIDFD, pidfd, os.WEXITED)
        except ChildProcessError:
            raise
        except OSError:
            pass  # Linux 5.3 has pidfds and can't wait for them
        else:
            assert ended is not None  # for it may block
            return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
    found, status = os.waitpid(pid, os.WNOHANG)
    if not found:
        raise ChildProcessError  # it is another one, which runs
    return os.waitstatus_to_exitcode(status)


def _close_pidfd(pidfd: int) -> None:
    """Closes it, unless the number is no pidfd any more: a program that closes every descriptor,
    as one that becomes a daemon, may have opened another file under it."""
    try:
        signal.pidfd_send_signal(pidfd, 0)  # no signal, only the question
    except OSError as error:
        if error.errno == errno.EBADF:
            return
        # Else it is the pidfd of a child that was reaped, or the question is refused.
    with contextlib.suppress(OSError):
        os.close(pidfd)
