"""Ray on one machine: actors in two workers, and Serve, each process looked into."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from real_programs.programs import APPS, LOOP, Program, Programs, free_port, needs

needs("ray", "fastapi")  # the second with ray[serve]

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]


@pytest.fixture
def folder() -> Iterator[Path]:
    """For Ray's files: a Unix socket's path has to be short."""
    made = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))
    yield made
    shutil.rmtree(made, ignore_errors=True)


def said(program: Program) -> dict[str, Any]:
    program.process.wait(270)
    assert program.process.returncode == 0, program.output
    lines = [line for line in program.output.splitlines() if line.startswith('["')]
    return dict(json.loads(line) for line in lines)


def test_actors_and_serve_run_on_goloop(programs: Programs, folder: Path) -> None:
    program = programs.python(
        # Ray's own processes and threads, as Ray leaves them.
        *("-W", "ignore::ResourceWarning", "-W", "ignore::DeprecationWarning"),
        *(APPS / "ray_app.py", folder, str(free_port())),
        # No token is written to the home folder, and no usage statistics are sent.
        RAY_AUTH_MODE="disabled",
        RAY_USAGE_STATS_ENABLED="0",
    )
    found = said(program)
    loops, pids = zip(*found.pop("actors"), strict=True)
    assert loops == (LOOP, LOOP)
    assert len({*pids, program.process.pid}) == 3
    assert found.pop("numbers") == [0, 1, 2]
    assert found.pop("task") == found.pop("driver") == LOOP
    served = found.pop("serve")
    assert (served["loop"], served["got"]) == (LOOP, 100_000)
    # The loops in Serve's controller, in its proxy for HTTP, and in the replica.
    assert len(found) == 3
    assert list(found.values()) == [[LOOP]] * 3, found
