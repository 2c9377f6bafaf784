"""Ends the programs of a command, and removes its files, when the command has ended in any way.

A command that starts programs (`goloop compare`, `goloop doctor PROGRAM`) cannot end them after a
SIGKILL. So it starts this file as a *keeper*, a process of a session of its own, which waits for
the end of a pipe that only the command has open for writing. The system closes the pipe when the
command ends.

The keeper makes the command's folder for temporary files. There each program has a *record*, a file
with the line "process PID" for each process that the keeper has to end. The command removes the
record after the program. When the pipe ends, the keeper removes the folder and ends the recorded
processes, with all processes of their sessions if they lead one.

The file is run by its path, without goloop and without site-packages: it must import nothing else.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess
    from typing import IO

# The signals by which users, terminals and service managers end a command.
ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
# A program that does not end in this time after SIGTERM is killed.
END_SECONDS = 3.0
_PROCESS = "process"


# ---- the command's side --------------------------------------------------------------------------


class Keeper:
    """A running keeper; a context manager, whose exit ends the keeper and removes the folder."""

    def __init__(self) -> None:
        """Start the keeper, and wait until it has made the folder."""
        import subprocess

        self._process: subprocess.Popen[bytes] = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # no signal of a terminal reaches it
        )
        assert self._process.stdout is not None
        with self._process.stdout as answer:
            self.folder = os.fsdecode(answer.read())
        if not self.folder:
            raise OSError("the folder for temporary files cannot be made")

    def __enter__(self) -> Keeper:
        """Return the keeper."""
        return self

    def __exit__(self, *error: object) -> None:
        """End the keeper."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def record(self) -> IO[str]:
        """Return a new record, opened for reading; closing removes it."""
        import tempfile

        return tempfile.NamedTemporaryFile("r", dir=self.folder)


def add_process(record: str, pid: int) -> bool:
    """Append a process to a record; return false if the keeper has ended the record's processes.

    The keeper first removes a record and then reads it. So it has read this line, or the record
    is missing by now.
    """
    try:
        fd = os.open(record, os.O_WRONLY | os.O_APPEND)
    except FileNotFoundError:
        return False
    try:
        os.write(fd, f"{_PROCESS} {pid}\n".encode())
    finally:
        os.close(fd)
    return os.path.exists(record)


def kill_session(leader: int) -> None:
    """Kill all processes of a session, also if its leader has ended, or a process that leads none.

    Without /proc these are the processes of the leader's process group.
    """
    for _ in range(100):  # a killed process may just have started another one
        found = session_pids(leader)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(leader, signal.SIGKILL)
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if set(session_pids(leader)) <= set(found):
            break


def session_pids(leader: int) -> list[int]:
    """Return the processes of a session, with ended ones that still have a number.

    [] if the process leads no session, or if the system has no /proc.
    """
    found = []
    with contextlib.suppress(OSError):
        for name in os.listdir("/proc"):
            if name.isdigit():
                with contextlib.suppress(OSError):
                    if os.getsid(int(name)) == leader:
                        found.append(int(name))
    return found


# ---- the keeper ----------------------------------------------------------------------------------


def main() -> None:
    """Make the folder, wait for the end of the command, and then end its programs."""
    import tempfile

    for number in ENDING_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    folder = tempfile.mkdtemp(prefix="goloop-")
    with contextlib.suppress(BrokenPipeError):
        os.write(1, os.fsencode(folder))
    os.close(1)
    while os.read(0, 4096):
        pass
    pids = _take_records(folder)
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGTERM)
    end = time.monotonic() + END_SECONDS
    while any(map(_exists, pids)) and time.monotonic() < end:
        time.sleep(0.02)
    for pid in pids:
        kill_session(pid)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def _take_records(folder: str) -> list[int]:
    """Remove a folder, and return the processes in its records."""
    pids = []
    while names := os.listdir(folder):  # no loop: the command has ended, and makes no record
        for name in names:
            path = os.path.join(folder, name)
            with open(path, encoding="utf-8", errors="replace") as record:
                os.unlink(path)
                for line in record:
                    word, _, rest = line.partition(" ")
                    if word == _PROCESS and rest.strip().isdigit():
                        pids.append(int(rest))
    os.rmdir(folder)
    return pids


def _exists(pid: int) -> bool:
    """Return true if a process has not ended, or has ended and still has its number."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass  # another user's process
    return True


if __name__ == "__main__":
    main()
