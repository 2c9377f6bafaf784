"""Exceptions of simulations."""

from __future__ import annotations


class SimulationError(Exception):
    """Base class: a simulation has found an error, or can't continue.  Since 0.3.0."""

    __module__ = "goloop.testing"


class SimulationDeadlock(SimulationError):
    """The program waits for ever: nothing is ready, no timer is set, no packet is in transit.

    The message lists the tasks with their awaits and awaiters, as `goloop pstree` does.
    Since 0.3.0.
    """

    __module__ = "goloop.testing"


class SimulationTimeout(SimulationError):
    """The program was not done at `max_time`; the message lists the tasks.  Since 0.3.0."""

    __module__ = "goloop.testing"


class EscapedSimulation(SimulationError):
    """The program has used something that can't be simulated; the message names an alternative.

    Examples: a call from another thread, a child process, a descriptor of the real system.
    Since 0.3.0.
    """

    __module__ = "goloop.testing"


class InvariantBroken(SimulationError):
    """A predicate of `Simulation.always()` was false.  Since 0.3.0."""

    __module__ = "goloop.testing"


class NeverHappened(SimulationError):
    """A predicate of `Simulation.eventually()` was not true in time.  Since 0.3.0."""

    __module__ = "goloop.testing"


class LeftBehind(SimulationError):
    """The program has returned without ending its tasks, transports or servers.

    `findings` has a sentence for each leak: running tasks, open transports and servers, unhandled
    exceptions.  The first unhandled exception is the `__cause__`.  Since 0.3.0.
    """

    __module__ = "goloop.testing"

    def __init__(self, message: str, findings: tuple[str, ...] = ()) -> None:
        """Create the exception with its message and `findings`."""
        super().__init__(message)
        self.findings = findings


class NonDeterminism(SimulationError):
    """Two runs of one seed differ; the message has the first event that differs.

    Since 0.3.0.
    """

    __module__ = "goloop.testing"
