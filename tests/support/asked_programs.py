"""Programs that run under `python -m goloop ps`, `pstree` and `top`, and these commands."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

SECONDS = 60.0


@contextlib.contextmanager
def running(
    program: str,
    ready: str = "ready\n",
    *,
    asked: bool = True,
    before: Sequence[str] = (),
    **environ: str,
) -> Iterator[subprocess.Popen[str]]:
    """The program, from the line that it prints when it is ready; `asked` whether it answers.

    `before` is a command that runs the one that follows it.
    """
    with subprocess.Popen(
        [*before, sys.executable, "-c", program],
        env={**os.environ, "GOLOOP_INTROSPECT": "1" if asked else "", **environ},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
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
    return subprocess.run(
        [sys.executable, *start, *arguments],
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


def until(condition: Callable[[], Any], what: Callable[[], object] = lambda: "") -> Any:
    """Return the condition's first true value; `what` describes the state in an error."""
    deadline = time.monotonic() + SECONDS
    while not (found := condition()):
        assert time.monotonic() < deadline, what()
        time.sleep(0.02)
    return found
