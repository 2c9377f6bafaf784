"""asyncio's own transports over the loop's watches, where the native ones would not do.

Datagram transports of families whose addresses only Python's socket module knows, and streams over
a socket with methods of its own: they call these methods.
"""

from __future__ import annotations

import asyncio.selector_events
from asyncio import BufferedProtocol
from collections.abc import Callable

from .transport_info import has_buffer_methods

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_selector_events: Any = asyncio.selector_events
_SelectorDatagramTransport: Any = _selector_events._SelectorDatagramTransport
_SelectorSocketTransport: Any = _selector_events._SelectorSocketTransport


class _OverWatches:
    """What looked into a selector, or wants more of the loop than its watches."""

    _closing: bool
    _loop: Any
    _sock: Any
    _sock_fd: int
    _buffer: Any
    is_reading: Callable[[], bool]
    get_write_buffer_size: Callable[[], int]

    # From 3.15 on asyncio gives the loop the transport's context along; None for datagrams.
    _context: Any = None

    def _within(self, callback: Callable[..., object]) -> tuple[Any, ...]:
        return (callback,) if self._context is None else (self._context.run, callback)

    def _add_reader(self, fd: int, callback: Callable[..., object], *args: object) -> None:
        if self.is_reading():
            self._loop._add_reader(fd, *self._within(callback), *args)

    def _add_writer(self, fd: int, callback: Callable[..., object], *args: object) -> None:
        self._loop._add_writer(fd, *self._within(callback), *args)

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


class OtherDatagramTransport(_OverWatches, _SelectorDatagramTransport):  # type: ignore[misc]
    """asyncio's datagram transport."""

    if _SelectorDatagramTransport.is_reading is asyncio.ReadTransport.is_reading:
        # asyncio's first releases of 3.11: it reads until it closes.
        def is_reading(self) -> bool:
            return not self._closing


class OtherStreamTransport(_OverWatches, _SelectorSocketTransport):  # type: ignore[misc]
    """asyncio's stream transport."""

    def _unexposed(self) -> Any:
        return self._sock

    def set_protocol(self, protocol: Any) -> None:
        _SelectorSocketTransport.set_protocol(self, protocol)
        # asyncio looks at the class alone.
        if not isinstance(protocol, BufferedProtocol) and has_buffer_methods(protocol):
            self._read_ready_cb = self._read_ready__get_buffer
