"""The reason why a server answers no request, and the option that helps, found by trying it."""

from __future__ import annotations

import contextlib
import socket

from .answers import request

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .arguments import Plan

# Seconds that a server has to answer a trial.
_TRIAL_SECONDS = 2.0


def certain_reason(plan: Plan, port: int, wrong: str) -> str:
    """Return why no request of a burst was answered, with the way out; "" if it is not certain.

    `wrong` describes the first bytes from the server that the load generator did not understand.
    """
    if not plan.tls and speaks_tls(plan.host, port):
        return "the server uses TLS: pass --tls, or --insecure to accept any certificate"
    if plan.kind == "tcp" and speaks_http(plan, port):
        return "the server speaks HTTP: omit --tcp"
    return wrong


def likely_reason(plan: Plan, errors: Mapping[str, int]) -> str:
    """Return the probable reason after several bursts without an answer, with the ways out.

    A server that closes the connections or refuses them is not just slow.
    """
    found = "; ".join(f"{words} ({count} times)" for words, count in errors.items())
    found = found or f"no answer in {plan.seconds:g} s"
    if plan.kind == "tcp":
        slow = "" if errors else " for a slow one pass a larger --seconds;"
        return (
            f"{found}: the server has to send as many bytes as it receives, {len(plan.payloads[0])}"
            f" (--size);{slow} of any other protocol measure a client by --run"
        )
    slow = "" if errors else "for slow requests pass a larger --seconds; "
    return (
        f"{found}: {slow}a protocol other than HTTP/1.1 needs --tcp if it echoes, or a client that "
        "is measured by --run"
    )


def speaks_tls(host: str, port: int) -> bool:
    """Return true if a TLS handshake with the server succeeds."""
    try:
        with _connection(host, port, tls=True):
            return True
    except OSError:
        return False


def speaks_http(plan: Plan, port: int) -> bool:
    """Return true if the server's answer to a GET is one of HTTP/1."""
    with contextlib.suppress(OSError), _connection(plan.host, port, tls=plan.tls) as connection:
        connection.sendall(request("/", plan.host))
        return connection.recv(64).startswith(b"HTTP/1.")
    return False


@contextlib.contextmanager
def _connection(host: str, port: int, *, tls: bool) -> Iterator[socket.socket]:
    """Connect to the server; raises OSError."""
    with contextlib.ExitStack() as stack:
        made = stack.enter_context(socket.create_connection((host, port), _TRIAL_SECONDS))
        if tls:
            import ssl

            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            made = stack.enter_context(context.wrap_socket(made, server_hostname=host))
        yield made
