"""Datagram endpoints.

create_datagram_endpoint is inherited and asks for the transport here: the native one
for UDP and for Unix datagrams; CPython's own, over the loop's watches, for families
whose addresses only Python's socket module knows (netlink, packets, CAN, ...) and for
other kinds of sockets.
"""

from __future__ import annotations

import asyncio
import asyncio.selector_events
import socket
import weakref
from asyncio import trsock
from collections.abc import Callable

from . import _core, transport_info
from .base import CoreLoop

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_selector_events: Any = asyncio.selector_events
_SelectorDatagramTransport: Any = _selector_events._SelectorDatagramTransport

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
        connected = bool(entries["peername"])
        super().__init__(loop, sock, protocol, address, waiter, entries, sock.family, connected)

    def __repr__(self) -> str:
        return transport_info.described(self)


class OtherDatagramTransport(_SelectorDatagramTransport):  # type: ignore[misc]
    """asyncio's transport; only its repr looked into a selector."""

    # From 3.15 on asyncio's give the loop a context, which for datagrams is always None.

    def _add_reader(self, fd: int, callback: Callable[..., object], *args: object) -> None:
        if self.is_reading():
            self._loop._add_reader(fd, callback, *args)

    def _add_writer(self, fd: int, callback: Callable[..., object], *args: object) -> None:
        self._loop._add_writer(fd, callback, *args)

    def __repr__(self) -> str:
        words = [type(self).__name__]
        if self._sock is None:
            words.append("closed")
        elif self._closing:
            words.append("closing")
        words.append(f"fd={self._sock_fd}")
        if self._loop is not None and not self._loop.is_closed():
            words.append("read=polling" if self.is_reading() else "read=idle")
            state = "polling" if self._buffer else "idle"
            words.append(f"write=<{state}, bufsize={self.get_write_buffer_size()}>")
        return f"<{' '.join(words)}>"


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
        if sock.family in _NATIVE_FAMILIES and sock.type == socket.SOCK_DGRAM:
            return DatagramTransport(self, sock, protocol, address, waiter, extra)
        self._ensure_fd_no_transport(sock)
        transport: asyncio.DatagramTransport = OtherDatagramTransport(
            self, sock, protocol, address, waiter, extra
        )
        return transport
