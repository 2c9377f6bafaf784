"""Guest mode beside qasync: `python -m benchmarks.guest [--rounds N]`; it needs PySide6 and qasync.

Each kind of loop answers requests over connections to itself; the kinds take turns, each in a
process of its own: `loop` is goloop's own run, `queue` a guest of a thread with a queue of calls,
`qt` a guest of Qt, and `qasync` qasync's loop.  The table has times, and multiples of qasync's.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import queue
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from typing import Any

KINDS = ("loop", "queue", "qt", "qasync")
REQUESTS = 3_000
CONNECTIONS = 50
TIMERS = 200


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send each line back."""
    while line := await reader.readline():
        writer.write(line)
    writer.close()


async def ask(address: Any, requests: int) -> None:
    """Send requests over a connection, one after the other."""
    reader, writer = await asyncio.open_connection(*address)
    for _ in range(requests):
        writer.write(b"hello\n")
        await reader.readline()
    writer.close()


async def main() -> dict[str, float]:
    """Return the seconds for each request and timer."""
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    address = server.sockets[0].getsockname()
    await ask(address, 100)
    found = {}
    for name, connections in (("one", 1), ("many", CONNECTIONS)):
        began, cpu = time.perf_counter(), time.process_time()
        each = REQUESTS // connections
        await asyncio.gather(*[ask(address, each) for _ in range(connections)])
        found[f"{name}: time"] = (time.perf_counter() - began) / (each * connections)
        found[f"{name}: CPU"] = (time.process_time() - cpu) / (each * connections)
    late = []
    for _ in range(TIMERS):
        began = time.perf_counter()
        await asyncio.sleep(0.001)
        late.append(time.perf_counter() - began - 0.001)
    found["timer: late"] = statistics.median(late)
    server.close()
    return found


def in_loop() -> dict[str, float]:
    """goloop's own run."""
    import goloop

    return goloop.run(main())


def in_queue() -> dict[str, float]:
    """Measure a guest of the simplest host."""
    import goloop.guest

    calls: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
    guest = goloop.guest.start(main(), run_sync_soon_threadsafe=calls.put)
    while not guest.outcome.done():
        calls.get()()
    return guest.outcome.result()


def qt_application() -> Any:
    """Make an application without a display."""
    from PySide6 import QtWidgets

    return QtWidgets.QApplication([])


def in_qt() -> dict[str, float]:
    """Measure a guest of Qt."""
    import goloop.guest.qt

    return goloop.guest.qt.run(main(), qt_application())


def in_qasync() -> dict[str, float]:
    """Measure qasync, for comparison."""
    app = qt_application()  # first, because qasync uses the imported binding
    import qasync

    coroutine: Coroutine[Any, Any, dict[str, float]] = main()
    with qasync.QEventLoop(app) as loop:
        found: dict[str, float] = loop.run_until_complete(coroutine)
    return found


def measure(kind: str) -> dict[str, float]:
    """Measure a kind of loop in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.guest", "--kind", kind]
    environ = {**os.environ, "QT_QPA_PLATFORM": "offscreen"}
    told = subprocess.run(command, env=environ, check=True, stdout=subprocess.PIPE, timeout=120)
    found: dict[str, float] = json.loads(told.stdout)
    return found


def command() -> None:
    """Run all kinds in turns, and print the medians of the rounds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--kind", choices=KINDS)
    options = parser.parse_args()
    if options.kind:
        print(json.dumps(globals()[f"in_{options.kind}"]()))
        return
    rounds = [{kind: measure(kind) for kind in KINDS} for _ in range(options.rounds)]
    print(f"{'':12}" + "".join(f"{kind:>18}" for kind in KINDS))
    for row in rounds[0]["qasync"]:
        line = f"{row:12}"
        for kind in KINDS:
            us = 1e6 * statistics.median(each[kind][row] for each in rounds)
            ratio = statistics.median(each[kind][row] / each["qasync"][row] for each in rounds)
            line += f"{us:8.0f} µs × {ratio:5.2f}"
        print(line)


if __name__ == "__main__":
    command()
