"""A corpus of attacked handshakes and records, and a loop's outcome of each.

A `Case` is made from its number and a seed: which side the loop has, the version of TLS, which of
the attacker's flights is changed and how (`CHANGES`). The attacker is OpenSSL over a socket pair,
stepped by hand in the loop's own thread, so that nothing depends on time: a case is over when for
a number of the loop's turns nothing has come from anybody. Then the attacker ends its stream, and
that too is waited for.

    outcomes(factory, cases) --> for each case all that can be seen from both ends (`Outcome`)

`python tests/tls/tls_corpus.py --cases 5000` compares goloop with asyncio and prints differences.
A difference counts if MORE_RUNS of the case on each loop have no outcome in common: the keys
of a connection are random, and a changed byte of one means now this and now that.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import socket
import ssl
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "support")]

from tls_tools import VERSIONS, client_context, server_context

# So many connections at a time, and turns without a sign of life after which all have ended.
AT_ONCE = 50
QUIET_TURNS = 12
MORE_RUNS = 8
# Between two pieces of a flight: each is read before the next comes.
TURNS_BETWEEN = 4

JUNK = (
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"POST ", b"HEAD / HTTP/1.0\r\n\r\n",
    b"CONNECT x:1 HTTP/1.1\r\n\r\n", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"SSH-2.0-OpenSSH_9\r\n",
    b"220 mail.example.org ESMTP\r\n", b"+OK ready\r\n", b"* OK ready\r\n", b"-ERR command\r\n",
    b"5.5.5-MariaDB\0", b"N", b"\0", b"\0" * 5, b"\0" * 64, b"\xff" * 5, b"\xff" * 600, b"\n" * 11,
    b"\x16\x03\x01", b"\x16\x03\x01\x00\x05hello", b"\x17\x03\x03\x00\x05hello",
    b"\x80\x2e\x01\x00\x02\x00\x15\x00\x00\x00\x10", b"\x14\x03\x03\x00\x01\x01",
    b"\x18\x03\x02\x00\x03\x01\x40\x00", b"\x16\x09\x09\x00\x04\x01\x00\x00\x00",
)  # fmt: skip


# ---- how a flight is changed ----------------------------------------------------------------

Records = list[bytes]


def records_of(data: bytes) -> Records:
    """Return the records, with an incomplete one at the end."""
    found = []
    while data:
        size = 5 + int.from_bytes(data[3:5], "big") if len(data) >= 5 else len(data)
        found.append(data[:size])
        data = data[size:]
    return found


def record(kind: int, body: bytes, version: bytes = b"\x03\x03") -> bytes:
    return bytes([kind]) + version + len(body).to_bytes(2, "big") + body


def place(rng: random.Random, data: bytes) -> int:
    """Half of all places are among the first, where the lengths and types are."""
    return rng.randrange(min(len(data), 48) if rng.random() < 0.5 else len(data))


def one_of(rng: random.Random, records: Records, change: Callable[[bytes], bytes]) -> bytes:
    """Change one record."""
    at = rng.randrange(8) % len(records)
    return b"".join([*records[:at], change(records[at]), *records[at + 1 :]])


def flip(rng: random.Random, records: Records) -> bytes:
    def change(data: bytes) -> bytes:
        at = place(rng, data)
        return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]

    return one_of(rng, records, change)


def overwrite(rng: random.Random, records: Records) -> bytes:
    def change(data: bytes) -> bytes:
        at = place(rng, data)
        return (
            data[:at]
            + rng.choice([b"\0", b"\xff", rng.randbytes(1), rng.randbytes(4)])
            + data[at + 1 :]
        )

    return one_of(rng, records, change)


def cut_out(rng: random.Random, records: Records) -> bytes:
    def change(data: bytes) -> bytes:
        at = place(rng, data)
        return data[:at] + data[at + rng.randrange(1, 9) :]

    return one_of(rng, records, change)


def insert(rng: random.Random, records: Records) -> bytes:
    def change(data: bytes) -> bytes:
        at = place(rng, data)
        return data[:at] + rng.randbytes(rng.randrange(1, 9)) + data[at:]

    return one_of(rng, records, change)


def truncate(rng: random.Random, records: Records) -> bytes:
    data = b"".join(records)
    return data[: place(rng, data)]


def header(rng: random.Random, records: Records) -> bytes:
    """Another type, version or length of a record."""

    def change(data: bytes) -> bytes:
        head = bytearray(data[:5].ljust(5, b"\0"))
        where = rng.randrange(3)
        if where == 0:
            head[0] = rng.choice([0, 20, 21, 22, 23, 24, 25, 128, 255])
        elif where == 1:
            head[1:3] = rng.choice(
                [b"\x03\x00", b"\x03\x01", b"\x03\x04", b"\x09\x09", b"\x02\x00"]
            )
        else:
            now = int.from_bytes(head[3:5], "big")
            size = rng.choice([0, 1, now - 1, now + 1, 16384, 16385, 18433, 65535])
            head[3:5] = max(size, 0).to_bytes(2, "big")
        return bytes(head) + data[5:]

    return one_of(rng, records, change)


def message(rng: random.Random, records: Records) -> bytes:
    """Another type or length of a handshake's message."""

    def change(data: bytes) -> bytes:
        head = bytearray(data[5:9].ljust(4, b"\0"))
        if rng.random() < 0.5:
            head[0] = rng.randrange(32)
        else:
            head[1:4] = rng.choice([b"\0\0\0", b"\0\0\1", b"\0\x40\0", b"\1\0\0", b"\xff\xff\xff"])
        return data[:5] + bytes(head) + data[9:]

    return one_of(rng, records, change)


def alert(rng: random.Random, records: Records) -> bytes:
    """Add an alert in clear, before or after the records."""
    made = record(
        21, bytes([rng.choice([1, 2, 3]), rng.choice([0, 10, 20, 40, 48, 70, 90, 112, 255])])
    )
    whole = b"".join(records)
    return made + whole if rng.random() < 0.5 else whole + made


def junk_before(rng: random.Random, records: Records) -> bytes:
    return rng.choice(JUNK) + b"".join(records)


def junk_after(rng: random.Random, records: Records) -> bytes:
    return b"".join(records) + rng.choice(JUNK)


def junk_instead(rng: random.Random, records: Records) -> bytes:
    return rng.choice(JUNK) * rng.choice([1, 1, 1, 40])


def noise(rng: random.Random, records: Records) -> bytes:
    return rng.randbytes(rng.choice([1, 4, 5, 11, 100, 5000]))


def twice(rng: random.Random, records: Records) -> bytes:
    return one_of(rng, records, lambda data: data * 2)


def swap(rng: random.Random, records: Records) -> bytes:
    at = rng.randrange(8) % len(records)
    return b"".join([*records[at:], *records[:at]])


def drop(rng: random.Random, records: Records) -> bytes:
    return one_of(rng, records, lambda data: b"")


def empty_records(rng: random.Random, records: Records) -> bytes:
    made = record(rng.choice([20, 21, 22, 23]), b"") * rng.choice([1, 1, 2, 33, 40])
    whole = b"".join(records)
    return made + whole if rng.random() < 0.5 else whole + made


def fragments(rng: random.Random, records: Records) -> bytes:
    """A record becomes several."""
    size = rng.choice([1, 3, 50])

    def change(data: bytes) -> bytes:
        body = data[5:]
        pieces = [body[at : at + size] for at in range(0, len(body), size)]
        return b"".join(record(data[0], piece, data[1:3]) for piece in pieces)

    return one_of(rng, records, change)


def joined(rng: random.Random, records: Records) -> bytes:
    """Several records of a kind become one."""
    out: Records = []
    for each in records:
        if out and out[-1][:1] == each[:1] and len(out[-1]) + len(each) < 16384:
            out[-1] = record(each[0], out[-1][5:] + each[5:], each[1:3])
        else:
            out.append(each)
    return b"".join(out)


def unchanged(rng: random.Random, records: Records) -> bytes:
    return b"".join(records)


CHANGES: tuple[Callable[[random.Random, Records], bytes], ...] = (
    flip, flip, flip, flip, overwrite, overwrite, cut_out, insert, truncate, truncate, header,
    header, message, message, alert, alert, junk_before, junk_before, junk_after, junk_instead,
    noise, twice, swap, drop, empty_records, fragments, joined, unchanged,
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """An attack, determined by its number and the seed."""

    seed: int
    number: int

    def rng(self) -> random.Random:
        return random.Random(f"{self.seed}/{self.number}")

    @property
    def role(self) -> str:
        """The loop's."""
        return ("server", "client")[self.number % 2]

    @property
    def version(self) -> ssl.TLSVersion:
        return VERSIONS[self.number // 2 % 2]

    def __str__(self) -> str:
        rng = self.rng()
        flight, change = rng.choice(FLIGHTS), rng.choice(CHANGES)
        version = str(self.version.name)
        return f"{self.seed}/{self.number}: {self.role} {version} flight {flight} {change.__name__}"


# The first two are the handshake's, the third has data.
FLIGHTS = (0, 0, 0, 0, 1, 1, 1, 2, 2)
# How the changed flight is sent: at once, in two pieces, byte by byte (its first ones).
PIECES = ("whole", "whole", "halves", "bytes")


# ---- both ends -------------------------------------------------------------------------------


@dataclass
class Outcome:
    """The visible outcome of a case at both ends."""

    made: Any = "nothing came"  # of the handshake: "connected", or its error
    calls: list[Any] = field(default_factory=list)  # of the protocol's methods
    records: list[Any] = field(
        default_factory=list
    )  # the types that the attacker got; alerts whole
    data: bytes = b""  # which the attacker has decrypted
    ended: str = "never"  # when the loop's side closed the connection

    def key(self) -> str:
        return repr(self)


def told(exc: BaseException | None) -> Any:
    """All that an error says."""
    if exc is None:
        return None
    names = ("reason", "library", "errno", "verify_code", "verify_message")
    return type(exc).__name__, str(exc), *(getattr(exc, name, None) for name in names)


class Near(asyncio.Protocol):
    """The loop's side: greets, answers, records events."""

    def __init__(self, outcome: Outcome) -> None:
        self.calls = outcome.calls
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.calls.append("made")
        self.transport.write(b"greeting")

    def data_received(self, data: bytes) -> None:
        if self.calls[-1][0] == "data":
            data = self.calls.pop()[1] + data
        self.calls.append(("data", data))

    def eof_received(self) -> None:
        self.calls.append("eof")

    def connection_lost(self, exc: Exception | None) -> None:
        self.calls.append(("lost", told(exc)))


class Attacker:
    """The other side, which tick() moves on; it never waits."""

    def __init__(self, case: Case, sock: socket.socket, context: ssl.SSLContext) -> None:
        self.rng = case.rng()
        self.flight, self.change = self.rng.choice(FLIGHTS), self.rng.choice(CHANGES)
        self.pieces = self.rng.choice(PIECES)
        self.sock = sock
        self.outcome = Outcome()
        self.phase = "under attack"
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = case.role == "server"
        self._tls = context.wrap_bio(
            self._incoming,
            self._outgoing,
            server_side=not client,
            server_hostname="localhost" if client else None,
        )
        self._shaken = self._broken = self._deaf = self._mute = False
        self._flights = self._wait = 0
        self._to_send: list[bytes] = []
        self._got = bytearray()

    def tick(self) -> bool:
        """Make all possible steps; return true if there was one."""
        return any([self._receive(), self._step(), self._send()])

    def end(self) -> None:
        """The stream ends here."""
        self.phase = "at the end"
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_WR)

    def _receive(self) -> bool:
        if self._deaf:
            return False
        try:
            data = self.sock.recv(65536)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if data:
            self._got += data
            self._incoming.write(data)
        else:
            self._deaf = True
            self.outcome.ended = self.phase
        return True

    def _step(self) -> bool:
        if self._broken:
            return False
        before, moved = len(self.outcome.data), False
        try:
            if not self._shaken:
                self._tls.do_handshake()
                self._shaken = moved = True
                self._take()
                self._tls.write(b"question")
            while data := self._tls.read(65536):
                self.outcome.data += data
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError:
            self._broken = True
        self._take()
        return moved or len(self.outcome.data) > before

    def _take(self) -> None:
        """Take the bytes that OpenSSL has made as a flight."""
        data = self._outgoing.read()
        if not data:
            return
        if self._flights == self.flight:
            changed = self.change(self.rng, records_of(data))
            if self.pieces == "bytes":
                self._to_send += [changed[at : at + 1] for at in range(20)] + [changed[20:]]
            elif self.pieces == "halves":
                at = self.rng.randrange(len(changed) + 1)
                self._to_send += [changed[:at], changed[at:]]
            else:
                self._to_send.append(changed)
        else:
            self._to_send.append(data)
        self._flights += 1

    def _send(self) -> bool:
        if not self._to_send:
            return False
        self._wait -= 1
        if self._wait > 0:
            return True
        self._wait = TURNS_BETWEEN
        piece = self._to_send.pop(0)
        if not self._mute:
            try:
                sent = self.sock.send(piece)
            except BlockingIOError:
                sent = 0
            except OSError:
                self._mute, sent = True, len(piece)
            if sent < len(piece):
                self._to_send.insert(0, piece[sent:])
        return True

    def finish(self) -> Outcome:
        self.sock.close()
        for each in records_of(bytes(self._got)):
            clear = each[0] == 21 and len(each) == 7
            self.outcome.records.append(each.hex() if clear else each[0])
        return self.outcome


# ---- a run -----------------------------------------------------------------------------------

Contexts = dict[tuple[str, ssl.TLSVersion], ssl.SSLContext]


def contexts() -> Contexts:
    made: Contexts = {}
    for version in VERSIONS:
        made["client", version] = client_context(version=version)
        made["server", version] = server_context(version=version)
    return made


async def _quiet(attackers: Iterable[Attacker], signs: Callable[[], int]) -> None:
    """Waits until nothing has come from anybody for some turns."""
    still, before = 0, -1
    while still < QUIET_TURNS:
        moved = [each.tick() for each in attackers]
        now = signs()
        still = 0 if any(moved) or now != before else still + 1
        before = now
        # A real wait of the loop's, so that it looks at its sockets.
        await asyncio.sleep(0.0002 if still else 0)


async def _batch(cases: list[Case], made: Contexts) -> list[Outcome]:
    loop = asyncio.get_running_loop()
    attackers, connecting = [], []
    for case in cases:
        near, far = socket.socketpair()
        far.setblocking(False)
        near.setblocking(False)
        other = "client" if case.role == "server" else "server"
        attacker = Attacker(case, far, made[other, case.version])
        attackers.append(attacker)
        connecting.append(asyncio.ensure_future(_connect(loop, case, near, made, attacker.outcome)))

    def signs() -> int:
        return sum(len(each.outcome.calls) for each in attackers) + sum(
            each.done() for each in connecting
        )

    await _quiet(attackers, signs)
    for attacker in attackers:
        attacker.end()
    await _quiet(attackers, signs)
    outcomes = [each.finish() for each in attackers]
    for each in connecting:
        each.cancel()
    for transport in await asyncio.gather(*connecting, return_exceptions=True):
        if isinstance(transport, asyncio.BaseTransport):
            transport.abort()  # type: ignore[attr-defined]
    await asyncio.sleep(0.001)
    return outcomes


async def _connect(
    loop: asyncio.AbstractEventLoop, case: Case, near: socket.socket, made: Contexts, out: Outcome
) -> Any:
    context = made[case.role, case.version]
    try:
        if case.role == "server":
            transport, _ = await loop.connect_accepted_socket(lambda: Near(out), near, ssl=context)
        else:
            transport, _ = await loop.create_connection(
                lambda: Near(out), sock=near, ssl=context, server_hostname="localhost"
            )
    except (Exception, asyncio.CancelledError) as exc:
        if out.made == "nothing came" and not isinstance(exc, asyncio.CancelledError):
            out.made = told(exc)
        near.close()
        return None
    out.made = "connected"
    return transport


def outcomes(
    factory: Callable[[], asyncio.AbstractEventLoop], cases: list[Case], made: Contexts
) -> Iterator[tuple[Case, Outcome]]:
    """Return the outcome of each case, on a loop of that kind."""
    loop = factory()
    # In debug mode asyncio would log each failure, and a fault of the loop's is none of these.
    loop.set_debug(False)
    loop.set_exception_handler(_raise_reported)
    try:
        for at in range(0, len(cases), AT_ONCE):
            batch = cases[at : at + AT_ONCE]
            yield from zip(batch, loop.run_until_complete(_batch(batch, made)), strict=True)
    finally:
        loop.close()


def _raise_reported(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """An error of TLS is no error of the loop's: nothing is to be reported."""
    raise SystemExit(f"the loop reports {context}")


def differences(
    one: Callable[[], asyncio.AbstractEventLoop],
    other: Callable[[], asyncio.AbstractEventLoop],
    cases: list[Case],
) -> tuple[list[tuple[Case, Outcome, Outcome]], Counter[str]]:
    """Return the cases with different outcomes on two kinds of loops, and counts of outcomes."""
    made = contexts()
    first = dict(outcomes(one, cases, made))
    second = dict(outcomes(other, cases, made))
    found = [case for case in cases if first[case] != second[case]]
    seen = {case: (set(), set()) for case in found}  # type: ignore[var-annotated]
    for case in found:
        seen[case][0].add(first[case].key())
        seen[case][1].add(second[case].key())
    for _ in range(MORE_RUNS):
        again = [case for case in found if not seen[case][0] & seen[case][1]]
        for side, factory in enumerate((one, other)):
            for case, outcome in outcomes(factory, again, made):
                seen[case][side].add(outcome.key())
    really = [
        (case, first[case], second[case]) for case in found if not seen[case][0] & seen[case][1]
    ]
    tally = Counter(
        outcome.made if isinstance(outcome.made, str) else str(outcome.made[2] or outcome.made[0])
        for outcome in first.values()
    )
    return really, tally


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--cases", type=int, default=5000)
    parser.add_argument("--first", type=int, default=0, help="the number of the first one")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    import goloop

    numbers = range(options.first, options.first + options.cases)
    cases = [Case(options.seed, number) for number in numbers]
    found, tally = differences(asyncio.SelectorEventLoop, goloop.new_event_loop, cases)
    for what, count in tally.most_common():
        print(f"{count:6} {what}")
    for case, first, second in found:
        print(case)
        print("    asyncio:", first)
        print("    goloop: ", second)
    print(f"{len(cases)} cases, {ssl.OPENSSL_VERSION}: {len(found)} differ")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
