"""Starting, asking and ending the programs that the tests of this directory run."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
APPS = HERE / "apps"

# Seconds; programs take one or two to start on an idle machine.
TIME_LIMIT = 60

# The name that every server here reports for its loop.
LOOP = "goloop.Loop"
ASYNCIO_LOOP = "asyncio.unix_events._UnixSelectorEventLoop"

# The command of a Python program.
PYTHON = (sys.executable, "-X", "faulthandler", "-W", "error::ResourceWarning")

# Packages that goloop imports only for a caller that has them.  A freezer that finds them installed
# freezes them too, with all that they import, which takes most of its time.
OPTIONAL = ("hypothesis", "opentelemetry", "prometheus_client")


def needs(*modules: str) -> None:
    """Skips the calling test module where a package is missing."""
    for name in modules:
        try:
            importlib.import_module(name)
        except ImportError as reason:
            pytest.skip(
                f"{name} is not installed ({reason}): pip install --group real --group tools",
                allow_module_level=True,
            )


# Below the ports that Linux assigns automatically (net.ipv4.ip_local_port_range), so that
# no other connection takes one between our check and the program's bind.
PORTS = range(15_000, 32_000)


def free_port() -> int:
    """Return a free TCP port of the loopback."""
    while True:
        port = random.choice(PORTS)
        with socket.socket() as sock, contextlib.suppress(OSError):
            # As the servers do: a connection's last minute is no hindrance.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(("127.0.0.1", port))
            return port


class Program:
    """A started program, with its output in a file."""

    def __init__(
        self, words: Sequence[str | Path], log: Path, *, user: str | None, **environ: str
    ) -> None:
        self.log = log
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [str(word) for word in words],
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join([str(HERE.parents[1]), str(APPS)]),
                    "PYTHONUNBUFFERED": "1",
                    **environ,
                },
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                user=user,
            )

    @property
    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def until_listening(self, port: int) -> None:
        """Returns once the program accepts connections there."""
        deadline = time.monotonic() + TIME_LIMIT
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=5).close()
            except OSError:
                assert self.process.poll() is None, self.output
                assert time.monotonic() < deadline, f"nobody listens: {self.output}"
                time.sleep(0.02)
            else:
                return

    def until_says(self, text: str, times: int = 1) -> None:
        """Returns once the output has the text that often."""
        deadline = time.monotonic() + TIME_LIMIT
        while self.output.count(text) < times:
            assert self.process.poll() is None, self.output
            assert time.monotonic() < deadline, f"{text!r} is not said: {self.output}"
            time.sleep(0.02)

    def wait(self) -> None:
        """Returns once the program has ended by itself."""
        try:
            self.process.wait(TIME_LIMIT)
        except subprocess.TimeoutExpired:
            pytest.fail(f"does not end: {self.output}")

    def end(self, number: int = signal.SIGTERM, *, status: int | None = 0) -> str:
        """Asks the program to end, which it must do well; its output."""
        self.process.send_signal(number)
        self.wait()
        output = self.output
        assert status is None or self.process.returncode == status, output
        assert "Traceback (most recent call last)" not in output, output
        return output

    def kill(self) -> None:
        """Kills the program and all processes that it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(TIME_LIMIT)


class Programs:
    """The programs that a test has started."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.started: list[Program] = []

    def start(
        self, *words: str | Path, port: int | None = None, user: str | None = None, **environ: str
    ) -> Program:
        """Starts a program, and waits until it listens on the port."""
        log = self.directory / f"program-{len(self.started)}.log"
        made = Program(words, log, user=user, **environ)
        self.started.append(made)
        if port is not None:
            made.until_listening(port)
        return made

    def python(self, *words: str | Path, port: int | None = None, **environ: str) -> Program:
        """Start a Python program, in this Python."""
        return self.start(*PYTHON, *words, port=port, **environ)

    def ends_well(self, *words: str | Path, **environ: str) -> str:
        """Runs a Python program to its end, which must be a good one; its output."""
        program = self.python(*words, **environ)
        program.wait()
        assert program.process.returncode == 0, program.output
        return program.output

    def kill(self) -> None:
        for program in self.started:
            program.kill()


def get(url: str, data: bytes | None = None) -> str:
    """Make a request on a connection of its own."""
    with urllib.request.urlopen(url, data, timeout=TIME_LIMIT) as answer:
        text: str = answer.read().decode()
        return text


def workers_of(url: str, count: int) -> set[int]:
    """Ask until this number of processes have answered, each on goloop; return their ids."""
    found: set[int] = set()
    deadline = time.monotonic() + TIME_LIMIT
    while len(found) < count:
        told = json.loads(get(url))
        assert told["loop"] == LOOP
        found.add(told["pid"])
        assert time.monotonic() < deadline, f"only {found} answer"
    return found


async def one_at_a_time(address: tuple[str, int]) -> None:
    """Fails unless a server that says hello has one client, and the next one waits for its end."""

    async def ask() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        return reader, writer

    reader, first = await ask()
    assert (await reader.readuntil(b"hello")).startswith(b"HTTP/1.1 200")
    reader, second = await ask()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(reader.readuntil(b"hello"), 0.2)
    first.close()
    assert (await reader.readuntil(b"hello")).startswith(b"HTTP/1.1 200")
    second.close()


def on_goloop(coroutine: Any) -> Any:
    """Runs the test's own side on goloop too, with a limit on its time."""
    import goloop

    async def limited() -> Any:
        return await asyncio.wait_for(coroutine, TIME_LIMIT)

    return goloop.run(limited())
