"""Child processes: CPython's own subprocess transport, with pidfds to notice their end.

subprocess_exec and subprocess_shell are inherited and create the transport here. The child is
started by `subprocess.Popen`. Its end is an event of a pidfd. So SIGCHLD and its handler remain the
program's, no child watcher is used in any version, and only this child is waited for. It is
reaped through the pidfd, because the program may already have reaped the child, so that its number
belongs to another process. If the kernel or a sandbox refuses a pidfd, a thread waits instead, as
in asyncio's ThreadedChildWatcher. If no thread can be started either, a timer polls.
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

from ..helper_threads import THREADS_MUST_END, HelperThread
from ..loop.base import CoreLoop

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_unix_events: Any = asyncio.unix_events
_SubprocessTransport: Any = _unix_events._UnixSubprocessTransport

# The return code for a child that other code has reaped.
_STATUS_UNKNOWN = 255

# The kernel's value: a Python built with older headers does not define it.
_P_PIDFD: int = getattr(os, "P_PIDFD", 3)

# The interval of polling, in seconds.
_POLL_INTERVAL = 0.05


class _UnixSubprocessTransport(_SubprocessTransport):  # type: ignore[misc] # of Any
    """CPython's transport; it flushes writes to the child's stdin before it sends a signal."""

    def _check_proc(self) -> None:
        """Raise ProcessLookupError if there is no child; flush pending writes before a signal."""
        # Called by send_signal(), terminate() and kill(). If the connection is lost, the
        # transport has neither a child nor a loop, and super() raises ProcessLookupError.
        super()._check_proc()
        self._loop._flush_deferred_sends()


class Subprocesses(CoreLoop):
    """Creates transports of child processes, and reaps the children."""

    # The pidfds of children that run or are not reaped yet.
    _pidfds: set[int]

    def _init_processes(self) -> None:
        """Create the loop's set of open pidfds."""
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
        """Start a child process and return its transport: asyncio's hook for subprocess_exec().

        If connecting its pipes fails or is cancelled, the child is killed and waited for, and the
        exception is raised.
        """
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
            # A second cancellation must not leave the child without a waiter.
            await asyncio.shield(transport._wait())
            raise
        started: asyncio.SubprocessTransport = transport
        return started

    def _watch_child(self, pid: int, transport: Any) -> None:
        """Arrange that transport._process_exited() is called when the child has ended."""
        pidfd = -1
        try:
            pidfd = os.pidfd_open(pid)
            self._pidfds.add(pidfd)
            self._add_reader(pidfd, self._on_child_exit, pid, pidfd, transport)
        except Exception:  # the child runs already, so it must be watched in another way
            self._discard_pidfd(pidfd)
            self._watch_child_by_thread(pid, transport)

    def _watch_child_by_thread(self, pid: int, transport: Any) -> None:
        """Wait for a child in a new thread; if no thread can be started, poll."""
        ended = threading.Lock()
        ended.acquire()
        waiting = HelperThread(f"goloop-waitpid-{pid}", self._wait_for_child, pid, transport, ended)
        try:
            waiting.begin(ended.release)
        except Exception:  # no more threads, or out of memory
            self._poll_child(pid, transport)

    def _on_child_exit(self, pid: int, pidfd: int, transport: Any) -> None:
        """Reap a child whose pidfd is readable, so that no wait blocks; from 3.14 on soon."""
        self._remove_reader(pidfd)
        if sys.version_info >= (3, 14):
            # Scheduled for the next iteration, so that the child's last output is read first.
            self.call_soon(self._reap_and_notify, pid, pidfd, transport)
        else:
            # Now: the signal handler of a FastChildWatcher, which these versions still have,
            # runs in this iteration, too, and reaps every child.
            self._reap_and_notify(pid, pidfd, transport)

    def _wait_for_child(
        self, thread: HelperThread, pid: int, transport: Any, ended: threading.Lock
    ) -> None:
        """Wait in a thread until the child has ended; the loop then reaps it.

        If the loop is closed, this thread reaps the child and logs a warning. A thread that waits
        in waitid() cannot be ended when Python ends, so without the GIL it polls.
        """
        with contextlib.suppress(ChildProcessError):
            if THREADS_MUST_END:
                while _has_not_ended(pid):
                    if ended.acquire(timeout=_POLL_INTERVAL):
                        return
            else:
                thread.is_away = True
                os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
                thread.is_away = False
        try:
            self.call_soon_threadsafe(self._reap_and_notify, pid, -1, transport)
        except RuntimeError:
            self._reap(pid, -1)
            logger.warning("Loop %r that handles pid %r is closed", self, pid)

    def _poll_child(self, pid: int, transport: Any) -> None:
        """Reap a child if it has ended, else check again later: without a pidfd and a thread."""
        runs = False
        with contextlib.suppress(ChildProcessError):
            runs = _has_not_ended(pid)
        if runs:
            self.call_later(_POLL_INTERVAL, self._poll_child, pid, transport)
        else:
            self._reap_and_notify(pid, -1, transport)

    def _reap_and_notify(self, pid: int, pidfd: int, transport: Any) -> None:
        """Reap the child and notify its transport.

        Both happen in one callback: in between, the child's number could get another process, to
        which a transport without a return code would send its signals.
        """
        self._count("children", -1)
        popen = transport._proc
        # Up to 3.12 kill() and terminate() call Popen.poll(), which reaps the child.
        known = None if popen is None else popen.returncode
        try:
            code = self._reap(pid, pidfd) if known is None else known
        finally:
            self._discard_pidfd(pidfd)
        transport._process_exited(code)

    def _reap(self, pid: int, pidfd: int) -> int:
        """Reap a child and return its return code; 255, with a warning, if other code reaped it."""
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

    def _discard_pidfd(self, pidfd: int) -> None:
        """Close a child's pidfd, if there is one and close() has not closed it."""
        if pidfd in self._pidfds:
            self._pidfds.remove(pidfd)
            _close_pidfd(pidfd)

    def _close_pidfds(self) -> None:
        """Close all pidfds of a closing loop; its children run on, and are not reaped."""
        while self._pidfds:
            _close_pidfd(self._pidfds.pop())


def _has_not_ended(pid: int) -> bool:
    """Return true if a child still runs; it is not reaped. Raises ChildProcessError."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None


def _wait(pid: int, pidfd: int) -> int:
    """Reap a child that has ended and return its return code.

    Raises ChildProcessError if other code has reaped it, even if another process has its number.
    """
    if pidfd >= 0:
        try:
            ended = os.waitid(_P_PIDFD, pidfd, os.WEXITED)
        except ChildProcessError:
            raise
        except OSError:
            pass  # Linux 5.3 has pidfds, but waitid() does not support them
        else:
            assert ended is not None  # waitid() without WNOHANG returns a result
            return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
    found, status = os.waitpid(pid, os.WNOHANG)
    if not found:
        raise ChildProcessError  # another process has the number, and it runs
    return os.waitstatus_to_exitcode(status)


def _close_pidfd(pidfd: int) -> None:
    """Close a pidfd, unless its number belongs to another file.

    A program that closes all descriptors, for example to become a daemon, may have reused it.
    """
    try:
        signal.pidfd_send_signal(pidfd, 0)  # sends no signal, only checks the descriptor
    except OSError as error:
        if error.errno == errno.EBADF:
            return
        # Any other error means that it is the pidfd of a reaped child, or the check is refused.
    with contextlib.suppress(OSError):
        os.close(pidfd)
