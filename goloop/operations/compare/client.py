"""The parent's end of the load generator."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from ..keeper import Keeper
from . import launch
from .loops import GOLOOP
from .servers import Failure

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any


class LoadGenerator:
    """The process of load.py, which runs on goloop; a context manager that ends it."""

    def __init__(self, cores: Sequence[int], keeper: Keeper) -> None:
        """Start the process on these cores."""
        self._record = keeper.record()
        launcher = launch.arguments(GOLOOP.factory, self._record.name, cores)
        self._process = subprocess.Popen(
            [sys.executable, *launcher, "-m", "goloop.operations.compare.load"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            text=True,
            cwd="/",  # the user's folder may have a json.py
            env={name: value for name, value in os.environ.items() if not _is_setting(name)},
        )

    def __enter__(self) -> LoadGenerator:
        """Return the load generator."""
        return self

    def __exit__(self, *error: object) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()
        self._record.close()

    def run(self, order: dict[str, Any]) -> dict[str, Any]:
        """Run a burst and return its result; raises Failure."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise Failure("the load generator has ended")
        result: dict[str, Any] = json.loads(line)
        if "error" in result:
            raise Failure(result["error"])
        return result


def _is_setting(name: str) -> bool:
    """Return true for goloop's variables, which are meant for the measured program."""
    return name.startswith("GOLOOP_")
