"""The measured server processes: their start, the wait until they listen, and their end."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence

START_SECONDS = 20.0  # an interpreter and a loop on a busy machine
END_SECONDS = 1.0  # from a crash to the end of the process
CRASHED = ("fatal error: ", "panic: ", "Fatal Python error: ")


class Failure(Exception):
    """A round did not finish; the text is one line for the report."""


class Server:
    """A process that listens, with the directory of its files.

    `address` is the address for its clients; `windows` counts how often it has been measured.
    """

    def __init__(
        self,
        directory: tempfile.TemporaryDirectory[str],
        command: Sequence[str],
        variables: Mapping[str, str],
        prepare: Callable[[], None],
        loops: int,
    ) -> None:
        """Start the process and wait until each of its loops listens; raises Failure if not."""
        self._directory = directory
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115  end() closes it
        self.windows = 0
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self._complaints,
            env=dict(variables), preexec_fn=prepare,
        )  # fmt: skip
        try:
            self.address = self._listening(loops)
        except BaseException:
            self.end()
            raise

    def end(self) -> None:
        """End the process, and remove its files."""
        self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
        self._complaints.close()
        self._directory.cleanup()

    def ended(self, *, wait: bool) -> int | None:
        """Return the exit status of the process, or None while it runs.

        With `wait`, wait for a moment: a crashed server may still be about to end.
        """
        try:
            return self.process.wait(END_SECONDS if wait else 0)
        except subprocess.TimeoutExpired:
            return None

    def last_line(self) -> str:
        """Return the most informative line of the process's standard error."""
        self._complaints.seek(0)
        return text_last_line(self._complaints.read().decode(errors="replace"))

    def _listening(self, loops: int) -> str:
        """Wait for the line "port N" or "path P" of each loop, and return N or P.

        The results of several loops are joined by commas.  Other lines, for example of a logger,
        are ignored.
        """
        assert self.process.stdout is not None
        deadline = time.monotonic() + START_SECONDS
        output = b""
        found: list[str] = []
        while True:
            whole, newline, output = output.partition(b"\n")
            if newline:
                if whole.startswith((b"port ", b"path ")):
                    found.append(os.fsdecode(whole[5:].strip()))
                if len(found) == loops:
                    return ",".join(found)
                continue
            output = whole
            remaining = max(deadline - time.monotonic(), 0)
            ready, _, _ = select.select([self.process.stdout], [], [], remaining)
            if not ready:
                raise Failure(f"the server did not listen within {START_SECONDS:.0f} s")
            piece = os.read(self.process.stdout.fileno(), 4096)
            if not piece:
                raise Failure(f"the server {told(self.process.wait(), self.last_line())}")
            output += piece


def ending(status: int) -> str:
    """Write how a process ended."""
    if status < 0:
        return f"was ended by {signal.Signals(-status).name}"
    return f"exited with status {status}"


def told(status: int, words: str) -> str:
    """Write how a process ended, with the last line of its output if there is one."""
    return f"{ending(status)}: {words}" if words else ending(status)


def text_last_line(text: str) -> str:
    """Return the reason of a crash, or the last line of a text."""
    lines = text.strip().splitlines()
    # A long crash report of Go or Python starts with the reason.
    reasons = [line for line in lines if line.startswith(CRASHED)]
    return (reasons[:1] or lines[-1:] or [""])[0].strip()
