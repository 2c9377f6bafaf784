"""Conversion of a trace for Perfetto and chrome://tracing, in virtual time.

A host is shown as a process; code on no host is the process `main`.  A task is shown as a thread,
with a slice from each of its steps to the next.  Each process has one more thread for the calls on
sockets, and one for the packets, with arrows.
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
# Thread ids of calls and packets; the thread id of a task is the task's number.
_CALLS, _NETWORK = 1_000_001, 1_000_002


def write(path: str | os.PathLike[str], trace: str) -> None:
    """Write a trace as a JSON file, compressed if the name ends with `.gz`."""
    data = json.dumps({"traceEvents": list(_TraceEvents().events(trace))}).encode()
    if os.fspath(path).endswith(".gz"):
        data = gzip.compress(data, mtime=0)
    with open(path, "wb") as file:
        file.write(data)


class _TraceEvents:
    """Converts the lines of a trace to events of the Trace Event Format."""

    def __init__(self) -> None:
        """Begin with the main function as the only host."""
        self._hosts = {"main": 0}
        self._host_of_descriptor: dict[int, int] = {}  # the number of the owner
        self._steps: dict[
            int, tuple[int, int]
        ] = {}  # by task: its host, and the time of its last step
        self._threads: set[tuple[int, int]] = set()
        self._packets = 0

    def events(self, trace: str) -> Iterator[dict[str, Any]]:
        """Yield the events of all lines, not sorted by time."""
        yield _name_event("process", 0, 0, "main")
        for line in trace.splitlines():
            when, _, entry = line.partition(" ")
            ns = int(when)
            if match := _STEP.fullmatch(entry):
                yield from self._step(ns, int(match[1]), match[2], match[3])
            elif match := _CANCEL.fullmatch(entry):
                pid = self._hosts.get(match[3] or "main", 0)
                yield from self._event_on_thread(pid, int(match[1]), match[2], ns, "cancel", {})
            elif match := _HOST.fullmatch(entry):
                self._hosts[match[2]] = int(match[1])
                yield _name_event("process", int(match[1]), 0, match[2])
            elif match := _PACKET.fullmatch(entry):
                yield from self._packet(ns, *match.groups())
            elif match := _CALL.fullmatch(entry):
                yield from self._call(ns, match)
            elif entry.startswith("* "):
                yield from self._event_on_thread(0, _NETWORK, "network", ns, entry[2:], {})

    def _step(self, ns: int, task: int, name: str, host: str | None) -> Iterator[dict[str, Any]]:
        """Yield the trace events for one step of a task; `ns` is its virtual time."""
        # The first step names the task's thread; each later step ends a slice.
        pid = self._hosts.get(host or "main", 0)
        last = self._steps.get(task, (pid, ns))[1]
        self._steps[task] = pid, ns
        if last != ns:
            yield {**_event("X", pid, task, last, name), "dur": (ns - last) / 1000}
        yield from self._event_on_thread(pid, task, name, ns, "step", {})

    def _call(self, ns: int, match: re.Match[str]) -> Iterator[dict[str, Any]]:
        """Yield the event of a call, and record the owner of new descriptors."""
        name, fd, result = match[1], int(match[2]), match[4]
        numbers = [int(each) for each in match[3].split(", ")[1:]]
        host = self._host_of_descriptor.get(fd, 0)
        if name in ("socket", "socketpair"):
            host = numbers[2] if len(numbers) > 2 else 0
        if result.isdigit() and name in ("socket", "socketpair", "accept", "dup"):
            self._host_of_descriptor[int(result)] = host
            if name == "socketpair":
                self._host_of_descriptor[int(result) + 1] = host
        if not _SILENT.match(name):
            args = {"fd": fd, "numbers": numbers, "result": result}
            yield from self._event_on_thread(host, _CALLS, "calls", ns, name, args)

    def _packet(
        self, ns: int, name: str, source: str, target: str, took: str
    ) -> Iterator[dict[str, Any]]:
        """Yield the events of a packet: on both hosts, with an arrow between them."""
        self._packets += 1
        args = {"from": source, "to": target}
        for phase, address, at in (("s", source, ns - int(took)), ("f", target, ns)):
            pid = _host_of_address(address)
            slices = self._event_on_thread(pid, _NETWORK, "network", at, name, args, "X")
            yield from ({**each, "dur": 0} if each["ph"] == "X" else each for each in slices)
            arrow = {**_event(phase, pid, _NETWORK, at, name), "id": self._packets}
            yield {**arrow, "bp": "e"} if phase == "f" else arrow

    def _event_on_thread(
        self, pid: int, tid: int, thread: str, ns: int, name: str, args: Any, phase: str = "i"
    ) -> Iterator[dict[str, Any]]:
        """Yield an event on a thread, after the thread's name if it is new."""
        if (pid, tid) not in self._threads:
            self._threads.add((pid, tid))
            yield _name_event("thread", pid, tid, thread)
        event = {**_event(phase, pid, tid, ns, name), "args": args}
        yield {**event, "s": "t"} if phase == "i" else event


def _event(phase: str, pid: int, tid: int, ns: int, name: str) -> dict[str, Any]:
    """Return an event; `ts` is in microseconds."""
    return {"ph": phase, "pid": pid, "tid": tid, "ts": ns / 1000, "name": name, "cat": "sim"}


def _name_event(kind: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    """Return the event that names a process or a thread."""
    return {"ph": "M", "pid": pid, "tid": tid, "name": f"{kind}_name", "args": {"name": name}}


def _host_of_address(address: str) -> int:
    """Return the number of the host with an address; 0 if it is not a host's."""
    number = 0
    if match := _ADDRESS.fullmatch(address):
        number = int(match[1]) << 16 | int(match[2]) << 8 | int(match[3])
    elif match := _ADDRESS6.fullmatch(address):
        number = int(match[1], 16)
    return 0 if number == _HOST_ZERO else number
