"""`make demo`: the examples on goloop, each with real requests, then a short comparison.

A server example prints `listening on port N` first; its client, in a process of
its own, gets that port, and an interrupt ends the server as Ctrl-C would.
"""

from __future__ import annotations

import re
import signal
import subprocess

from environments import ROOT, Environment, Failed, run, say

# Each server with the client that talks to it.
PAIRS = [("echo_server.py", "echo_client.py"), ("aiohttp_app.py", "aiohttp_client.py")]


def demo(made: Environment) -> None:
    """Everything that the demonstration shows; raises Failed where a part does not work."""
    # A shell's background job ignores SIGINT, and so would the servers; what is handled here is
    # at its default there (POSIX, exec).
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for server, client in PAIRS:
        say(f"examples/{server}, with examples/{client} as its client")
        _show(made, server, client)
    say("goloop beside asyncio and uvloop, a short run on this machine")
    run([made.python, "-m", "benchmarks", "quick"], env=made.variables())


def _show(made: Environment, server: str, client: str) -> None:
    env = made.variables()
    process = subprocess.Popen(
        [str(made.python), f"examples/{server}", "0"],
        cwd=ROOT,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    with process:
        try:
            line = process.stdout.readline()
            found = re.search(r"port (\d+)", line)
            if found is None:
                raise Failed(f"examples/{server} did not say its port: {line!r}")
            print(f"{server}: {line}", end="", flush=True)
            run([made.python, f"examples/{client}", found[1]], env=env)
        finally:
            process.send_signal(signal.SIGINT)
            try:
                status = process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()
                raise Failed(f"examples/{server} did not end when it was interrupted") from None
    if status != 0:
        raise Failed(f"examples/{server} ended with {status} when it was interrupted")
    print(f"{server}: ended by an interrupt", flush=True)
