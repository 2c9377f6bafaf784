"""The processes of `goloop compare`: servers on a loop, programs that end, and their failures."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time

from ..._internal.interpreter_options import interpreter_options
from . import launch, machine

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from .loops import Loop

# The lines of a program's output in the report of its failure.
_LAST_LINES = 20
# A server that does not end in this time after SIGTERM is killed.
_END_SECONDS = 3.0


class Failure(Exception):
    """A program that cannot be measured on a loop; `output` has its last lines."""

    def __init__(self, message: str, output: str = "") -> None:
        """Store message and output."""
        super().__init__(message)
        self.output = output


def free_port(host: str) -> int:
    """Return a port on which no program listens."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.bind((host, 0))
        found: int = probe.getsockname()[1]
        return found


def is_in_use(host: str, port: int) -> bool:
    """Return true if a program listens on this port, also one that accepts no connections."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False


def accepts(host: str, port: int) -> bool:
    """Return true if a program accepts connections at this address."""
    with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=1):
        return True
    return False


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Defer SIGINT and SIGTERM to the block's end, so that no process is started and forgotten."""
    caught: list[int] = []
    before = {
        number: signal.signal(number, lambda received, frame: caught.append(received))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if caught:
        signal.raise_signal(caught[0])


class Program:
    """A program that runs on a loop in a session of its own; a context manager that ends it."""

    def __init__(
        self,
        loop: Loop,
        command: Sequence[str],
        cores: Sequence[int],
        environment: Mapping[str, str],
    ) -> None:
        """Start the program; its output goes to a file, and no signal of a terminal reaches it."""
        self.loop = loop
        self._output = tempfile.TemporaryFile(prefix="goloop-compare-")  # noqa: SIM115
        self._record = tempfile.NamedTemporaryFile("r", prefix="goloop-compare-")  # noqa: SIM115
        options = [option for option in interpreter_options() if option != "-i"]
        launcher = launch.arguments(loop.factory, self._record.name, cores)
        self.started = time.perf_counter()
        self.process = subprocess.Popen(
            [sys.executable, *options, *launcher, *command],
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, **environment},
        )

    def __enter__(self) -> Program:
        """Return the program."""
        return self

    def __exit__(self, *error: object) -> None:
        """End the program."""
        self.end()

    def pids(self) -> list[int]:
        """Return the processes of the program."""
        return machine.session_pids(self.process.pid)

    def last_output(self) -> str:
        """Return the last lines that the program has written."""
        self._output.seek(0, os.SEEK_END)
        self._output.seek(max(0, self._output.tell() - 20_000))
        lines = self._output.read().decode(errors="replace").splitlines()
        return "\n".join(lines[-_LAST_LINES:])

    def failure(self, message: str) -> Failure:
        """Return the failure of this program, with its last output."""
        return Failure(message, self.last_output())

    def uses_loop(self) -> bool:
        """Return true if the program has made its loop; raise Failure if another one has run."""
        self._record.seek(0)
        lines = [line.split() for line in self._record.read().splitlines()]
        others = sorted({name for word, name in lines if word != "chosen"})
        if others:
            raise self.failure(
                f"the program chooses its loop itself ({', '.join(others)}): remove its option "
                "for the loop, its loop_factory=, or its policy"
            )
        return bool(lines)

    def wait_until_ready(self, host: str, port: int, limit: float) -> None:
        """Wait until the server accepts connections; raises Failure."""
        while True:
            if (status := self.process.poll()) is not None:
                raise self.failure(f"the server ended at its start, with status {status}")
            if self.uses_loop() and accepts(host, port):
                return
            if time.perf_counter() - self.started > limit:
                raise self.failure(
                    f"the server does not listen on port {port} after {limit:g} s: write {{port}} "
                    "in its arguments, read the variable PORT, or pass its port by --port"
                )
            time.sleep(0.02)

    def end(self) -> None:
        """End the program: by SIGTERM, and after a time limit by SIGKILL."""
        with uninterrupted():
            self._end()

    def _end(self) -> None:
        """End the program."""
        if self.process.poll() is None:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(_END_SECONDS)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._output.close()
        self._record.close()
