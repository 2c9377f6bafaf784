"""The measured window of a server, or of a client that talks itself.

The process that talks writes "begin", waits for a line, talks for the time of the window, writes
"end", waits for a line, and writes its result.  While it waits it sends nothing, so that the
accounts that are taken here, of both ends and of their cores, fit its count of messages.
"""

from __future__ import annotations

import json
import resource
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.results import Sample
from benchmarks.servers import END_SECONDS, Child, ending
from goloop.operations.compare.measuring import machine
from goloop.operations.compare.measuring.turns import Failure


@dataclass(frozen=True)
class Reading:
    """The accounts at one end of a window."""

    server: machine.Snapshot
    others: machine.Snapshot  # the processes of the other end
    memory: int  # bytes of the server's resident memory
    at: float  # seconds of the monotonic clock


def measure(
    server: Child, talker: Child, processes: Sequence[int], cores: Sequence[int], seconds: float
) -> Sample:
    """Return the sample of a window; raises Failure.

    `processes` are those of the other end, such as a database of the server, beside the talker.
    `seconds` is the limit of the whole time.
    """
    limit = time.monotonic() + seconds
    others = [talker.process.pid] * (talker is not server) + list(processes)
    readings = []
    try:
        for word in ("begin", "end"):
            line = talker.line(max(limit - time.monotonic(), 0))
            if line != word:
                raise Failure(f"the {talker.role} wrote {line!r}, not {word!r}")
            readings.append(_read(server.process.pid, others, cores))
            talker.say("")
        result = json.loads(talker.line(max(limit - time.monotonic(), 0)))
    except (EOFError, TimeoutError) as error:
        raise _failure(server, talker, error) from None
    if talker is not server and server.process.poll() is not None:
        raise server.gone()
    if result["messages"] == 0:
        raise Failure("no message came back in the measured window")
    begin, end = readings
    return _sample(result, begin, end, cores)


def _read(server: int, others: Sequence[int], cores: Sequence[int]) -> Reading:
    with open(f"/proc/{server}/statm") as file:
        memory = int(file.read().split()[1]) * resource.getpagesize()
    accounts = machine.snapshot([server], cores), machine.snapshot(others, ())
    return Reading(*accounts, memory, time.monotonic())


def _sample(result: dict[str, Any], first: Reading, last: Reading, cores: Sequence[int]) -> Sample:
    found = machine.account(first.server, last.server)
    if found.cpu is None:
        raise Failure("the CPU clock of the server can't be read")
    sample: Sample = {
        **result,
        "client_cpu": machine.account(first.others, last.others).cpu or 0.0,
        "server_cpu": found.cpu,
        "grown": last.memory - first.memory,
        # The accounts' time has parts of the two pauses, which "seconds" does not have.
        "span": last.at - first.at,
        "cores": 0 if found.idle is None else len(cores),
        "idle": found.idle or 0.0,
        "steal": found.steal,
        "interrupts": found.interrupts,
        "waited": found.waited or 0.0,
    }
    if found.user + found.system:
        # The kernel counts the two in coarse ticks, so only their shares are used.
        share = found.user / (found.user + found.system)
        sample |= {"server_user": found.cpu * share, "server_system": found.cpu * (1 - share)}
    return sample


def _failure(server: Child, talker: Child, error: Exception) -> Failure:
    """Return why a window has no result: because of the server, or of the process that talks."""
    if isinstance(error, TimeoutError):
        return Failure(f"the {talker.role} did not end")
    if server.has_ended(END_SECONDS):  # a crashed server may still be about to end
        return server.gone()
    status = talker.process.wait()
    return Failure(talker.last_line() or ending(status))
