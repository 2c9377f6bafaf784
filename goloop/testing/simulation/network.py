"""The network between the hosts of a simulation."""

from __future__ import annotations

import enum
import itertools
import struct
from collections.abc import Iterable

from ..simulated.kernel import Kernel, Request, request

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..hosts.hosts import Host, Hosts


class _LinkState(enum.IntEnum):
    """The state of a direction between two hosts; the numbers are those of links.go."""

    OPEN = 0
    PARTITIONED = 1
    HELD = 2


class Network:
    """The links between hosts; `Simulation.net`.  Since 0.3.0.

    A host is passed as `Host` or by name, and a group of hosts as a collection of these.  Settings
    apply to packets that are sent afterwards.  The main function, which is on no host, reaches all
    hosts independently of the settings.
    """

    __module__ = "goloop.testing"

    def __init__(self, kernel: Kernel, hosts: Hosts, latency: tuple[float, float]) -> None:
        """Control the links of a kernel; `latency`, (min, max) in seconds, is their default."""
        self._kernel = kernel
        self._hosts = hosts
        self._latency = latency

    def set_link(
        self,
        a: Host | str,
        b: Host | str,
        *,
        latency: float | tuple[float, float] | None = None,
        bandwidth: float = 0.0,
        loss: float = 0.0,
        reorder: float = 0.0,
        duplicate: float = 0.0,
        fragment: float = 0.0,
    ) -> None:
        """Set the link between two hosts, in both directions; replaces all earlier settings.

        Args:
            a: The first host.
            b: The second host.
            latency: Seconds that a packet takes, or a tuple (min, max) of seconds; None: the
                default of links.
            bandwidth: Bytes per second in each direction, shared by all packets; 0: no limit.
            loss: Probability that a packet is lost.  A stream sends the packet again, so its bytes
                are delayed.
            reorder: Probability that a datagram overtakes earlier datagrams.
            duplicate: Probability that a datagram arrives twice.
            fragment: Probability that a piece of a stream arrives in two parts.

        Raises:
            ValueError: A host does not exist, a probability is not from 0 to 1, or another number
                is negative.
        """
        if latency is None:
            latency = self._latency
        least, most = latency if isinstance(latency, tuple) else (latency, latency)
        if not 0 <= least <= most or not bandwidth >= 0:
            raise ValueError(
                "latency and bandwidth must be >= 0, and latency=(min, max) with min <= max, "
                f"got latency={latency!r}, bandwidth={bandwidth!r}"
            )
        chances = loss, reorder, duplicate, fragment
        if not all(0 <= each <= 1 for each in chances):
            raise ValueError(
                "loss, reorder, duplicate and fragment must be probabilities from 0 to 1, "
                f"got {chances!r}"
            )
        data = struct.pack("=7d", least, most, bandwidth, *chances)
        one, other = self._number(a), self._number(b)
        for pair in ((one, other), (other, one)):
            request(Request.LINK, self._kernel.number, *pair, data=data)

    def partition(self, a: Iterable[Host | str], b: Iterable[Host | str]) -> None:
        """Drop all packets between two groups of hosts, until `heal()`.

        As on Linux, streams retransmit for 15 minutes before they fail with ETIMEDOUT, and new
        connections fail with ETIMEDOUT after two minutes.

        Raises:
            ValueError: A host does not exist.
        """
        self._set_both_ways(_LinkState.PARTITIONED, a, b)

    def partition_oneway(
        self, sources: Iterable[Host | str], targets: Iterable[Host | str]
    ) -> None:
        """Drop the packets from one group of hosts to another; `partition()` in one direction.

        Raises:
            ValueError: A host does not exist.
        """
        self._set(_LinkState.PARTITIONED, self._group(sources), self._group(targets))

    def hold(self, a: Iterable[Host | str], b: Iterable[Host | str]) -> None:
        """Delay all packets between two groups of hosts until `heal()`, without losing any.

        Raises:
            ValueError: A host does not exist.
        """
        self._set_both_ways(_LinkState.HELD, a, b)

    def heal(
        self,
        a: Iterable[Host | str] | None = None,
        b: Iterable[Host | str] | None = None,
    ) -> None:
        """Open the network again, between two groups of hosts or, without groups, everywhere.

        Packets delayed by `hold()` are delivered; packets of a stream that a partition has dropped
        are retransmitted.

        Raises:
            ValueError: A host does not exist.
        """
        every = list(self._hosts.by_name())
        self._set_both_ways(_LinkState.OPEN, every if a is None else a, every if b is None else b)

    def _set_both_ways(
        self, state: _LinkState, a: Iterable[Host | str], b: Iterable[Host | str]
    ) -> None:
        """Set the state of all directions between two groups of hosts."""
        one, other = self._group(a), self._group(b)
        self._set(state, one, other)
        self._set(state, other, one)

    def _set(self, state: _LinkState, sources: list[int], targets: list[int]) -> None:
        """Set the state of all directions from sources to targets."""
        for source, target in itertools.product(sources, targets):
            if source != target:
                request(Request.WAY, self._kernel.number, source, target, state)

    def _group(self, group: Iterable[Host | str]) -> list[int]:
        """Return the kernel's numbers for a group of hosts, sorted.

        ValueError for a single name and for a host that does not exist.
        """
        if isinstance(group, str):
            raise ValueError(
                f"a group must be a collection of hosts, got the string {group!r}; pass [{group!r}]"
            )
        return sorted(map(self._number, group))

    def _number(self, host: Host | str) -> int:
        """Return the kernel's number for a host; ValueError if the host does not exist."""
        name = host if isinstance(host, str) else host.name
        found = self._hosts.by_name().get(name)
        if found is None or (not isinstance(host, str) and found is not host):
            raise ValueError(f"the simulation has no host {name!r}")
        return found._number
