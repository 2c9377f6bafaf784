"""Measures the delay of a timer while many clients make TLS handshakes.

The loop serves TLS and has a timer of 1 ms.  The clients are a separate program on
the other core (load/storm.go), started from a thread, so that the loop only serves and
runs the timer.  If a handshake delays a tick, the ticks that would have been due meanwhile
count as late too, each from its due time.
"""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import statistics
import subprocess
import time
from asyncio import AbstractEventLoop
from collections.abc import Callable
from pathlib import Path

from benchmarks.serve import BACKLOG, Echo, listening

PERIOD = 0.001


class Ticker:
    """A timer of PERIOD that re-arms itself each time, and records its delay.

    The delay is measured by the system's clock, because a loop's own time may be cached for a turn.
    """

    def __init__(self, loop: AbstractEventLoop) -> None:
        """Arm the first tick."""
        self.loop = loop
        self.lateness: list[float] = []
        self.recording = False
        self.arm()

    def arm(self) -> None:
        """Arm the next tick."""
        self.due = time.monotonic() + PERIOD
        self.handle = self.loop.call_later(PERIOD, self.tick)

    def tick(self) -> None:
        """Record this tick and those that are late because of it; arm the next one."""
        if self.recording:
            self.lateness += delays(time.monotonic() - self.due)
        self.arm()

    def begin(self) -> None:
        """Record from now on."""
        self.recording = True


def delays(late: float) -> list[float]:
    """Return the delays of a tick and of those that were due meanwhile; an early tick has 0."""
    return [max(late - held * PERIOD, 0.0) for held in range(max(int(late / PERIOD), 0) + 1)]


def attack(command: list[str], core: int, begun: Callable[[], None]) -> dict[str, float]:
    """Run the clients, pinned to a core, to their end; call begun() when they print "storm"."""
    os.sched_setaffinity(0, {core})  # for this thread, and inherited by its children
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as clients:
        if clients.stdout is None:
            raise ValueError("the clients' standard output is not a pipe")
        last = ""
        for line in clients.stdout:
            last = line
            if line == "storm\n":
                begun()
    if clients.returncode != 0:
        raise ValueError(f"the clients exited with status {clients.returncode}")
    found: dict[str, float] = json.loads(last)
    return found


async def measure(directory: Path, command: list[str], core: int) -> dict[str, float]:
    """Serve until the clients have ended; the command lacks the port after its second word."""
    loop = asyncio.get_running_loop()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(directory / "identity.pem")
    with listening() as listener:
        port = listener.getsockname()[1]
        server = await loop.create_server(Echo, sock=listener, backlog=BACKLOG, ssl=context)
        async with server:
            ticker = Ticker(loop)
            program, mode, *rest = command
            complete = [program, mode, str(port), *rest]

            def begun() -> None:
                loop.call_soon_threadsafe(ticker.begin)

            found = await loop.run_in_executor(None, attack, complete, core, begun)
            ticker.handle.cancel()
    percentiles = statistics.quantiles(ticker.lateness, n=100, method="inclusive")
    return {**found, "p99_us": percentiles[98] * 1e6}


def main(
    factory: Callable[[], AbstractEventLoop], directory: str, core: str, *command: str
) -> dict[str, float]:
    """Measure one loop."""
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(measure(Path(directory), list(command), int(core)))
