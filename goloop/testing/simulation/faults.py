"""What the simulated kernel does wrong.

pybridge/golib/simulation_requests_linux.go has the calls that each fault meets, and
netloop/simulated/faults.go decides.
"""

from __future__ import annotations

import struct

from ..simulated.kernel import Ask, ask

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..simulated.kernel import Kernel

_EVERYWHERE = -1
# With a chance of 1 these never end: a call is made again at once.
_AGAIN = frozenset({"interrupted", "would_block", "spurious_readiness"})


class Faults:
    """What the kernel does wrong: `Simulation.faults`, and `Host.faults` for one host.

    Chances are of one call on a socket, and the seed decides.  A program on Linux can see each of
    these errors.  Since 0.3.0.
    """

    __module__ = "goloop.testing"

    def __init__(self, kernel: Kernel, host: int = _EVERYWHERE) -> None:
        self._kernel, self._host = kernel, host

    def set(
        self,
        *,
        connection_reset: float = 0.0,
        connection_timeout: float = 0.0,
        short_reads: float = 0.0,
        short_writes: float = 0.0,
        one_byte: float = 0.0,
        interrupted: float = 0.0,
        would_block: float = 0.0,
        no_buffers: float = 0.0,
        late_readiness: float = 0.0,
        spurious_readiness: float = 0.0,
        descriptors: int | None = None,
    ) -> None:
        """Set the faults from now on; it replaces what was set, and a host's own replace all.

        Args:
            connection_reset: The chance that a connection breaks at a read or a write: ECONNRESET
                here, and a reset for the peer, of a Unix socket the end of the stream.
            connection_timeout: The same with ETIMEDOUT, of TCP.
            short_reads: The chance that a read of a stream gives a part of what is there.
            short_writes: The chance that a write to a stream takes a part of what there is room
                for.
            one_byte: The chance that either moves one byte.
            interrupted: The chance of EINTR, also of a wait for readiness; below 1.
            would_block: The chance of EAGAIN of a socket that does not block; below 1.
            no_buffers: The chance of ENOBUFS of accept(2) and of sendto(2), which sends datagrams.
            late_readiness: The chance that the program hears up to 50 ms late that a socket is
                ready.
            spurious_readiness: The chance that a wait reports a socket that may not be ready;
                below 1.
            descriptors: How many sockets and ends of pipes each host may have open; then what makes
                one fails with EMFILE.  None: any number.

        Raises:
            TypeError: A chance is no number, or `descriptors` no int.
            ValueError: A chance is not from 0 to 1, or is 1 where it has to be below, or
                `descriptors` is negative or 0.
        """
        chances = {
            "connection_reset": connection_reset,
            "connection_timeout": connection_timeout,
            "short_reads": short_reads,
            "short_writes": short_writes,
            "one_byte": one_byte,
            "interrupted": interrupted,
            "would_block": would_block,
            "no_buffers": no_buffers,
            "late_readiness": late_readiness,
            "spurious_readiness": spurious_readiness,
        }
        for name, chance in chances.items():
            _check(name, chance)
        if descriptors is not None:
            if not isinstance(descriptors, int) or isinstance(descriptors, bool):
                raise TypeError(f"descriptors is an int, not {descriptors!r}")
            if not 0 < descriptors < 1 << 31:
                raise ValueError(f"descriptors is a number from 1 on, not {descriptors}")
        self._send(True, descriptors or 0, *chances.values())

    def clear(self) -> None:
        """No faults from now on; of a host: those of `Simulation.faults` again."""
        self._send(False, 0)

    def _send(self, has: bool, descriptors: int, *chances: float) -> None:
        data = struct.pack(f"={len(chances)}d", *chances)
        ask(Ask.SET_FAULTS, self._kernel.number, self._host, has, descriptors, data=data)


def _check(name: str, chance: float) -> None:
    if not isinstance(chance, (int, float)) or isinstance(chance, bool):
        raise TypeError(f"{name} is a number, not {chance!r}")
    if not 0 <= chance <= 1:
        raise ValueError(f"{name} is a chance from 0 to 1, not {chance!r}")
    if chance == 1 and name in _AGAIN:
        raise ValueError(f"{name} has to be below 1, or the call is made again for ever")
