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
