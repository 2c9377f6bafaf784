"""A process that talks: it gets lines on its standard input and answers with lines."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Self


class Talker:
    """The process, and the output that has not been read; a context manager that kills it."""

    def __init__(self, command: Sequence[str], **options: Any) -> None:
        """Start a command; the options are those of subprocess.Popen."""
        self._output = b""
        self.process: subprocess.Popen[bytes] = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **options
        )

    def __enter__(self) -> Self:
        """Return the process."""
        return self

    def __exit__(self, *error: object) -> None:
        """End the process."""
        self.end()

    def say(self, line: str) -> None:
        """Write a line; raises EOFError if the process has ended."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(f"{line}\n".encode())
            self.process.stdin.flush()
        except BrokenPipeError:
            raise EOFError from None

    def line(self, seconds: float | None = None) -> str:
        """Return the next line of output; raises EOFError at its end, TimeoutError after a time."""
        assert self.process.stdout is not None
        end = None if seconds is None else time.monotonic() + seconds
        while b"\n" not in self._output:
            left = None if end is None else max(end - time.monotonic(), 0)
            if not select.select([self.process.stdout], [], [], left)[0]:
                raise TimeoutError
            piece = os.read(self.process.stdout.fileno(), 1 << 16)
            if not piece:
                raise EOFError
            self._output += piece
        line, _, self._output = self._output.partition(b"\n")
        return os.fsdecode(line)

    def end(self) -> None:
        """Kill the process."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):  # a line that the process did not read
                pipe.close()
