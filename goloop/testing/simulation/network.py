"""The network between the hosts of a simulation."""

from __future__ import annotations

import enum
import itertools
import struct
from collections.abc import Iterable

from ..simulated.kernel import Ask, Kernel, ask

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..hosts.hosts import Host, Hosts


class _Way(enum.IntEnum):
    """Whether packets pass, see links.go."""

    OPEN = 0
    PARTITIONED = 1
    HELD = 2


class Network:
    """How packets travel between hosts; `Simulation.net`.  Since 0.3.0.

    Hosts are given as `Host` or by name, and groups of them as collections of these.  What is set
    holds for packets that are sent from then on.  Programs of the main function, which are on no
    host, reach all hosts whatever is set.
    """

    __module__ = "goloop.testing"

    def __init__(self, kernel: Kernel, hosts: Hosts, latency: tuple[float, float]) -> None:
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
        """Set how packets travel between two hosts, in both directions; it replaces what was set.

        Args:
            a: A host.
            b: Another one.
            latency: Seconds that a packet takes, or the least and the most of them; None: as
                between hosts of which nothing was set.
            bandwidth: Bytes per second in each direction, shared by all that is sent; 0: no limit.
            loss: The chance that a packet is lost.  Streams send it again: there it is a delay.
            reorder: The chance that a datagram does not wait for those before it.
            duplicate: The chance that a datagram arrives twice.
            fragment: The chance that a piece of a stream arrives in two.

        Raises:
            ValueError: There is no such host, a chance is not from 0 to 1, or another number is
                negative.
        """
        if latency is None:
            latency = self._latency
        least, most = latency if isinstance(latency, tuple) else (latency, latency)
        if not 0 <= least <= most or not bandwidth >= 0:
            raise ValueError("latency and bandwidth are numbers from 0 on, the least latency first")
        chances = loss, reorder, duplicate, fragment
        if not all(0 <= each <= 1 for each in chances):
            raise ValueError("chances are numbers from 0 to 1")
        data = struct.pack("=7d", least, most, bandwidth, *chances)
        one, other = self._number(a), self._number(b)
        for pair in ((one, other), (other, one)):
            ask(Ask.LINK, self._kernel.number, *pair, data=data)

    def partition(self, a: Iterable[Host | str], b: Iterable[Host | str]) -> None:
        """Lose all packets between two groups of hosts, until `heal()`.

        Streams send theirs again, for 15 minutes, as Linux does, before they fail with ETIMEDOUT.
        New connections fail so after two minutes.

        Raises:
            ValueError: There is no such host.
        """
        self._set_both(_Way.PARTITIONED, a, b)

    def partition_oneway(
        self, sources: Iterable[Host | str], targets: Iterable[Host | str]
    ) -> None:
        """Lose the packets from one group of hosts to another, as `partition()` does for both.

        Raises:
            ValueError: There is no such host.
        """
        self._set(_Way.PARTITIONED, self._group(sources), self._group(targets))

    def hold(self, a: Iterable[Host | str], b: Iterable[Host | str]) -> None:
        """Keep all packets between two groups of hosts back, until `heal()`; none is lost.

        Raises:
            ValueError: There is no such host.
        """
        self._set_both(_Way.HELD, a, b)

    def heal(
        self,
        a: Iterable[Host | str] | None = None,
        b: Iterable[Host | str] | None = None,
    ) -> None:
        """Open the network again, between two groups of hosts or, without them, everywhere.

        What was held goes on its way; what a partition has lost comes with a retransmission.

        Raises:
            ValueError: There is no such host.
        """
        every = list(self._hosts.by_name())
        self._set_both(_Way.OPEN, every if a is None else a, every if b is None else b)

    def _set_both(self, way: _Way, a: Iterable[Host | str], b: Iterable[Host | str]) -> None:
        one, other = self._group(a), self._group(b)
        self._set(way, one, other)
        self._set(way, other, one)

    def _set(self, way: _Way, sources: list[int], targets: list[int]) -> None:
        for source, target in itertools.product(sources, targets):
            if source != target:
                ask(Ask.WAY, self._kernel.number, source, target, way)

    def _group(self, group: Iterable[Host | str]) -> list[int]:
        if isinstance(group, str):
            raise ValueError(f"{group!r} is one host; a group is a collection of hosts")
        return sorted(map(self._number, group))

    def _number(self, host: Host | str) -> int:
        name = host if isinstance(host, str) else host.name
        found = self._hosts.by_name().get(name)
        if found is None or (not isinstance(host, str) and found is not host):
            raise ValueError(f"the simulation has no host {name!r}")
        return found._number
