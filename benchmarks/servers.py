"""The measured servers and clients that stay: their start, the wait for them, and their end."""

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
    A process that `talks` is a client: it is ready once it has printed its server's address, and
    then answers each line.
    """

    def __init__(
        self,
        directory: tempfile.TemporaryDirectory[str],
        command: Sequence[str],
        variables: Mapping[str, str],
        prepare: Callable[[], None],
        loops: int,
        *,
        talks: bool = False,
    ) -> None:
        """Start the process and wait until each of its loops listens; raises Failure if not."""
        self._directory = directory
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115  end() closes it
        self._output = b""
        self.windows = 0
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE if talks else subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=self._complaints, env=dict(variables),
            preexec_fn=prepare,
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
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()
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

    def ask(self, line: str, seconds: float) -> str:
        """Write a line to a process that talks, and return its answer; raises Failure."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(f"{line}\n".encode())
            self.process.stdin.flush()
        except BrokenPipeError:
            raise self._gone("client") from None
        return os.fsdecode(self._line("client", "answer", seconds))

    def _gone(self, role: str) -> Failure:
        return Failure(f"the {role} {told(self.process.wait(), self.last_line())}")

    def _listening(self, loops: int) -> str:
        """Wait for the line "port N" or "path P" of each loop, and return N or P.

        The results of several loops are joined by commas.  Other lines, for example of a logger,
        are ignored.
        """
        role, verb = ("server", "listen") if self.process.stdin is None else ("client", "connect")
        deadline = time.monotonic() + START_SECONDS
        found: list[str] = []
        while len(found) < loops:
            line = self._line(role, verb, deadline - time.monotonic())
            if line.startswith((b"port ", b"path ")):
                found.append(os.fsdecode(line[5:].strip()))
        return ",".join(found)

    def _line(self, role: str, verb: str, seconds: float) -> bytes:
        """Return the next line of output; raises Failure if there is none in some seconds."""
        assert self.process.stdout is not None
        deadline = time.monotonic() + seconds
        while b"\n" not in self._output:
            remaining = max(deadline - time.monotonic(), 0)
            ready, _, _ = select.select([self.process.stdout], [], [], remaining)
            if not ready:
                raise Failure(f"the {role} did not {verb} within {seconds:.0f} s")
            piece = os.read(self.process.stdout.fileno(), 4096)
            if not piece:
                raise self._gone(role)
            self._output += piece
        line, _, self._output = self._output.partition(b"\n")
        return line


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
