"""What transports tell about themselves: the names of their sockets, and their repr."""

from __future__ import annotations

import socket
from collections.abc import Callable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def asked(ask: Callable[[], Any]) -> Any:
    """What socket.getsockname() or getpeername() says; None where it raises OSError."""
    try:
        return ask()
    except OSError:
        return None


def with_names(extra: dict[str, Any] | None, entry: Any, sock: socket.socket) -> dict[str, Any]:
    """Extra info with its three entries, in asyncio's order; a peername of the caller's stays."""
    if extra is None:
        extra = {}
    extra["socket"] = entry
    extra["sockname"] = asked(sock.getsockname)
    if "peername" not in extra:
        extra["peername"] = asked(sock.getpeername)
    return extra


def head(transport: Any) -> str:
    """The class, and whether it is closed or closing: how each repr begins."""
    state = " closed" if transport._number < 0 else " closing" if transport._closing else ""
    return type(transport).__name__ + state


def described(transport: Any) -> str:
    """The repr of a transport over a socket, as asyncio's."""
    words = f"{head(transport)} fd={transport._sock_fd}"
    loop = transport._loop
    if loop is not None and not loop.is_closed():
        reading, writing, size = transport._polled
        words += f" read={'polling' if reading else 'idle'}"
        words += f" write=<{'polling' if writing else 'idle'}, bufsize={size}>"
    return f"<{words}>"
