"""Programs that run under `python -m goloop ps`, `pstree` and `top`, and these commands."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import ended

SECONDS = 60.0


class Program(subprocess.Popen[str]):
    """A program whose streams are pipes."""

    stdin: IO[str]  # type: ignore[assignment]
    stdout: IO[str]  # type: ignore[assignment]
    stderr: IO[str]  # type: ignore[assignment]

    def say(self, line: str) -> None:
        """Write a line to its stdin."""
        print(line, file=self.stdin, flush=True)


@contextlib.contextmanager
def running(
    program: str | Path | tuple[object, ...],
    ready: str = "ready\n",
    *,
    asked: bool = True,
    before: Sequence[str] = (),
    **environ: str,
) -> Iterator[Program]:
    """The program, from the line that it prints when it is ready; `asked` whether it answers.

    The program is a text, a file, or a file with its arguments; `before` is a command that runs the
    one that follows it.
    """
    command = ["-c", program] if isinstance(program, str) else [program]
    if isinstance(program, tuple):
        command = list(program)
    with Program(
        [*before, sys.executable, *map(str, command)],
        env={**os.environ, "GOLOOP_INTROSPECT": "1" if asked else "", **environ},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            if ready:
                assert process.stdout.readline() == ready
            yield process
        finally:
            process.kill()


def goloop(*arguments: str, before: str = "", **environ: str) -> subprocess.CompletedProcess[str]:
    """`python -m goloop arguments`; `before` is Python that runs in that process first."""
    start = ["-m", "goloop"]
    if before:
        start = ["-c", f"{before}\nimport sys\nfrom goloop.__main__ import command\n"]
        start[1] += "sys.exit(command())"
    return ended.python(*start, *arguments, limit=SECONDS, apart=True, **environ)


def until(condition: Callable[[], Any], what: Callable[[], object] = lambda: "") -> Any:
    """Return the condition's first true value; `what` returns the state for the error message."""
    deadline = time.monotonic() + SECONDS
    while not (found := condition()):
        assert time.monotonic() < deadline, what()
        time.sleep(0.02)
    return found
