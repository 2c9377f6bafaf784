"""Programs that a test runs to their end."""

from __future__ import annotations

import ast
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest


def python(
    *arguments: object,
    limit: float = 100,
    apart: bool = False,
    cwd: Path | None = None,
    text: str | None = None,
    **environ: str,
) -> subprocess.CompletedProcess[str]:
    """Run this Python with the arguments, and with these variables beside those of the tests.

    Its stdin has the text.  The result's stdout has the output with errors; with `apart` the errors
    are in its stderr.  The test fails if it takes longer than the limit, in seconds; then its
    children end too.
    """
    process = subprocess.Popen(
        [sys.executable, *map(str, arguments)],
        env={**os.environ, **environ},
        cwd=cwd,
        stdin=subprocess.DEVNULL if text is None else subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE if apart else subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        said, errors = process.communicate(text, timeout=limit)
    except BaseException as exc:  # of pytest-timeout, for example
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        said, errors = process.communicate()
        if isinstance(exc, subprocess.TimeoutExpired):
            pytest.fail(f"hangs\n{said}{errors or ''}")
        raise
    return subprocess.CompletedProcess(process.args, process.returncode, said, errors)


def passes(
    path: Path,
    *arguments: object,
    options: Sequence[str] = ("-X", "faulthandler"),
    limit: float = 300,
    **environ: str,
) -> str:
    """Run a program, which must end well, and return its output.

    The arguments of a file with scenarios are the scenario's name and parameters.
    """
    done = python(*options, path, *arguments, limit=limit, apart=True, **environ)
    words = " ".join(map(str, (path.name, *arguments)))
    assert done.returncode == 0, f"{words} ended with {done.returncode}: {done.stdout}{done.stderr}"
    return done.stdout


def scenarios(path: Path, *others: str) -> list[str]:
    """Return the names of a file's scenarios, each of which `python FILE NAME` runs.

    A scenario is a function of the file without parameters, decorators and a leading underscore.
    `others` are functions that do not count.
    """
    return [
        node.name
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef)
        and not (node.decorator_list or ast.unparse(node.args))
        and not node.name.startswith("_")
        and node.name not in others
    ]
