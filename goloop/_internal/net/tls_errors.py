"""OpenSSL's errors, worded as Python's `_ssl` words them.

Where the engine calls OpenSSL itself and it fails, what it left is taken from that call (`Stop`),
and the call is never made again to have `_ssl` name it. For OpenSSL need not fail twice: 3.6 goes
on with a handshake that it has refused. So the exception is made here, once per connection at
most, from `_ssl`'s own names of OpenSSL's numbers.
"""

from __future__ import annotations

import _ssl
import functools
import gc
import ssl
from ssl import SSLErrorNumber as Number

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# OpenSSL's numbers, the same in all its versions: a library, two of its reasons, and two results
# of looking at a certificate.
_LIB_SSL = 20
_CERTIFICATE_VERIFY_FAILED = 134
_UNEXPECTED_EOF = 294
_HOSTNAME_MISMATCH = 62
_IP_ADDRESS_MISMATCH = 64

# What a method has to be called with to fail; the names of those that the engine replaces.
_CALLS: dict[str, tuple[Any, ...]] = {"do_handshake": (), "read": (1,), "write": (b"-",)}


class Stop:
    """What a call of OpenSSL's left that has failed."""

    def __init__(
        self, why: int, code: int, words: str | None, verified: int, verify_words: str | None,
        server_hostname: str | None,
    ) -> None:  # fmt: skip
        self.why = why  # SSL_get_error()
        self.code = code  # the last in the queue of errors, or 0
        self.words = words  # those for that code
        self.verified = verified  # what came of the peer's certificate
        self.verify_words = verify_words
        self.server_hostname = server_hostname  # which a client has asked for


@functools.cache
def names() -> tuple[dict[tuple[int, int], str], dict[int, str]]:
    """The names of OpenSSL's reasons, by library and reason, and of its libraries.

    `_ssl` has them as attributes up to 3.11, and later for itself alone.
    """
    reasons: dict[tuple[int, int], str] = {}
    libraries: dict[int, str] = {}
    for each in gc.get_referents(_ssl):
        match next(iter(each), None) if isinstance(each, dict) else None:
            case (int(), int()):
                reasons = each
            case int():
                libraries = each
    return reasons, libraries


def _said(method: str, data: bytes) -> str:
    """What `_ssl`'s method says of an object that was made for it, and gets these bytes."""
    incoming = ssl.MemoryBIO()
    incoming.write(data)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    asked: Any = context.wrap_bio(incoming, ssl.MemoryBIO(), server_hostname="localhost")
    try:
        getattr(asked._sslobj, method)(*_CALLS[method])
    except ssl.SSLError as exc:
        return str(exc)
    return ""


@functools.cache
def place(method: str) -> str:
    """How the words of that method's errors end: "_ssl.c:" and the line that raises them."""
    said = _said(method, b"HTTP/1.1 400 Bad Request\r\n\r\n")
    return said.rpartition(" (")[2].removesuffix(")") or "_ssl.c"


@functools.cache
def _unknown_is_numbered() -> bool:
    """Whether `_ssl` gives the number of a code without words, as newer releases do."""
    fatal_alert_that_is_none = b"\x15\x03\x01\x00\x02\x02\xe7"
    return "unknown error (0x" in _said("do_handshake", fatal_alert_that_is_none)


def _split(code: int) -> tuple[int, int]:
    """The library and the reason."""
    if ssl.OPENSSL_VERSION_INFO >= (3,):
        return code >> 23 & 0xFF, code & 0x7FFFFF
    return code >> 24 & 0xFF, code & 0xFFF


def _kind(stop: Stop) -> tuple[type[ssl.SSLError], int, str | None]:
    """The exception's class, its number, and words that are not OpenSSL's."""
    if stop.why == Number.SSL_ERROR_ZERO_RETURN:
        return ssl.SSLZeroReturnError, stop.why, "TLS/SSL connection has been closed (EOF)"
    if stop.why == Number.SSL_ERROR_WANT_X509_LOOKUP:
        return ssl.SSLError, stop.why, "The operation did not complete (X509 lookup)"
    if stop.why not in (Number.SSL_ERROR_SSL, Number.SSL_ERROR_SYSCALL):
        return ssl.SSLError, Number.SSL_ERROR_INVALID_ERROR_CODE, "Invalid error code"
    found = _split(stop.code)
    # There is no system call below, so one that says nothing has met an end.
    says_nothing = stop.why == Number.SSL_ERROR_SYSCALL and not stop.code
    if says_nothing or found == (_LIB_SSL, _UNEXPECTED_EOF):
        words = "EOF occurred in violation of protocol"
        return ssl.SSLEOFError, Number.SSL_ERROR_EOF, words
    if found == (_LIB_SSL, _CERTIFICATE_VERIFY_FAILED):
        return ssl.SSLCertVerificationError, stop.why, None
    return ssl.SSLError, stop.why, None if stop.code else "A failure in the SSL library occurred"


def _about_certificate(stop: Stop) -> str | None:
    if stop.verified == _HOSTNAME_MISMATCH:
        return f"Hostname mismatch, certificate is not valid for '{stop.server_hostname}'."
    if stop.verified == _IP_ADDRESS_MISMATCH:
        return f"IP address mismatch, certificate is not valid for '{stop.server_hostname}'."
    return stop.verify_words


def worded(method: str, stop: Stop) -> ssl.SSLError:
    """The exception that `_ssl`'s method of that name would have raised."""
    kind, number, words = _kind(stop)
    reason = library = None
    if stop.code:
        reasons, libraries = names()
        found = _split(stop.code)
        reason, library = reasons.get(found), libraries.get(found[0])
        words = words or stop.words
        if words is None:
            words = "unknown error" + f" ({stop.code:#x})" * _unknown_is_numbered()
    words = words or "unknown error"
    refused = kind is ssl.SSLCertVerificationError
    about = _about_certificate(stop) if refused else None
    if reason and library:
        said = f"[{library}: {reason}] {words}"
        if refused:
            said += f": {about}"
    else:
        said = f"[{library}] {words}" if library else words
    made: Any = kind(int(number), f"{said} ({place(method)})")
    made.reason, made.library = reason, library
    if refused:
        made.verify_code, made.verify_message = stop.verified, about
    return made  # type: ignore[no-any-return]
