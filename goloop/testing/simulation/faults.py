"""Faults that the simulated kernel injects.

pybridge/golib/system_requests_linux.go has the calls to which each fault applies, and
netloop/simulated/faults.go decides which calls fail.
"""

from __future__ import annotations

import struct

from ..simulated.kernel import Request, request

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..simulated.kernel import Kernel

_EVERYWHERE = -1
# With the probability 1 these faults would never end: the caller repeats the call at once.
_REPEATED = frozenset({"interrupted", "would_block", "spurious_readiness"})


class Faults:
    """Injected faults: `Simulation.faults` for all hosts, and `Host.faults` for one host.

    A probability applies to each call on a socket, and the seed decides.  All faults can occur on
    Linux.  Since 0.3.0.
    """

    __module__ = "goloop.testing"

    def __init__(self, kernel: Kernel, host: int = _EVERYWHERE) -> None:
        """Control the faults of the host with a number; by default those of all hosts."""
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
        """Set all faults from now on; faults of a host replace those of the simulation.

        Args:
            connection_reset: Probability that a read or a write breaks the connection: it fails
                with ECONNRESET, and the peer gets a reset, or EOF on a Unix socket.
            connection_timeout: Probability that a read or a write on TCP breaks the connection with
                ETIMEDOUT.
            short_reads: Probability that a read of a stream returns only a part of the available
                bytes.
            short_writes: Probability that a write to a stream accepts only a part of the bytes that
                fit into the buffer.
            one_byte: Probability that a read or a write moves only one byte.
            interrupted: Probability of EINTR, also of a wait for readiness; below 1.
            would_block: Probability of EAGAIN on a non-blocking socket; below 1.
            no_buffers: Probability of ENOBUFS in accept(2) and in sendto(2) of a datagram.
            late_readiness: Probability that the readiness of a socket is reported up to 50 ms late.
            spurious_readiness: Probability that a wait reports a socket that may not be ready;
                below 1.
            descriptors: Number of sockets and pipe ends that each host may have open; further calls
                fail with EMFILE.  None: no limit.

        Raises:
            TypeError: A probability is not a number, or `descriptors` is not an int.
            ValueError: A probability is not from 0 to 1, or is 1 if it must be below, or
                `descriptors` is not positive.
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
                raise TypeError(f"descriptors must be an int, got {descriptors!r}")
            if not 0 < descriptors < 1 << 31:
                raise ValueError(f"descriptors must be from 1 to 2**31 - 1, got {descriptors}")
        self._send(True, descriptors or 0, *chances.values())

    def clear(self) -> None:
        """Remove the faults; a host then has those of `Simulation.faults` again."""
        self._send(False, 0)

    def _send(self, has_faults: bool, descriptors: int, *chances: float) -> None:
        """Send the faults to the kernel; without `has_faults` the settings are removed."""
        data = struct.pack(f"={len(chances)}d", *chances)
        request(
            Request.SET_FAULTS, self._kernel.number, self._host, has_faults, descriptors, data=data
        )


def _check(name: str, chance: float) -> None:
    """Raise TypeError or ValueError if a probability is invalid."""
    if not isinstance(chance, (int, float)) or isinstance(chance, bool):
        raise TypeError(f"{name} must be a number, got {chance!r}")
    if not 0 <= chance <= 1:
        raise ValueError(f"{name} must be a probability from 0 to 1, got {chance!r}")
    if chance == 1 and name in _REPEATED:
        raise ValueError(f"{name} must be below 1: with 1 the call would be repeated for ever")
