"""TLS sessions that clients keep, so that they connect again for less.

    context = ssl.create_default_context()
    goloop.tls.resume_sessions(context)

A full handshake costs both sides a signature, a check of certificates and, before TLS 1.3, a round
trip.  A client that offers the session of an earlier connection saves them (RFC 8446, 2.2).
asyncio's clients can't do that (cpython#79152); goloop's do it where a program asks for it.
"""

from __future__ import annotations

import contextlib
import ssl
import time
from typing import Any

__all__ = ("resume_sessions",)

_ATTRIBUTE = "_goloop_sessions"  # of the context; _internal/net/tls.py looks for it
_EACH = 16  # sessions of a server: so many connections begin at once and resume one each
_Key = tuple[object, ...]
_Offer = tuple[_Key, ssl.SSLSession | None]


class _Sessions:
    """The last sessions of each server, by name and port."""

    # The context has them as an attribute: a session keeps its context alive, and whoever had both
    # would keep it for ever.  So the two go together, by the collector.
    #
    # Loops in several threads may share the context.  There is no lock, which a fork could leave
    # locked: each step is one operation of a dict or a list, which is atomic in free-threaded
    # builds too (an OrderedDict's are not).

    def __init__(self, hosts: int) -> None:
        self._hosts = hosts
        # The oldest first, in both.
        self._last: dict[_Key, list[ssl.SSLSession]] = {}
        # Until when no session is offered; and those servers to which the last offer has failed.
        self._refused: dict[_Key, float] = {}
        self._failed: dict[_Key, None] = {}

    def offer(self, sslobj: ssl.SSLObject, address: Any) -> _Offer:
        """Before a handshake; returns the argument for keep() and failed().

        A session is offered once (RFC 8446, C.4), and each connection gives the next one.
        """
        key = _key(sslobj, address)
        now = time.time()
        session = None
        if self._refused.get(key, now) <= now:
            with contextlib.suppress(KeyError, IndexError):
                session = self._last[key].pop()
        if session is not None and session.time + session.timeout > now:
            # A wrap_bio() of a program's may have used another context than the session's.
            with contextlib.suppress(ValueError):
                sslobj.session = session
                return key, session
        return key, None

    def keep(self, offer: _Offer, sslobj: ssl.SSLObject) -> None:
        """At the end of a connection: before, TLS 1.3 may not have sent a session yet."""
        key, offered = offer
        session = sslobj.session
        if offered is not None:
            self._failed.pop(key, None)
        if session is not None:
            kept = self._last.get(key, [])
            kept.append(session)
            del kept[:-_EACH]
            self._put(self._last, key, kept)

    def failed(self, offer: _Offer, exc: BaseException | None) -> None:
        """A handshake has failed: perhaps because of its session, so the next is a full one.

        A server that can't resume its own sessions refuses each one. It gets no more offers for
        as long as its sessions live: after an error of TLS at once, and after two failures of
        another kind, as some servers close the connection without an alert.
        """
        key, offered = offer
        if offered is None or exc is None:
            return
        self._last.pop(key, None)
        if isinstance(exc, ssl.SSLError) or key in self._failed:
            self._put(self._refused, key, time.time() + offered.timeout)
        self._put(self._failed, key, None)

    def _put(self, table: dict[_Key, Any], key: _Key, value: Any) -> None:
        table.pop(key, None)
        table[key] = value
        # Another thread may change it meanwhile, and removes the oldest as well.
        with contextlib.suppress(RuntimeError, StopIteration):
            while len(table) > self._hosts:
                table.pop(next(iter(table)), None)


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
