"""TLS: asyncio's SSLProtocol with its data path in C.

The state machine (handshake, shutdown, timeouts, flow control) is the running
version's own `asyncio.sslproto.SSLProtocol`. `_core.TLSEngine` stands before it in
the order of bases and replaces what runs per record; see pybridge/core/tls.c.
"""

from __future__ import annotations

import asyncio
from asyncio import sslproto
from typing import Any

from . import _core

_State = sslproto.SSLProtocolState


class TLSProtocol(_core.TLSEngine, sslproto.SSLProtocol):
    """The protocol between a stream transport and an application's protocol."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # SSLProtocol sets a receive buffer of this size aside; the stream transport
        # hands its bytes to the engine without one, and any other transport makes it
        # grow when it asks for a buffer.
        self.max_size = 0
        try:
            sslproto.SSLProtocol.__init__(self, *args, **kwargs)
        finally:
            del self.max_size

    def _get_app_transport(self) -> asyncio.Transport:
        known = self._app_transport is not None
        transport: Any = sslproto.SSLProtocol._get_app_transport(self)
        if not known:
            transport.write = self._write
        return transport  # type: ignore[no-any-return]

    def _received(self) -> None:
        """Bytes came in a state other than WRAPPED, where the engine reads."""
        state = self._state
        if state == _State.DO_HANDSHAKE:
            self._do_handshake()
        elif state == _State.FLUSHING:
            self._do_flush()
        elif state == _State.SHUTDOWN:
            self._do_shutdown()
