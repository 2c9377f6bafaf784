"""A small client of the Debug Adapter Protocol, as an editor has one."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Any

from real_programs.programs import TIME_LIMIT


def _connect(port: int) -> socket.socket:
    """A connection, once the debugger listens: it would take an attempt for the editor."""
    deadline = time.monotonic() + TIME_LIMIT
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=TIME_LIMIT)
        except ConnectionRefusedError:
            assert time.monotonic() < deadline, "nobody listens"
            time.sleep(0.02)


class DebugClient:
    """A connection to a debug adapter; requests wait for their answers."""

    def __init__(self, port: int) -> None:
        self._sock = _connect(port)
        self._file = self._sock.makefile("rb")
        self._number = 0
        self._events: list[dict[str, Any]] = []

    def __enter__(self) -> DebugClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()
        self._sock.close()

    def send(self, command: str, **arguments: Any) -> int:
        """Send a request; return its number, by which `answer` gets the answer."""
        self._number += 1
        body = json.dumps(
            {"seq": self._number, "type": "request", "command": command, "arguments": arguments}
        ).encode()
        self._sock.sendall(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        return self._number

    def answer(self, number: int) -> Any:
        """Return the answer to a request."""
        for message in self._messages():
            if message["type"] == "response" and message["request_seq"] == number:
                assert message["success"], message
                return message.get("body", {})
            if message["type"] == "event":
                self._events.append(message)
        raise AssertionError("the adapter has closed the connection")

    def ask(self, command: str, **arguments: Any) -> Any:
        """Make a request, and return its answer."""
        return self.answer(self.send(command, **arguments))

    def event(self, name: str) -> Any:
        """The next event of that name."""
        for number, message in enumerate(self._events):
            if message["event"] == name:
                return self._events.pop(number).get("body", {})
        for message in self._messages():
            if message["type"] == "event":
                if message["event"] == name:
                    return message.get("body", {})
                self._events.append(message)
        raise AssertionError(f"the adapter has closed the connection before {name}")

    def _messages(self) -> Iterator[dict[str, Any]]:
        while line := self._file.readline():
            length = int(line.removeprefix(b"Content-Length:"))
            while self._file.readline().strip():
                pass
            yield json.loads(self._file.read(length))
