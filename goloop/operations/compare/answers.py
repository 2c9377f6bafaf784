"""HTTP/1.1 for the load generator: the bytes of requests, and the ends of answers."""

from __future__ import annotations

from dataclasses import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_MAX_HEADER = 1 << 20
_PROTOCOL = b"HTTP/1."
_SEPARATOR = "###"


class BadAnswer(Exception):
    """An answer that is not HTTP/1.1."""


@dataclass(frozen=True)
class Head:
    """The properties of an answer that are known from its header."""

    status: int
    length: int | None  # of the body; None if the end is not known by a length
    chunked: bool
    closes: bool  # the server closes the connection after the answer


def host_in_url(host: str) -> str:
    """Return a host as it stands in a URL or before a port: an address of IPv6 has brackets."""
    return f"[{host}]" if ":" in host else host


def request(path: str, host: str) -> bytes:
    """Return a GET request of a path."""
    return f"GET {path} HTTP/1.1\r\nHost: {host_in_url(host)}\r\nAccept: */*\r\n\r\n".encode()


def read_requests(text: str, host: str) -> list[bytes]:
    """Return the requests of a file: each a request line, headers, an empty line, and a body.

    A line that begins with ### separates two requests. Host and Content-Length are added if they
    are missing. Raises ValueError for a text that is not a request.
    """
    blocks: list[list[str]] = [[]]
    for line in text.splitlines():
        if line.startswith(_SEPARATOR):
            blocks.append([])
        elif line or blocks[-1]:  # empty lines before a request are skipped
            blocks[-1].append(line)
    found = [_request_bytes(block, host) for block in blocks if block]
    if not found:
        raise ValueError("the file has no request")
    return found


def _request_bytes(lines: Sequence[str], host: str) -> bytes:
    """Return the bytes of one request."""
    end = lines.index("") if "" in lines else len(lines)
    head, body = list(lines[:end]), "\n".join(lines[end + 1 :]).encode()
    words = head[0].split()
    if len(words) == 2:
        words.append("HTTP/1.1")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise ValueError(f"a request begins with `METHOD PATH HTTP/1.1`, got {head[0]!r}")
    names = {line.partition(":")[0].strip().lower() for line in head[1:]}
    if "host" not in names:
        head.append(f"Host: {host_in_url(host)}")
    if body and not names & {"content-length", "transfer-encoding"}:
        head.append(f"Content-Length: {len(body)}")
    return "\r\n".join([" ".join(words), *head[1:], "", ""]).encode() + body


def _refusal(line: bytes) -> str:
    """Return the words for an answer that begins with this line."""
    return f"not an answer of HTTP/1.1: {line[:40]!r}"


_heads: dict[bytes, Head] = {}


def parse_head(head: bytes) -> Head:
    """Return the properties of a header, without its last empty line; raises BadAnswer.

    Headers are kept, because a server sends the same ones for a second.
    """
    found = _heads.get(head)
    if found is not None:
        return found
    lines = head.split(b"\r\n")
    words = lines[0].split(None, 2)
    if len(words) < 2 or not words[0].startswith(_PROTOCOL) or not words[1].isdigit():
        raise BadAnswer(_refusal(lines[0]))
    fields = {}
    for line in lines[1:]:
        name, _, value = line.partition(b":")
        fields[name.strip().lower()] = value.strip().lower()
    status = int(words[1])
    closes = b"close" in fields.get(b"connection", b"")
    if words[0] == b"HTTP/1.0":
        closes = b"keep-alive" not in fields.get(b"connection", b"")
    chunked = b"chunked" in fields.get(b"transfer-encoding", b"")
    length = fields.get(b"content-length", b"")
    size = int(length) if length.isdigit() and not chunked else None
    if status in (204, 304) or status < 200:
        size, chunked = 0, False
    if len(_heads) >= 1000:
        _heads.clear()
    _heads[head] = found = Head(status, size, chunked, closes or (size is None and not chunked))
    return found


class Answer:
    """The answer that a connection is receiving."""

    def __init__(self) -> None:
        """Wait for the first answer."""
        self.head: Head | None = None
        self._data = b""
        self._rest: int | None = None  # bytes of the body that are missing
        self._without_body = False

    def begin(self, sent: bytes) -> None:
        """Wait for the answer of a request."""
        self.head, self._data, self._rest = None, b"", None
        self._without_body = sent.startswith(b"HEAD ")

    def feed(self, data: bytes) -> bool:
        """Take received bytes, and return true if the answer is complete; raises BadAnswer."""
        if self._rest is not None:
            self._rest -= len(data)
            return self._rest <= 0
        self._data = self._data + data if self._data else data
        while self.head is None or self.head.status < 200:
            end = self._data.find(b"\r\n\r\n")
            if end < 0:
                if not self._data.startswith(_PROTOCOL[: len(self._data)]):
                    raise BadAnswer(_refusal(self._data))
                if len(self._data) > _MAX_HEADER:
                    raise BadAnswer("the header of an answer is longer than 1 MiB")
                return False
            self.head = parse_head(self._data[:end])
            self._data = self._data[end + 4 :]
        if self._without_body:
            return True
        if self.head.length is not None:
            self._rest = self.head.length - len(self._data)
            return self._rest <= 0
        return self.head.chunked and self._skip_chunks()

    def ends_at_close(self) -> bool:
        """Return true if the answer is complete because the connection was closed."""
        head = self.head
        return head is not None and head.length is None and not head.chunked

    def _skip_chunks(self) -> bool:
        """Skip complete chunks; return true after the last one and its trailers."""
        while True:
            end = self._data.find(b"\r\n")
            if end < 0:
                return False
            try:
                size = int(self._data[:end].partition(b";")[0], 16)
            except ValueError:
                raise BadAnswer(f"not the size of a chunk: {self._data[:end][:40]!r}") from None
            if size == 0:
                return b"\r\n\r\n" in self._data[end:]
            if len(self._data) < end + 2 + size + 2:
                return False
            self._data = self._data[end + 2 + size + 2 :]
