"""OpenSSL errors as Python exceptions, with the texts of Python's `_ssl`.

When a call of OpenSSL by the engine fails, its error codes are saved (`OpenSSLFailure`), and the
exception is created here from `_ssl`'s names of OpenSSL's numbers, at most once per connection.
The call is never repeated through `_ssl` to have it raise the exception, because it need not fail
again: OpenSSL 3.6 continues a handshake that it has rejected.
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
# of a certificate's verification.
_LIB_SSL = 20
_CERTIFICATE_VERIFY_FAILED = 134
_UNEXPECTED_EOF = 294
_HOSTNAME_MISMATCH = 62
_IP_ADDRESS_MISMATCH = 64

# The methods that the engine replaces, with arguments for a call that fails.
_CALLS: dict[str, tuple[Any, ...]] = {"do_handshake": (), "read": (1,), "write": (b"-",)}


class OpenSSLFailure:
    """The error codes of a failed OpenSSL call."""

    def __init__(
        self, why: int, code: int, words: str | None, verified: int, verify_words: str | None,
        server_hostname: str | None,
    ) -> None:  # fmt: skip
        """Store the failure: `why` is SSL_get_error's result, `code` the newest queued error or 0.

        `words` is the text of `code`. `verified` is the result of the certificate's verification
        and `verify_words` its text.
        """
        self.why = why  # SSL_get_error()
        self.code = code  # the newest entry of the error queue, or 0
        self.words = words  # OpenSSL's text for `code`
        self.verified = verified  # result of verifying the peer's certificate
        self.verify_words = verify_words
        self.server_hostname = server_hostname  # the name that the client expects


@functools.cache
def openssl_names() -> tuple[dict[tuple[int, int], str], dict[int, str]]:
    """Return the names of OpenSSL's reasons, by (library, reason), and of its libraries.

    Up to 3.11 they are attributes of `_ssl`; later versions store them in its module state only.
    A dict that is not found there is returned empty.
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


def _error_text(method: str, data: bytes) -> str:
    """Return the text of the SSLError of an SSLObject's method if the peer has sent `data`.

    `method` is the method's name, a key of _CALLS. Returns "" if the method raises no SSLError.
    """
    incoming = ssl.MemoryBIO()
    incoming.write(data)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    ssl_object: Any = context.wrap_bio(incoming, ssl.MemoryBIO(), server_hostname="localhost")
    try:
        getattr(ssl_object._sslobj, method)(*_CALLS[method])
    except ssl.SSLError as exc:
        return str(exc)
    return ""


@functools.cache
def source_location(method: str) -> str:
    """Return the end of that method's error texts: "_ssl.c:1006"; "_ssl.c" if that is unknown."""
    text = _error_text(method, b"HTTP/1.1 400 Bad Request\r\n\r\n")
    return text.rpartition(" (")[2].removesuffix(")") or "_ssl.c"


@functools.cache
def _shows_unknown_codes() -> bool:
    """Return true if `_ssl` shows the number of a code without text, as newer releases do."""
    fatal_alert_that_is_none = b"\x15\x03\x01\x00\x02\x02\xe7"
    return "unknown error (0x" in _error_text("do_handshake", fatal_alert_that_is_none)


def _split(code: int) -> tuple[int, int]:
    """Return the library and the reason of an OpenSSL error code."""
    if ssl.OPENSSL_VERSION_INFO >= (3,):
        return code >> 23 & 0xFF, code & 0x7FFFFF
    return code >> 24 & 0xFF, code & 0xFFF


def _exception_type(failure: OpenSSLFailure) -> tuple[type[ssl.SSLError], int, str | None]:
    """Return the exception's class, its number, and its text, or None for OpenSSL's own text."""
    if failure.why == Number.SSL_ERROR_ZERO_RETURN:
        return ssl.SSLZeroReturnError, failure.why, "TLS/SSL connection has been closed (EOF)"
    if failure.why == Number.SSL_ERROR_WANT_X509_LOOKUP:
        return ssl.SSLError, failure.why, "The operation did not complete (X509 lookup)"
    if failure.why not in (Number.SSL_ERROR_SSL, Number.SSL_ERROR_SYSCALL):
        return ssl.SSLError, Number.SSL_ERROR_INVALID_ERROR_CODE, "Invalid error code"
    library_and_reason = _split(failure.code)
    # The engine's I/O makes no system calls, so SSL_ERROR_SYSCALL without a code is an EOF.
    says_nothing = failure.why == Number.SSL_ERROR_SYSCALL and not failure.code
    if says_nothing or library_and_reason == (_LIB_SSL, _UNEXPECTED_EOF):
        words = "EOF occurred in violation of protocol"
        return ssl.SSLEOFError, Number.SSL_ERROR_EOF, words
    if library_and_reason == (_LIB_SSL, _CERTIFICATE_VERIFY_FAILED):
        return ssl.SSLCertVerificationError, failure.why, None
    return (
        ssl.SSLError,
        failure.why,
        None if failure.code else "A failure in the SSL library occurred",
    )


def _certificate_error(failure: OpenSSLFailure) -> str | None:
    """Return the reason why the peer's certificate was rejected; None if OpenSSL has no text."""
    if failure.verified == _HOSTNAME_MISMATCH:
        return f"Hostname mismatch, certificate is not valid for '{failure.server_hostname}'."
    if failure.verified == _IP_ADDRESS_MISMATCH:
        return f"IP address mismatch, certificate is not valid for '{failure.server_hostname}'."
    return failure.verify_words


def make_exception(method: str, failure: OpenSSLFailure) -> ssl.SSLError:
    """Return the exception that `_ssl`'s method of that name would have raised."""
    kind, number, words = _exception_type(failure)
    reason = library = None
    if failure.code:
        reasons, libraries = openssl_names()
        library_and_reason = _split(failure.code)
        reason, library = reasons.get(library_and_reason), libraries.get(library_and_reason[0])
        words = words or failure.words
        if words is None:
            words = "unknown error" + f" ({failure.code:#x})" * _shows_unknown_codes()
    words = words or "unknown error"
    is_certificate_error = kind is ssl.SSLCertVerificationError
    certificate_error = _certificate_error(failure) if is_certificate_error else None
    if reason and library:
        text = f"[{library}: {reason}] {words}"
        if is_certificate_error:
            text += f": {certificate_error}"
    else:
        text = f"[{library}] {words}" if library else words
    exception: Any = kind(int(number), f"{text} ({source_location(method)})")
    exception.reason, exception.library = reason, library
    if is_certificate_error:
        exception.verify_code, exception.verify_message = failure.verified, certificate_error
    return exception  # type: ignore[no-any-return]
