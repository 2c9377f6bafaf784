"""Datagram endpoints.

create_datagram_endpoint is inherited and asks for the transport here: the native one
for UDP and for Unix datagrams; CPython's own, over the loop's watches, for families
whose addresses only Python's socket module knows (netlink, packets, CAN, ...) and for
other kinds of sockets.
"""

from __future__ import annotations

import asyncio
import socket
import weakref
from asyncio import trsock

from ... import _core
from ..loop.base import CoreLoop
from . import transport_info

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# What the socket module takes for an IPv4 address without asking anybody.
_SPECIAL_HOSTS = ("", b"", "<broadcast>", b"<broadcast>")
# What asyncio calls of such a socket, and native code stands in for.
_METHODS = frozenset({"fileno", "recvfrom", "send", "sendto"})
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
        return transport_info.described(self)


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
