"""The parent's end of the load generator."""

from __future__ import annotations

import json
import os
import sys

from . import launch
from .loops import GOLOOP
from .measuring.talker import Talker
from .measuring.turns import Failure

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from ..keeper import Keeper


class LoadGenerator(Talker):
    """The process of load.py, which runs on goloop."""

    def __init__(self, cores: Sequence[int], keeper: Keeper) -> None:
        """Start the process on these cores."""
        self._record = keeper.record()
        launcher = launch.arguments(GOLOOP.factory, self._record.name, cores)
        super().__init__(
            [sys.executable, *launcher, "-m", "goloop.operations.compare.load"],
            start_new_session=True,
            cwd="/",  # the user's folder may have a json.py
            env={name: value for name, value in os.environ.items() if not _is_setting(name)},
        )

    def end(self) -> None:
        """End the process."""
        super().end()
        self._record.close()

    def run(self, order: dict[str, Any]) -> dict[str, Any]:
        """Run a burst and return its result; raises Failure."""
        try:
            self.say(json.dumps(order))
            result: dict[str, Any] = json.loads(self.line())
        except EOFError:
            raise Failure("the load generator has ended") from None
        if "error" in result:
            raise Failure(result["error"])
        return result


def _is_setting(name: str) -> bool:
    """Return true for goloop's variables, which are meant for the measured program."""
    return name.startswith("GOLOOP_")
