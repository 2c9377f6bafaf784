"""TLS session resumption for clients.

    context = ssl.create_default_context()
    goloop.tls.resume_sessions(context)

A full handshake costs both sides a signature, a verification of certificates and, before TLS 1.3, a
round trip. A client that offers the session of an earlier connection avoids them (RFC 8446, 2.2).
asyncio's clients cannot do that (cpython#79152); goloop's do it if the program enables it.
"""

from __future__ import annotations

import contextlib
import ssl
import time
from typing import Any

__all__ = ("resume_sessions",)

_ATTRIBUTE = "_goloop_sessions"  # attribute of the context, which _internal/tls/protocol.py reads
_SESSIONS_PER_SERVER = (
    16  # sessions stored per server: this many connections that begin together can resume one
)
_Key = tuple[object, ...]
_Offer = tuple[_Key, ssl.SSLSession | None]


class _Sessions:
    """The last sessions of each server, by name and by port or path."""

    # The context has this object as an attribute. A session keeps its context alive, so any other
    # owner of the sessions would keep the context forever. The collector frees this cycle.
    #
    # Loops in several threads may share the context. There is no lock, which a fork could leave
    # locked: each step is a single operation of a dict or a list, which is atomic on free-threaded
    # Python, too (operations of an OrderedDict are not).

    def __init__(self, hosts: int) -> None:
        """Store the sessions of at most `hosts` servers."""
        self._hosts = hosts
        # The oldest entries are first, in both the dict and the lists.
        self._stored: dict[_Key, list[ssl.SSLSession]] = {}
        # The time until which no session is offered; servers that rejected the last offer.
        self._refused_until: dict[_Key, float] = {}
        self._failed: dict[_Key, None] = {}

    def offer(self, sslobj: ssl.SSLObject, address: Any) -> _Offer:
        """Offer the newest stored session before a handshake.

        Offers none if there is none, if it has expired or belongs to another context (it is dropped
        then), or while the server is refused, see failed(). Returns the argument for keep() and
        failed(). A session is offered once (RFC 8446, C.4), and each connection provides the next
        one.
        """
        key = _session_key(sslobj, address)
        now = time.time()
        session = None
        if self._refused_until.get(key, now) <= now:
            with contextlib.suppress(KeyError, IndexError):
                session = self._stored[key].pop()
        if session is not None and session.time + session.timeout > now:
            # A program's own wrap_bio() may have used another context than the session's.
            with contextlib.suppress(ValueError):
                sslobj.session = session
                return key, session
        return key, None

    def store(self, offer: _Offer, sslobj: ssl.SSLObject) -> None:
        """Store the session of a connection at its end, if it has one: TLS 1.3 may send it late."""
        key, offered = offer
        session = sslobj.session
        if offered is not None:
            self._failed.pop(key, None)
        if session is not None:
            kept = self._stored.get(key, [])
            kept.append(session)
            del kept[:-_SESSIONS_PER_SERVER]
            self._set_newest(self._stored, key, kept)

    def record_failure(self, offer: _Offer, exc: BaseException | None) -> None:
        """Record that a handshake failed, perhaps because of its session: the next is a full one.

        Does nothing if no session was offered, or without an exception.

        A server that cannot resume its own sessions rejects each of them. It gets no more offers
        during the lifetime of its sessions: after a TLS error immediately, and after two failures
        of another kind, because some servers close the connection without an alert.
        """
        key, offered = offer
        if offered is None or exc is None:
            return
        self._stored.pop(key, None)
        if isinstance(exc, ssl.SSLError) or key in self._failed:
            self._set_newest(self._refused_until, key, time.time() + offered.timeout)
        self._set_newest(self._failed, key, None)

    def _set_newest(self, table: dict[_Key, Any], key: _Key, value: Any) -> None:
        """Set an entry of a table as its newest, and remove the oldest ones beyond the limit."""
        table.pop(key, None)
        table[key] = value
        # Another thread may change the table meanwhile, and then it removes the oldest.
        with contextlib.suppress(RuntimeError, StopIteration):
            while len(table) > self._hosts:
                table.pop(next(iter(table)), None)


def _session_key(sslobj: ssl.SSLObject, address: Any) -> _Key:
    """Return the key for sessions: the server, and the context's settings for verification."""
    # OpenSSL verifies no certificate again, so a session is valid for equal settings only.
    context = sslobj.context
    checks = context.verify_mode, context.check_hostname, context.verify_flags
    name = sslobj.server_hostname
    # A name stands for all IP addresses of its host. Unix servers may share a name, but no path.
    is_ip_address = isinstance(address, tuple) and isinstance(address[0], str)
    where = address[1] if is_ip_address and name is not None else address
    return (name, where, *checks)


def resume_sessions(context: ssl.SSLContext, *, hosts: int = 256) -> None:
    """Let goloop's clients with this context resume their last session with each server.

    The server's certificate is verified when the session begins, and not again; the client's own
    certificate stays the first connection's, too. So call this when the context is set up:
    certificates or revocations that are loaded into the context later apply to new sessions only.
    If the server rejects the session, the handshake is a full one; the `session_reused` of a
    transport's `ssl_object` shows which it was. Connections of asyncio's own loop are not affected.
    Since 0.3.0.

    Args:
        context: The context of a client.
        hosts: The number of servers with stored sessions; the most recently used are kept.

    Raises:
        TypeError: `context` is not an SSLContext.
        ValueError: The context is a server's, or `hosts` is less than 1.
    """
    if not isinstance(context, ssl.SSLContext):
        raise TypeError(f"context must be an ssl.SSLContext, got {type(context).__name__}")
    if context.protocol == ssl.PROTOCOL_TLS_SERVER:
        raise ValueError(
            "context is a server's context, and resume_sessions() is for clients: servers offer "
            "resumption without this call"
        )
    if not isinstance(hosts, int) or hosts < 1:
        raise ValueError(f"hosts must be >= 1, got {hosts!r}")
    setattr(context, _ATTRIBUTE, _Sessions(hosts))
