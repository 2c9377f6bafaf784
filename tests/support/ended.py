"""Programs that a test runs to their end."""

from __future__ import annotations

import os
import subprocess
import sys


def python(*arguments: object, limit: float, **environ: str) -> subprocess.CompletedProcess[str]:
    """This Python with the arguments, and with the variables that the environment doesn't set.

    What it prints, errors too, is its stdout.
    """
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        env={**environ, **os.environ},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=limit,
        check=False,
    )
