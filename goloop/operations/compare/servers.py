"""The processes of `goloop compare`: servers on a loop, programs that end, and their failures."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time

from ..._internal.interpreter_options import interpreter_options
from .. import server_ports
from ..keeper import END_SECONDS, ENDING_SIGNALS, Keeper, kill_session
from . import launch
from .measuring.turns import Failure

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from .loops import Loop

# The lines of a program's output in the report of its failure.
_LAST_LINES = 20
# Another program that listens on the server's port for this time is taken for the reason why the
# server does not.
_FOREIGN_SECONDS = 1.0


class PortTaken(Failure):
    """A server that does not get its port, because another program has it."""


def ending(status: int) -> str:
    """Return the exit status of a process, or the signal that ended it, in words."""
    if status >= 0:
        return f"with status {status}"
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"killed by signal {-status}"


def _not_listening(host: str, port: int, limit: float, others: Sequence[tuple[str, int]]) -> str:
    """Return the message for a server that does not listen on its port within the time limit.

    It listens at these other addresses.
    """
    same = [each for each, number in others if number == port]
    if same:
        return (
            f"the server listens on port {port} of {same[0]}, not of {host}: pass --host {same[0]}"
        )
    if others:
        number = others[0][1]
        return (
            f"the server listens on port {number}, not on {port}, after {limit:g} s: pass --port "
            f"{number}, or write {{port}} in its arguments instead of its port; pass a larger "
            f"--start-limit if it listens on {port} later"
        )
    return (
        f"the server does not listen on port {port} after {limit:g} s: write {{port}} "
        "in its arguments, read the variable PORT, or pass its port by --port. A "
        "program that is not a server is measured by --run"
    )


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Defer signals that end the command to the block's end, so that no process is forgotten."""
    caught: list[int] = []
    before = {
        number: signal.signal(number, lambda received, frame: caught.append(received))
        for number in ENDING_SIGNALS
        if signal.getsignal(number) not in (signal.SIG_IGN, None)
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
        keeper: Keeper,
    ) -> None:
        """Start the program; its output goes to a file, and no signal of a terminal reaches it."""
        self.loop = loop
        self._ended = False
        self._output = tempfile.TemporaryFile(prefix="goloop-compare-")  # noqa: SIM115
        self._record = keeper.record()
        options = [word for option in interpreter_options() if option != ("-i",) for word in option]
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
        return server_ports.family_of(self.process.pid)

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
        lines = self._record_lines()
        others = sorted({line[1] for line in lines if line[0] == "other"})
        if others:
            raise self.failure(
                f"the program chooses its loop itself ({', '.join(others)}): remove its option "
                "for the loop, its loop_factory=, or its policy"
            )
        return any(line[0] == "chosen" for line in lines)

    def start_costs(self) -> tuple[float, float]:
        """Return the CPU time of all processes before their first loop, and the first one's time.

        Both are in seconds. The time is one of time.monotonic(); a loop must have been made.
        """
        lines = [line for line in self._record_lines() if line[0] == "chosen"]
        return sum(float(line[2]) for line in lines), min(float(line[3]) for line in lines)

    def _record_lines(self) -> list[list[str]]:
        """Return the words of the record's lines: see launch.py."""
        self._record.seek(0)
        return [line.split() for line in self._record.read().splitlines()]

    def check_running(self, when: str, wait: float = 0.0) -> None:
        """Raise Failure with exit status and last output if the program has ended.

        `wait` is the time in seconds in which it may still end.
        """
        end = time.monotonic() + wait
        while (status := self.process.poll()) is None and time.monotonic() < end:
            time.sleep(0.02)
        if status is not None:
            raise self.failure(f"the server ended {when}, {ending(status)}")

    def wait_until_ready(self, host: str, port: int, limit: float) -> None:
        """Wait until the server accepts connections; raises Failure, PortTaken for a taken port."""
        foreign: float | None = None  # since when another program accepts them
        while True:
            if (status := self.process.poll()) is not None:
                failure = self._early_end(status)
                if server_ports.says_in_use(failure.output) or server_ports.is_in_use(host, port):
                    raise PortTaken(str(failure), failure.output)
                raise failure
            now = time.perf_counter()
            if self.uses_loop() and (address := server_ports.accepting_address(host, port)):
                if server_ports.is_listener(address, self.pids()) is not False:
                    return
                foreign = foreign or now
                if now - foreign > _FOREIGN_SECONDS:
                    raise PortTaken(
                        f"another program listens on the server's port {port}: end it, or "
                        "choose another port",
                        self.last_output(),
                    )
            if now - self.started > limit:
                if not self.uses_loop():
                    raise self.failure(
                        f"the program has run no asyncio event loop after {limit:g} s: there is "
                        "nothing to compare; for a slow start pass a larger --start-limit"
                    )
                # Not earlier: a server may first listen on another port, for its metrics.
                others = server_ports.listening_addresses(self.pids())
                raise self.failure(_not_listening(host, port, limit, others))
            time.sleep(0.02)

    def _early_end(self, status: int) -> Failure:
        """Return the failure of a server that has ended before it accepted a connection."""
        if status == 0:
            self.uses_loop()  # raises Failure if the program chose another loop
            return self.failure(
                "the program ended by itself, with status 0, before it listened on a port: "
                "measure a program that is not a server by --run"
            )
        return self.failure(f"the server ended at its start, {ending(status)}")

    def end(self) -> None:
        """End the program: by SIGTERM, and after a time limit by SIGKILL."""
        with uninterrupted():
            if not self._ended:
                self._end()
                self._ended = True

    def _end(self) -> None:
        """End the program."""
        if self.process.poll() is None:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(END_SECONDS)
        kill_session(self.process.pid)
        self.process.wait()
        self._output.close()
        self._record.close()
