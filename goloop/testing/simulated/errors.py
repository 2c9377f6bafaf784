"""What a simulation raises."""

from __future__ import annotations


class SimulationError(Exception):
    """A simulation has found something, or could not go on.  Since 0.3.0."""

    __module__ = "goloop.testing"


class SimulationDeadlock(SimulationError):
    """Nothing can run, no timer is set, and nothing is on its way: the program waits for ever.

    The message lists the tasks, what each one awaits, and what awaits it, as `goloop pstree` does.
    Since 0.3.0.
    """

    __module__ = "goloop.testing"


class SimulationTimeout(SimulationError):
    """The program was not done at `max_time`; the message lists who awaits what.  Since 0.3.0."""

    __module__ = "goloop.testing"


class EscapedSimulation(SimulationError):
    """The program has asked for something that can't be simulated, and the message says what to do.

    A thread that calls in, a child process, a descriptor of the host's.  Since 0.3.0.
    """

    __module__ = "goloop.testing"


class InvariantBroken(SimulationError):
    """What `Simulation.always()` was given has been false.  Since 0.3.0."""

    __module__ = "goloop.testing"


class NeverHappened(SimulationError):
    """What `Simulation.eventually()` was given was not true in time.  Since 0.3.0."""

    __module__ = "goloop.testing"


class LeftBehind(SimulationError):
    """The program has returned, and has left something that it should have ended or looked at.

    `findings` has a sentence for each: tasks that run, transports and servers that are open, and
    exceptions that no code has handled, the first of which is the cause.  Since 0.3.0.
    """

    __module__ = "goloop.testing"

    def __init__(self, message: str, findings: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.findings = findings


class NonDeterminism(SimulationError):
    """A seed has not given the same run twice; the message has the first event that differs.

    Since 0.3.0.
    """

    __module__ = "goloop.testing"
