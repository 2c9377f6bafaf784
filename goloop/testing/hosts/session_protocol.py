"""The part of a simulation's session that hosts, programs and the network use."""

from __future__ import annotations

from typing import Any, Protocol

from ..simulated.kernel import Kernel


class Session(Protocol):
    """A running simulation; SimulationRun of simulation/session.py implements it."""

    @property
    def kernel(self) -> Kernel:
        """Return the simulated kernel."""

    @property
    def loop(self) -> Any:
        """Return the loop that runs all hosts; None before and after the run."""

    def note(self, text: str) -> None:
        """Append a line to the trace."""
