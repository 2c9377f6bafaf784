"""Programs that a test runs to their end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest


def python(
    *arguments: object,
    limit: float = 100,
    apart: bool = False,
    cwd: Path | None = None,
    **environ: str,
) -> subprocess.CompletedProcess[str]:
    """This Python with the arguments, and with these variables beside those of the tests.

    What it prints, errors too, is its stdout; with `apart` its errors are its stderr.  The test
    fails if it takes longer than the limit, in seconds; then its children end too.
    """
    process = subprocess.Popen(
        [sys.executable, *map(str, arguments)],
        env={**os.environ, **environ},
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE if apart else subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        said, errors = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        said, errors = process.communicate()
        pytest.fail(f"hangs\n{said}{errors or ''}")
    return subprocess.CompletedProcess(process.args, process.returncode, said, errors)
