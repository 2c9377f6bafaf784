"""Programs that a test runs to their end."""

from __future__ import annotations

import inspect
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
    """Run this Python with the arguments, and with these variables beside those of the tests.

    The result's stdout has the output with errors; with `apart` the errors are in its stderr.  The
    test fails if it takes longer than the limit, in seconds; then its children end too.
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


def scenarios(path: Path, *others: str) -> list[str]:
    """The functions of a file without parameters, but for its tools and those of `others`."""
    namespace: dict[str, object] = {"__name__": path.stem}
    exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), namespace)
    return [
        name
        for name, function in namespace.items()
        if inspect.isfunction(function)
        and function.__code__.co_filename == str(path)
        and not inspect.iscoroutinefunction(function)
        and not inspect.signature(function).parameters
        and not name.startswith("_")
        and name not in others
    ]
