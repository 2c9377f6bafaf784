"""TLS sessions that clients keep, so that they connect again for less.

    context = ssl.create_default_context()
    goloop.tls.resume_sessions(context)

A full handshake costs both sides a signature, a check of certificates and, before TLS 1.3, a round
trip.  A client that offers the session of an earlier connection saves them (RFC 8446, 2.2).
asyncio's clients can't do that (cpython#79152); goloop's do it where a program asks for it.
"""

from __future__ import annotations

import collections
import contextlib
import ssl
import time
from typing import Any

__all__ = ("resume_sessions",)

_ATTRIBUTE = "_goloop_sessions"  # of the context; _internal/net/tls.py looks for it
_Key = tuple[object, ...]


class _Sessions:
    """The last session of each server, by name and port."""

    # The context has them as an attribute: a session keeps its context alive, and whoever had both
    # would keep it for ever.  So the two go together, by the collector.

    def __init__(self, hosts: int) -> None:
        self._hosts = hosts
        self._last: collections.OrderedDict[_Key, ssl.SSLSession] = collections.OrderedDict()

    def offer(self, sslobj: ssl.SSLObject, address: Any) -> _Key:
        """Before a handshake; what keep() is to be given."""
        key = _key(sslobj, address)
        session = self._last.pop(key, None)
        if session is not None and session.time + session.timeout > time.time():
            # A wrap_bio() of a program's may have used another context than the session's.
            with contextlib.suppress(ValueError):
                sslobj.session = session
                self._last[key] = session
        return key

    def keep(self, key: _Key, sslobj: ssl.SSLObject) -> None:
        """At the end of a connection: before, TLS 1.3 may not have sent a session yet."""
        session = sslobj.session
        if session is None:
            return
        self._last[key] = session
        self._last.move_to_end(key)
        while len(self._last) > self._hosts:
            self._last.popitem(last=False)


def _key(sslobj: ssl.SSLObject, address: Any) -> _Key:
    # OpenSSL checks no certificate again, so a session is for those who would have checked as much.
    context = sslobj.context
    checks = context.verify_mode, context.check_hostname, context.verify_flags
    where = address[:2] if isinstance(address, tuple) else (address,)
    name = sslobj.server_hostname
    return (name, where[1:] if name is not None else where, *checks)


def resume_sessions(context: ssl.SSLContext, *, hosts: int = 256) -> None:
    """Have goloop's clients with this context resume their last session with each server.

    The server's certificate was checked when the session began, and is not checked again; a
    client's own certificate is the one of then.  So call it when the context is set up: what is
    loaded into the context later (certificates, revocations) counts for new sessions.  Where the
    server takes no session the handshake is a full one; the `session_reused` of a transport's
    `ssl_object` tells which it was.  Connections of asyncio's own loop are not changed.
    Since 0.3.0.

    Args:
        context: A client's.
        hosts: Of how many servers a session is kept; those that were used last.

    Raises:
        TypeError: It is no SSLContext.
        ValueError: The context is a server's, or `hosts` is not positive.
    """
    if not isinstance(context, ssl.SSLContext):
        raise TypeError(f"context is an ssl.SSLContext, not {type(context).__name__}")
    if context.protocol == ssl.PROTOCOL_TLS_SERVER:
        raise ValueError("a server's context; servers need no call, they send sessions anyway")
    if not isinstance(hosts, int) or hosts < 1:
        raise ValueError(f"hosts is a positive number, not {hosts!r}")
    setattr(context, _ATTRIBUTE, _Sessions(hosts))
