"""`make demo`: the examples on goloop, each with real requests, then a short comparison.

A server example prints `listening on port N` first.  Its client runs in another
process with the port as its argument; SIGINT then stops the server, as Ctrl-C does.
"""

from __future__ import annotations

import re
import signal
import subprocess

from environments import ROOT, Environment, Failed, run, say

# Each server with its client.
PAIRS = [("echo_server.py", "echo_client.py"), ("aiohttp_app.py", "aiohttp_client.py")]


def demo(made: Environment) -> None:
    """Runs the demonstration; raises Failed if a part does not work."""
    # A background job of a shell ignores SIGINT, and child processes inherit that.  A signal with a
    # handler is reset to its default in the child (POSIX, exec).
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for server, client in PAIRS:
        say(f"examples/{server}, with examples/{client} as its client")
        _show(made, server, client)
    say("goloop beside asyncio and uvloop on this machine, in a minute: medians of short rounds")
    run([made.python, "-m", "benchmarks", "quick"], env=made.variables(), silent=True)


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
                raise Failed(f"examples/{server} must print its port first, got {line!r}")
            print(f"{server}: {line}", end="", flush=True)
            run([made.python, f"examples/{client}", found[1]], env=env)
        finally:
            process.send_signal(signal.SIGINT)
            try:
                status = process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()
                raise Failed(f"examples/{server} did not exit within 30 s of SIGINT") from None
    if status != 0:
        raise Failed(f"examples/{server} exited with status {status} after SIGINT")
    print(f"{server}: stopped by SIGINT", flush=True)
