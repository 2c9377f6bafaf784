"""Child processes: CPython's own subprocess transport, reaped by pidfd.

subprocess_exec and subprocess_shell are inherited and ask for the transport here.
The child is started by `subprocess.Popen`.  Its end is seen on a pidfd, so SIGCHLD
and its handler stay the user's, no child watcher is asked on any version, and
only this child is waited for.  Where the kernel or a sandbox refuses a pidfd, a thread
waits instead, as asyncio's ThreadedChildWatcher does.
"""

from __future__ import annotations

import asyncio
import asyncio.unix_events
import contextlib
import os
import sys
import threading
from asyncio.log import logger

from .base import CoreLoop

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_unix_events: Any = asyncio.unix_events
_SubprocessTransport: Any = _unix_events._UnixSubprocessTransport

# What is reported for a child that somebody else has waited for.
_STATUS_UNKNOWN = 255


class Processes(CoreLoop):
    """Transports of child processes."""

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
        transport: Any = _SubprocessTransport(
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
        self._children += 1
        self._children_started += 1
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
        try:
            pidfd = os.pidfd_open(pid)
        except OSError:
            threading.Thread(
                target=self._wait_for_child,
                args=(pid, transport),
                name=f"goloop-waitpid-{pid}",
                daemon=True,
            ).start()
        else:
            self._add_reader(pidfd, self._child_ended, pid, pidfd, transport)

    def _child_ended(self, pid: int, pidfd: int, transport: Any) -> None:
        """The pidfd is readable, so waiting does not block."""
        self._remove_reader(pidfd)
        os.close(pidfd)
        if sys.version_info >= (3, 14):
            # One iteration later, so that what the child wrote last is read first.
            self.call_soon(self._exited, pid, transport)
        else:
            # At once: the handler of a FastChildWatcher, which these versions still have, runs
            # in this iteration too, and reaps every child.
            self._exited(pid, transport)

    def _wait_for_child(self, pid: int, transport: Any) -> None:
        """In a thread of its own, which leaves the child to the loop's to reap."""
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        try:
            self.call_soon_threadsafe(self._exited, pid, transport)
        except RuntimeError:
            self._reap(pid)
            logger.warning("Loop %r that handles pid %r is closed", self, pid)

    def _exited(self, pid: int, transport: Any) -> None:
        """Reaps the child and tells its transport.

        In one callback: in between, the number could be another process's, and a
        transport that knows of no end would send its signals there.
        """
        self._children -= 1
        popen = transport._proc
        # Up to 3.12 kill() and its kin go through Popen.poll(), which reaps.
        known = None if popen is None else popen.returncode
        transport._process_exited(self._reap(pid) if known is None else known)

    def _reap(self, pid: int) -> int:
        try:
            _, status = os.waitpid(pid, 0)
        except ChildProcessError:
            logger.warning(
                "child process pid %d exit status already read: will report returncode %d",
                pid,
                _STATUS_UNKNOWN,
            )
            return _STATUS_UNKNOWN
        code = os.waitstatus_to_exitcode(status)
        if self._debug:
            logger.debug("process %s exited with returncode %s", pid, code)
        return code
