"""TLS clients that connect again and again; `python -m benchmarks.reconnects`.

Each client makes ten connections at a time to a server on goloop in another process: it sends 64
bytes, reads them back and closes, on TLS 1.3 (the certificate: native.identity).  "goloop" resumes
sessions (goloop.tls.resume_sessions); "goloop, full" and the others make a full handshake each
time.  The clients take turns in rounds, against the same server.  The results are connections per
second, and the server's processor time for a connection.  A ratio is taken inside a round; the
table has its median and 95 % interval.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import ssl
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from . import native, stats

AT_ONCE = 10
CLIENTS = ("goloop", "goloop, full", "uvloop", "asyncio")


def client_context(resume: bool) -> ssl.SSLContext:
    """Return the TLS context of a client that trusts the server's certificate."""
    context = ssl.create_default_context(cafile=native.identity())
    context.check_hostname = False
    if resume:
        from goloop import tls

        tls.resume_sessions(context)
    return context


async def visits(port: int, seconds: float, context: ssl.SSLContext) -> tuple[int, int]:
    """Return the number of connections, and the number of those that resumed a session."""
    count = reused = 0
    end = time.perf_counter() + seconds

    async def visit() -> None:
        nonlocal count, reused
        while time.perf_counter() < end:
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
            writer.write(bytes(64))
            await reader.readexactly(64)
            reused += writer.get_extra_info("ssl_object").session_reused
            writer.close()
            await writer.wait_closed()
            count += 1

    await asyncio.gather(*(visit() for _ in range(AT_ONCE)))
    return count, reused


async def serve() -> None:
    """Run the server: print its port, and answer."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(native.identity())

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.read(64))
        await reader.read()
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0, ssl=context)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.Event().wait()


def sample(name: str, port: int, seconds: float, server: int) -> dict[str, float]:
    """Measure a client for some seconds."""
    factory: Any = asyncio.new_event_loop
    if name.startswith("goloop"):
        import goloop

        factory = goloop.new_event_loop
    elif name == "uvloop":
        import uvloop

        factory = uvloop.new_event_loop
    context = client_context(name == "goloop")
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(visits(port, 0.1, context))
        before, began = _cpu(server), time.perf_counter()
        count, reused = runner.run(visits(port, seconds, context))
        passed = time.perf_counter() - began
        return {"rate": count / passed, "reused": reused / count,
                "cpu": (_cpu(server) - before) / count}  # fmt: skip


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(rounds: int, seconds: float) -> str:
    """The table."""
    command = [sys.executable, "-m", "benchmarks.reconnects"]
    found: dict[str, dict[str, dict[int, float]]] = {name: {} for name in CLIENTS}
    with subprocess.Popen(
        [*command, "--serve"], stdout=subprocess.PIPE, text=True, cwd=native.ROOT
    ) as server:
        assert server.stdout is not None
        try:
            port = server.stdout.readline().strip()
            for number in range(rounds):
                for name in random.sample(CLIENTS, len(CLIENTS)):
                    done = subprocess.run(
                        [*command, "--sample", name, port, str(seconds), str(server.pid)],
                        capture_output=True, text=True, check=True, cwd=native.ROOT,
                    )  # fmt: skip
                    for key, figure in json.loads(done.stdout).items():
                        found[name].setdefault(key, {})[number] = figure
        finally:
            server.kill()
    return stats.table(
        ["client", "connections/s", "resumed", "rate ÷ uvloop", "server CPU ÷ uvloop"],
        [
            [
                name,
                f"{statistics.median(each['rate'].values()):.0f}",
                f"{statistics.median(each['reused'].values()):.0%}",
                *(stats.claim(each[key], found["uvloop"][key], sign="") for key in ("rate", "cpu")),
            ]
            for name, each in found.items()
        ],
    )


def main() -> None:
    """Read the command line, measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reconnects")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--serve", action="store_true", help="be the server")
    parser.add_argument("--sample", nargs=4, metavar=("CLIENT", "PORT", "SECONDS", "SERVER"))
    options = parser.parse_args()
    if options.serve:
        import goloop

        goloop.run(serve())
    elif options.sample:
        name, port, seconds, server = options.sample
        print(json.dumps(sample(name, int(port), float(seconds), int(server))))
    else:
        print(measure(options.rounds, options.seconds))


if __name__ == "__main__":
    main()
