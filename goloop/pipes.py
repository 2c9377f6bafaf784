"""Pipes: the native transports of their two ends.

connect_read_pipe and connect_write_pipe are inherited and ask for transports here, as
the subprocess transport does for a child's pipes.
"""

from __future__ import annotations

import asyncio

from . import _core
from .base import CoreLoop

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Pipes(CoreLoop):
    """Transports of pipes."""

    def _make_read_pipe_transport(
        self,
        pipe: Any,
        protocol: asyncio.BaseProtocol,
        waiter: asyncio.Future[Any] | None = None,
        extra: dict[str, Any] | None = None,
    ) -> asyncio.ReadTransport:
        return _core.ReadPipeTransport(self, pipe, protocol, waiter, extra)

    def _make_write_pipe_transport(
        self,
        pipe: Any,
        protocol: asyncio.BaseProtocol,
        waiter: asyncio.Future[Any] | None = None,
        extra: dict[str, Any] | None = None,
    ) -> asyncio.WriteTransport:
        return _core.WritePipeTransport(self, pipe, protocol, waiter, extra)
