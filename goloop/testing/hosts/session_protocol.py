"""The part of a simulation that hosts, programs and the network use."""

from __future__ import annotations

from typing import Any, Protocol

from ..simulated.kernel import Kernel


class Session(Protocol):
    """A simulation while it runs; simulation/session.py implements it."""

    @property
    def kernel(self) -> Kernel:
        """The simulated kernel."""

    @property
    def loop(self) -> Any:
        """The loop that runs all hosts; None before and after the run."""

    def note(self, what: str) -> None:
        """Adds a line to the trace."""
