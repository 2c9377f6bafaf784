"""Tests in virtual time: a clock that the test advances, and simulations of whole programs.

    from goloop import testing

    async def main():
        await asyncio.sleep(3600)

    testing.run(main, seed=7)

See docs/testing.md and docs/testing-reference.md.
"""

from __future__ import annotations

from .._internal.backend import native

if not native:
    raise ImportError(
        "goloop.testing needs goloop's own loop, and this Python runs asyncio's; "
        "goloop.diagnostics()['reason'] has the cause"
    )

from .hosts.hosts import Host
from .hosts.programs import Process
from .simulated.clock import MockClock, new_event_loop, wait_all_tasks_blocked
from .simulated.errors import (
    EscapedSimulation,
    InvariantBroken,
    LeftBehind,
    NeverHappened,
    NonDeterminism,
    SimulationDeadlock,
    SimulationError,
    SimulationTimeout,
)
from .simulation.faults import Faults
from .simulation.hypothesis import DrawnSimulation, simulations
from .simulation.network import Network
from .simulation.run import Result, Simulation, buggify, run
from .simulation.simulate import simulate

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
