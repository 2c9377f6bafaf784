"""Datagram endpoints.

create_datagram_endpoint is inherited from BaseEventLoop and creates its transport here: the
native one for UDP and for Unix datagrams; CPython's own, over add_reader and add_writer, for
other kinds of sockets and for families whose addresses only Python's socket module can decode
(netlink, packets, CAN, ...). A loop imports this module for its first endpoint.
"""

from __future__ import annotations

import asyncio
import asyncio.selector_events
import collections
import socket
import sys
from asyncio import trsock

from ... import _core
from ..loop import arg_errors
from ..loop.base import CoreLoop
from ..loop.debugging import as_handled
from . import transport_info
from .selector_transports import OtherDatagramTransport

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# Host names that the socket module accepts as IPv4 addresses without a lookup.
_SPECIAL_HOSTS = ("", b"", "<broadcast>", b"<broadcast>")
# The socket methods that asyncio calls for a datagram socket and native code replaces.
_METHODS = frozenset({"fileno", "recvfrom", "send", "sendto"})
_selector_events: Any = asyncio.selector_events
# The most queued datagrams that are sent per iteration, so that other transports run too.
_MAX_SENDS_PER_TURN = 64
# The number of bytes that asyncio adds to the buffer size for each queued datagram, since 3.13.0,
# which has the number but no name for it.
_HEADER_SIZE: int = getattr(
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
        """Create the transport, and schedule connection_made().

        `address` is the remote address, the only destination, or None. `waiter` gets its result
        after connection_made(). `extra` has entries for get_extra_info(), to which those of the
        socket are added. RuntimeError if another transport has the fd.
        """
        loop._ensure_fd_no_transport(sock)
        entries = transport_info.add_socket_info(extra, trsock.TransportSocket(sock), sock)
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

    # ---- called by C in rare cases

    _fatal_error = transport_info.fatal_error

    def _check_address(self, address: Any) -> None:
        """Raise ValueError if `address` differs from the transport's remote address."""
        if address != self._address:
            raise ValueError(f"Invalid address: must be None or {self._address}")

    def _call_error_received(self, protocol: Any, exc: OSError) -> None:
        """Call error_received() of the protocol with an OSError."""
        as_handled(exc, protocol.error_received, exc)

    def _enqueue(self, data: Any, address: Any) -> None:
        """Queue a datagram that the kernel did not accept, or that follows a queued one.

        Calls pause_writing() if the queue exceeds its limit. Drops the datagram if the transport
        was aborted.
        """
        copy = bytes(data)
        if self._conn_lost:  # the queue is not sent any more
            return
        if self._parcels is None:
            self._parcels = collections.deque()
        self._parcels.append((copy, address))
        self._buffer_size += len(copy) + _HEADER_SIZE
        # In a copy of the context: a sender may run in the context, which cannot be entered twice.
        context: Any = self._context
        context.copy().run(self._maybe_pause_protocol)

    def _drain(self) -> None:
        """Send queued datagrams in order, when the socket is writable.

        It ends when the kernel accepts no more, when a send has failed, or at _MAX_SENDS_PER_TURN.
        An OSError is passed to error_received(). A datagram with an invalid address is dropped and
        reported, and the next one is sent. Any other error aborts the transport.
        """
        for _ in range(_MAX_SENDS_PER_TURN):
            if not self._parcels or self._conn_lost:
                break
            data, address = self._parcels.popleft()
            size = len(data) + _HEADER_SIZE
            self._buffer_size -= size
            try:
                sent = self._send(data, address)
            except OSError as exc:
                if self._protocol is not None:
                    self._protocol.error_received(exc)
                return  # the next iteration sends the remaining datagrams, as in asyncio
            except (SystemExit, KeyboardInterrupt):
                raise
            except (
                TypeError,
                ValueError,
                OverflowError,
            ) as exc:  # data is bytes, so the address is invalid
                message = "A datagram was dropped, because its address is invalid"
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
        self._maybe_resume_protocol()  # resume_writing() may send more
        if not self._parcels:
            self._sent_all()

    def get_write_buffer_size(self) -> int:
        """Return the number of queued bytes, which the kernel has not accepted yet."""
        return self._buffer_size

    def _refuse_look_up(self, address: Any) -> None:
        """Raise ValueError if the address has a host name; the socket checks everything else."""
        host = address[0] if isinstance(address, tuple) and address else None
        if not isinstance(host, (str, bytes)) or host in _SPECIAL_HOSTS:
            return
        family = self.get_extra_info("socket").family
        try:
            socket.getaddrinfo(host, None, family, flags=socket.AI_NUMERICHOST)
        except (OSError, ValueError) as exc:
            if isinstance(exc, socket.gaierror) and exc.errno == socket.EAI_NONAME:
                raise ValueError(
                    f"{address!r}: sendto() does not resolve names; pass an IP address, as "
                    "from loop.getaddrinfo() or remote_addr= of create_datagram_endpoint()"
                ) from None

    def __repr__(self) -> str:
        return transport_info.socket_transport_repr(self, self._blocked, self._buffer_size)


arg_errors.use_asyncio_names(DatagramTransport)


def make_transport(
    loop: Any,
    sock: socket.socket,
    protocol: asyncio.DatagramProtocol,
    address: Any,
    waiter: asyncio.Future[Any] | None,
    extra: dict[str, Any] | None,
) -> asyncio.DatagramTransport:
    """Create and return the transport of a datagram socket.

    The transport is native if the socket is a UDP or Unix datagram socket whose methods were not
    replaced, else an OtherDatagramTransport. Raises RuntimeError if another transport has the fd.
    """
    if (
        sock.family in _NATIVE_FAMILIES
        and sock.type == socket.SOCK_DGRAM
        and _METHODS.isdisjoint(_core.replaced_methods(sock))
    ):
        return DatagramTransport(loop, sock, protocol, address, waiter, extra)
    loop._ensure_fd_no_transport(sock)
    transport: asyncio.DatagramTransport = OtherDatagramTransport(
        loop, sock, protocol, address, waiter, extra
    )
    return transport
