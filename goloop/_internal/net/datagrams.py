"""Datagram endpoints.

create_datagram_endpoint is inherited and asks for the transport here: the native one
for UDP and for Unix datagrams; CPython's own, over the loop's watches, for families
whose addresses only Python's socket module knows (netlink, packets, CAN, ...) and for
other kinds of sockets.
"""

from __future__ import annotations

import asyncio
import asyncio.selector_events
import collections
import socket
import sys
import weakref
from asyncio import trsock

from ... import _core
from ..loop import arg_errors
from ..loop.base import CoreLoop
from ..loop.debugging import as_handled
from . import transport_info

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# What the socket module takes for an IPv4 address without asking anybody.
_SPECIAL_HOSTS = ("", b"", "<broadcast>", b"<broadcast>")
# What asyncio calls of such a socket, and native code stands in for.
_METHODS = frozenset({"fileno", "recvfrom", "send", "sendto"})
_selector_events: Any = asyncio.selector_events
# Of what is queued; the others' turn comes before the rest.
_MOST_IN_A_TURN = 64
# What asyncio counts for each queued datagram beside its bytes, since 3.13, whose first release
# has no name for it.
_HEADER: int = getattr(
    _selector_events._SelectorDatagramTransport,
    "_header_size",
    8 if sys.version_info >= (3, 13) else 0,
)
_NATIVE_FAMILIES = frozenset({socket.AF_INET, socket.AF_INET6, socket.AF_UNIX})


class DatagramTransport(_core.DatagramTransport):
    """A datagram socket as an asyncio.DatagramTransport."""

    def __init__(
        self,
        loop: CoreLoop,
        sock: socket.socket,
        protocol: asyncio.DatagramProtocol,
        address: Any = None,
        waiter: asyncio.Future[Any] | None = None,
        extra: dict[str, Any] | None = None,
    ) -> None:
        loop._ensure_fd_no_transport(sock)
        entries = transport_info.with_names(extra, trsock.TransportSocket(sock), sock)
        peer = entries["peername"]
        super().__init__(
            loop,
            sock,
            protocol,
            address,
            waiter,
            entries,
            sock.family,
            connected=bool(peer),
            nameless=peer is not None and not peer,
        )

    # ---- called by C: what seldom happens

    _fatal_error = transport_info.fatal_error

    def _check_address(self, address: Any) -> None:
        """Where the transport has a remote address no other may be given."""
        if address != self._address:
            raise ValueError(f"Invalid address: must be None or {self._address}")

    def _tell_error(self, protocol: Any, exc: OSError) -> None:
        as_handled(exc, protocol.error_received, exc)

    def _enqueue(self, data: Any, address: Any) -> None:
        """The kernel has no room for a datagram, or for one before it."""
        kept = bytes(data)
        if self._conn_lost:  # nobody would send it any more
            return
        if self._parcels is None:
            self._parcels = collections.deque()
        self._parcels.append((kept, address))
        self._buffer_size += len(kept) + _HEADER
        # In a copy of the context: a sender may be in that very one, which can't be entered twice.
        context: Any = self._context
        context.copy().run(self._maybe_pause_protocol)

    def _drain(self) -> None:
        """The kernel has room: sends in order until it has none, one fails, or it was many."""
        for _ in range(_MOST_IN_A_TURN):
            if not self._parcels or self._conn_lost:
                break
            data, address = self._parcels.popleft()
            size = len(data) + _HEADER
            self._buffer_size -= size
            try:
                sent = self._send(data, address)
            except OSError as exc:
                if self._protocol is not None:
                    self._protocol.error_received(exc)
                return  # the rest has its turn, as in asyncio
            except (SystemExit, KeyboardInterrupt):
                raise
            except (
                TypeError,
                ValueError,
                OverflowError,
            ) as exc:  # data is bytes: it is the address
                message = "Invalid address of a datagram, which is dropped"
                self._loop._event_failed(message, exc, self, self._protocol)
                continue
            except BaseException as exc:
                self._fatal_error(exc, "Fatal write error on datagram transport")
                return
            if not sent:
                if self._parcels is not None:
                    self._parcels.appendleft((data, address))
                    self._buffer_size += size
                break
        self._maybe_resume_protocol()  # which may send more
        if not self._parcels:
            self._sent_all()

    def get_write_buffer_size(self) -> int:
        """Return how many bytes the kernel has not taken yet."""
        return self._buffer_size

    def _refuse_look_up(self, address: Any) -> None:
        """ValueError for a host name; what else is wrong is the socket's to say."""
        host = address[0] if isinstance(address, tuple) and address else None
        if not isinstance(host, (str, bytes)) or host in _SPECIAL_HOSTS:
            return
        family = self.get_extra_info("socket").family
        try:
            socket.getaddrinfo(host, None, family, flags=socket.AI_NUMERICHOST)
        except (OSError, ValueError) as exc:
            if isinstance(exc, socket.gaierror) and exc.errno == socket.EAI_NONAME:
                raise ValueError(
                    f"{address!r}: sendto() looks up no names; give it an address, from "
                    "loop.getaddrinfo() or remote_addr= of create_datagram_endpoint()"
                ) from None

    def __repr__(self) -> str:
        return transport_info.described(self, self._blocked, self._buffer_size)


arg_errors.named_as(DatagramTransport)


class Datagrams(CoreLoop):
    """Datagram transports."""

    # By fd, where asyncio's own transport enters itself.
    _transports: weakref.WeakValueDictionary[int, Any]

    def _init_datagrams(self) -> None:
        self._transports = weakref.WeakValueDictionary()

    def _make_datagram_transport(
        self,
        sock: socket.socket,
        protocol: asyncio.DatagramProtocol,
        address: Any = None,
        waiter: asyncio.Future[Any] | None = None,
        extra: dict[str, Any] | None = None,
    ) -> asyncio.DatagramTransport:
        if (
            sock.family in _NATIVE_FAMILIES
            and sock.type == socket.SOCK_DGRAM
            and _METHODS.isdisjoint(_core.replaced_methods(sock))
        ):
            return DatagramTransport(self, sock, protocol, address, waiter, extra)
        from .selector_transports import OtherDatagramTransport  # seldom needed

        self._ensure_fd_no_transport(sock)
        transport: asyncio.DatagramTransport = OtherDatagramTransport(
            self, sock, protocol, address, waiter, extra
        )
        return transport
