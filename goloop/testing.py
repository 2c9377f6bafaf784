"""Tests in virtual time: a clock that tests move, and simulations of whole programs.

    from goloop import testing

    async def main():
        await asyncio.sleep(3600)

    testing.run(main, seed=7)

See docs/testing.md and docs/testing-reference.md.
"""

from __future__ import annotations

from ._internal.chosen import native

if not native:
    raise ImportError("goloop.testing needs goloop's own loop; goloop.diagnostics() has the reason")

from ._internal.hosts.hosts import Host
from ._internal.hosts.programs import Process
from ._internal.simulated.clock import MockClock, new_event_loop, wait_all_tasks_blocked
from ._internal.simulated.errors import (
    EscapedSimulation,
    InvariantBroken,
    LeftBehind,
    NeverHappened,
    NonDeterminism,
    SimulationDeadlock,
    SimulationError,
    SimulationTimeout,
)
from ._internal.simulation.drawn import DrawnSimulation, simulations
from ._internal.simulation.faults import Faults
from ._internal.simulation.network import Network
from ._internal.simulation.run import Result, Simulation, buggify, run
from ._internal.simulation.simulate import simulate

__all__ = (
    "DrawnSimulation",
    "EscapedSimulation",
    "Faults",
    "Host",
    "InvariantBroken",
    "LeftBehind",
    "MockClock",
    "Network",
    "NeverHappened",
    "NonDeterminism",
    "Process",
    "Result",
    "Simulation",
    "SimulationDeadlock",
    "SimulationError",
    "SimulationTimeout",
    "buggify",
    "new_event_loop",
    "run",
    "simulate",
    "simulations",
    "wait_all_tasks_blocked",
)
