"""The trace of a simulation for Perfetto and chrome://tracing, in virtual time.

Hosts are processes; what is on no host is `main`.  A task is a thread, whose slices go from one of
its steps to the next.  A thread has the calls on sockets, another one the packets, with arrows.
"""

from __future__ import annotations

import gzip
import json
import os
import re
from collections.abc import Iterator
from typing import Any

_CALL = re.compile(r"(\w+)\((-?\d+)((?:, -?\d+)*)\) = (\w+)")
_CANCEL = re.compile(r"cancel (\d+) (.*?)(?: on (\S+))?")
_HOST = re.compile(r"\* host (\d+) (.*)")
_STEP = re.compile(r"step (\d+) (.*?)(?: on (\S+))?")
_PACKET = re.compile(r"\* (\S+) from (\S+) to (\S+) in (\d+) ns")
_ADDRESS = re.compile(r"10\.(\d+)\.(\d+)\.(\d+):\d+")
_ADDRESS6 = re.compile(r"\[fd0{24}([0-9a-f]{6})\]:\d+")
_SILENT = re.compile(r"(epoll|eventfd|fdinfo|fcntl|timerfd|[gs]etsockopt|getsockname|getpeername)")
_HOST_ZERO = 255 << 16 | 255 << 8 | 254
# Threads beside those of tasks, which have the numbers of these.
_CALLS, _NETWORK = 1_000_001, 1_000_002


def write(path: str | os.PathLike[str], trace: str) -> None:
    """Writes a file, compressed where its name says that."""
    data = json.dumps({"traceEvents": list(_Picture().events(trace))}).encode()
    if os.fspath(path).endswith(".gz"):
        data = gzip.compress(data, mtime=0)
    with open(path, "wb") as file:
        file.write(data)


class _Picture:
    def __init__(self) -> None:
        self._hosts = {"main": 0}
        self._homes: dict[int, int] = {}  # by descriptor
        self._steps: dict[int, tuple[int, int]] = {}  # by task: its host, and when it went last
        self._threads: set[tuple[int, int]] = set()
        self._packets = 0

    def events(self, trace: str) -> Iterator[dict[str, Any]]:
        """Of all lines, in no order."""
        yield _named("process", 0, 0, "main")
        for line in trace.splitlines():
            when, _, what = line.partition(" ")
            ns = int(when)
            if match := _STEP.fullmatch(what):
                yield from self._step(ns, int(match[1]), match[2], match[3])
            elif match := _CANCEL.fullmatch(what):
                pid = self._hosts.get(match[3] or "main", 0)
                yield from self._at(pid, int(match[1]), match[2], ns, "cancel", {})
            elif match := _HOST.fullmatch(what):
                self._hosts[match[2]] = int(match[1])
                yield _named("process", int(match[1]), 0, match[2])
            elif match := _PACKET.fullmatch(what):
                yield from self._packet(ns, *match.groups())
            elif match := _CALL.fullmatch(what):
                yield from self._call(ns, match)
            elif what.startswith("* "):
                yield from self._at(0, _NETWORK, "network", ns, what[2:], {})

    def _step(self, ns: int, task: int, name: str, host: str | None) -> Iterator[dict[str, Any]]:
        # A task's thread has its name from its first step, and the slices from each step on.
        pid = self._hosts.get(host or "main", 0)
        last = self._steps.get(task, (pid, ns))[1]
        self._steps[task] = pid, ns
        if last != ns:
            yield {**_event("X", pid, task, last, name), "dur": (ns - last) / 1000}
        yield from self._at(pid, task, name, ns, "step", {})

    def _call(self, ns: int, match: re.Match[str]) -> Iterator[dict[str, Any]]:
        name, fd, result = match[1], int(match[2]), match[4]
        numbers = [int(each) for each in match[3].split(", ")[1:]]
        home = self._homes.get(fd, 0)
        if name in ("socket", "socketpair"):
            home = numbers[2] if len(numbers) > 2 else 0
        if result.isdigit() and name in ("socket", "socketpair", "accept", "dup"):
            self._homes[int(result)] = home
            if name == "socketpair":
                self._homes[int(result) + 1] = home
        if not _SILENT.match(name):
            args = {"fd": fd, "numbers": numbers, "result": result}
            yield from self._at(home, _CALLS, "calls", ns, name, args)

    def _packet(self, ns: int, name: str, *journey: str) -> Iterator[dict[str, Any]]:
        source, target, took = journey
        self._packets += 1
        args = {"from": source, "to": target}
        for phase, address, at in (("s", source, ns - int(took)), ("f", target, ns)):
            pid = _home(address)
            slices = self._at(pid, _NETWORK, "network", at, name, args, "X")
            yield from ({**each, "dur": 0} if each["ph"] == "X" else each for each in slices)
            arrow = {**_event(phase, pid, _NETWORK, at, name), "id": self._packets}
            yield {**arrow, "bp": "e"} if phase == "f" else arrow

    def _at(
        self, pid: int, tid: int, thread: str, ns: int, name: str, args: Any, phase: str = "i"
    ) -> Iterator[dict[str, Any]]:
        if (pid, tid) not in self._threads:
            self._threads.add((pid, tid))
            yield _named("thread", pid, tid, thread)
        event = {**_event(phase, pid, tid, ns, name), "args": args}
        yield {**event, "s": "t"} if phase == "i" else event


def _event(phase: str, pid: int, tid: int, ns: int, name: str) -> dict[str, Any]:
    return {"ph": phase, "pid": pid, "tid": tid, "ts": ns / 1000, "name": name, "cat": "sim"}


def _named(what: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "pid": pid, "tid": tid, "name": f"{what}_name", "args": {"name": name}}


def _home(address: str) -> int:
    number = 0
    if match := _ADDRESS.fullmatch(address):
        number = int(match[1]) << 16 | int(match[2]) << 8 | int(match[3])
    elif match := _ADDRESS6.fullmatch(address):
        number = int(match[1], 16)
    return 0 if number == _HOST_ZERO else number
