"""The load generator of `goloop compare`, a process of its own: reads orders, writes results.

An order is a line of JSON on standard input, a result one on standard output. A burst opens its
connections, sends for a moment that is not measured, measures, and closes them. Each connection
has one request at a time. At a given rate each connection has times for its requests; a request
whose time comes while another one is in progress waits, and its latency counts from its time, so
that a server that stalls does not hide the requests that it delays.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import errno
import json
import sys
import time
from array import array
from dataclasses import dataclass, field

from .answers import Answer, BadAnswer
from .measuring import machine
from .measuring.intervals import percentile

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ssl
    from typing import Any

# Codes of OpenSSL for a certificate of another host name or address.
_OTHER_NAME = (62, 64)
# A server that refuses connections for this time, in seconds, does not listen any more.
_REFUSED_SECONDS = 1.0
# Connections that are opened at the same time, which fits the usual backlog of a server.
_OPENED_TOGETHER = 50


@dataclass
class Burst:
    """An order, and the state of its measurement."""

    kind: str  # "http" or "tcp"
    host: str
    port: int
    payloads: list[bytes]
    connections: int
    rate: float | None
    tls: ssl.SSLContext | None = None
    measures: bool = False
    ended: bool = False
    latencies: array[float] = field(default_factory=lambda: array("d"))
    statuses: dict[int, int] = field(default_factory=dict)
    errors: dict[str, int] = field(default_factory=dict)
    begin: float = 0.0
    wrong: str = ""  # the first bytes that the server should not have sent, and the way out
    fatal: str = ""  # the reason, found before the load begins, why no connection is tried again
    refused_since: float | None = None

    def add_error(self, words: str) -> None:
        """Count an error."""
        self.errors[words] = self.errors.get(words, 0) + 1


class Client(asyncio.Protocol):
    """A connection that sends a request, waits for the answer, and sends the next one."""

    def __init__(self, burst: Burst, number: int) -> None:
        """Prepare the connection with this number, from 0."""
        self._burst = burst
        self._number = number
        self._answer = Answer()
        self._payload = b""
        self._next = number % len(burst.payloads)
        self._echo_bytes_left = 0
        self._busy = False
        self._sent = 0.0
        self._due = 0.0
        self._transport: asyncio.Transport | None = None
        self.lost: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.lost = asyncio.get_running_loop().create_future()

    def start(self) -> None:
        """Send the first request, at a given rate at its time."""
        rate = self._burst.rate
        if rate is not None and not self._due:
            self._due = self._burst.begin + self._number / rate
        self._send_when_due()

    def data_received(self, data: bytes) -> None:
        """Count a complete answer, and send the next request."""
        if not self._busy:
            words = "the server sent bytes that no request asked for"
            self._fail(words, f"{words}, {data[:40]!r}: measure a client of it by --run")
            return
        if self._burst.kind == "tcp":
            self._echo_bytes_left -= len(data)
            if self._echo_bytes_left > 0:
                return
        else:
            try:
                if not self._answer.feed(data):
                    return
            except BadAnswer as error:
                self._fail(
                    str(error),
                    f"the server does not speak HTTP/1.1 ({error}): pass --tcp if it sends back "
                    "what it receives, or measure a client of it by --run",
                )
                return
        self._complete()

    def connection_lost(self, error: Exception | None) -> None:
        """Connect again if the burst goes on; a lost answer is an error."""
        assert self.lost is not None
        self._transport = None
        self.lost.set_result(None)
        if self._burst.ended:
            return
        if self._busy and self._burst.kind == "http" and self._answer.ends_at_close():
            self._complete(again=False)
        elif self._busy:
            self._burst.add_error("connections ended before the server had answered")
            self._busy = False
        task = asyncio.ensure_future(self.connect())
        _connecting.add(task)
        task.add_done_callback(_connecting.discard)

    async def connect(self) -> None:
        """Connect, again if that fails while the burst goes on, and send the first request."""
        burst = self._burst
        name = None if burst.tls is None else burst.host
        while not burst.ended and not burst.fatal:
            try:
                await asyncio.get_running_loop().create_connection(
                    lambda: self, burst.host, burst.port, ssl=burst.tls, server_hostname=name
                )
            except OSError as error:
                burst.add_error(f"connecting: {error}")
                # During a burst the listener may come back, and its absence counts as errors.
                if not burst.begin:
                    burst.fatal = burst.fatal or _fatal_reason(burst, error)
                await asyncio.sleep(0.05)
            else:
                burst.refused_since = None
                if burst.begin:
                    self.start()
                return

    def close(self) -> None:
        """Close the connection at the burst's end."""
        if self._transport is not None:
            self._transport.abort()

    def _send_when_due(self) -> None:
        """Send now, or at the time of the next request."""
        if self._transport is None or self._burst.ended or self._busy:
            return
        if self._burst.rate is not None:
            wait = self._due - time.perf_counter()
            if wait > 0:
                asyncio.get_running_loop().call_later(wait, self._send_when_due)
                return
        self._send()

    def _send(self) -> None:
        """Send the next payload."""
        burst = self._burst
        self._payload = burst.payloads[self._next]
        self._next = (self._next + 1) % len(burst.payloads)
        self._busy = True
        self._echo_bytes_left = len(self._payload)
        self._answer.begin(self._payload)
        self._sent = time.perf_counter()
        assert self._transport is not None
        self._transport.write(self._payload)

    def _complete(self, *, again: bool = True) -> None:
        """Count the answer, and send the next request if the connection stays open."""
        burst = self._burst
        self._busy = False
        head = self._answer.head
        if burst.kind == "http" and head is not None:
            burst.statuses[head.status] = burst.statuses.get(head.status, 0) + 1
        if burst.measures:
            since = self._sent if burst.rate is None else self._due
            burst.latencies.append(time.perf_counter() - since)
        if burst.rate is not None:
            self._due += burst.connections / burst.rate
        if not again:
            return
        if burst.kind == "http" and head is not None and head.closes:
            if self._transport is not None:
                self._transport.close()
        else:
            self._send_when_due()

    def _fail(self, words: str, wrong: str) -> None:
        """Count an error and close the connection; `wrong` is for a server without any answer."""
        self._burst.add_error(words)
        self._burst.wrong = self._burst.wrong or wrong
        self._busy = False
        if self._transport is not None:
            self._transport.abort()


def _fatal_reason(burst: Burst, error: OSError) -> str:
    """Return why it is useless to connect again after an error, with the way out; or ""."""
    if error.errno == errno.EMFILE:
        return (
            f"{burst.connections} connections need more open files than the system allows: pass "
            "fewer --connections, or raise the limit by `ulimit -n`"
        )
    if isinstance(error, ConnectionRefusedError):
        now = time.monotonic()
        burst.refused_since = burst.refused_since or now
        if now - burst.refused_since > _REFUSED_SECONDS:
            return f"the server does not accept connections any more: {error}"
    if burst.tls is None:
        return ""
    import ssl

    if isinstance(error, ssl.SSLCertVerificationError):
        other = "" if error.verify_code not in _OTHER_NAME else " the certificate's name by --host,"
        return (
            f"certificate verify failed: {error.verify_message}: pass{other} --insecure to accept "
            "any certificate, or its authority's file by the variable SSL_CERT_FILE"
        )
    # The end of a connection is an SSLError, too; a busy server may close one.
    if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError):
        return (
            f"the TLS handshake failed ({error.reason}): omit --tls and --insecure if the server "
            "does not use TLS"
        )
    return ""


_connecting: set[asyncio.Future[None]] = set()


async def run_burst(order: dict[str, Any]) -> dict[str, Any]:
    """Run the burst of an order, and return its result."""
    burst = Burst(
        order["kind"],
        order["host"],
        order["port"],
        [base64.b64decode(each) for each in order["payloads"]],
        order["connections"],
        order["rate"],
        _tls_context(order),
    )
    clients = [Client(burst, number) for number in range(burst.connections)]
    try:
        async with asyncio.timeout(order["limit"]):
            for at in range(0, len(clients), _OPENED_TOGETHER):
                await asyncio.gather(*(c.connect() for c in clients[at : at + _OPENED_TOGETHER]))
    except TimeoutError:
        reasons = "; ".join(burst.errors) or "no answer"
        return {"error": f"cannot connect within {order['limit']:g} s: {reasons}"}
    else:
        if burst.fatal:
            return {"error": burst.fatal}
        return await _measure(burst, clients, order)
    finally:
        burst.ended = True
        for client in clients:
            client.close()
        await asyncio.gather(*(c.lost for c in clients if c.lost is not None))
        await asyncio.gather(*_connecting, return_exceptions=True)


async def _measure(burst: Burst, clients: list[Client], order: dict[str, Any]) -> dict[str, Any]:
    """Send for the time of the warm-up, then measure; return the result."""
    burst.begin = time.perf_counter()
    for client in clients:
        client.start()
    await asyncio.sleep(order["warmup"])
    errors_before = sum(burst.errors.values())
    before = machine.snapshot(order["pids"], order["cores"])
    cpu, start = time.process_time(), time.perf_counter()
    burst.measures = True
    await asyncio.sleep(order["seconds"])
    burst.measures = False
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    spent = machine.account(before, machine.snapshot(order["pids"], order["cores"]))
    ordered = sorted(burst.latencies)
    return {
        "requests": len(ordered),
        "seconds": seconds,
        "p50": percentile(ordered, 0.5) if ordered else None,
        "p99": percentile(ordered, 0.99) if ordered else None,
        "server_cpu": spent.cpu,
        "client_cpu": cpu,
        "disturbance": machine.disturbance(spent, cpu, seconds, shares_core=order["shares_core"]),
        "statuses": burst.statuses,
        "errors": burst.errors,
        "wrong": "" if burst.latencies or burst.statuses else burst.wrong,
        "measured_errors": sum(burst.errors.values()) - errors_before,
    }


def _tls_context(order: dict[str, Any]) -> ssl.SSLContext | None:
    """Return the TLS context of an order, or None."""
    if not order["tls"]:
        return None
    import ssl

    context = ssl.create_default_context()
    if order["insecure"]:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


async def serve_orders() -> None:
    """Answer orders until standard input ends."""
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        try:
            result = await run_burst(json.loads(line))
        except Exception as error:
            result = {"error": f"{type(error).__name__}: {error}"}
        sys.stdout.write(json.dumps(result) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt, BrokenPipeError):
        asyncio.run(serve_orders())
