"""Pipes: CPython's own pipe transports over the loop's watches.

connect_read_pipe and connect_write_pipe are inherited and ask for transports here.
"""

from __future__ import annotations

import asyncio
import asyncio.unix_events

from .base import CoreLoop

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_unix_events: Any = asyncio.unix_events


class Pipes(CoreLoop):
    """Transports of pipes."""

    def _make_read_pipe_transport(
        self,
        pipe: Any,
        protocol: asyncio.BaseProtocol,
        waiter: asyncio.Future[Any] | None = None,
        extra: dict[str, Any] | None = None,
    ) -> asyncio.ReadTransport:
        transport: asyncio.ReadTransport = _unix_events._UnixReadPipeTransport(
            self, pipe, protocol, waiter, extra
        )
        return transport

    def _make_write_pipe_transport(
        self,
        pipe: Any,
        protocol: asyncio.BaseProtocol,
        waiter: asyncio.Future[Any] | None = None,
        extra: dict[str, Any] | None = None,
    ) -> asyncio.WriteTransport:
        transport: asyncio.WriteTransport = _unix_events._UnixWritePipeTransport(
            self, pipe, protocol, waiter, extra
        )
        return transport
