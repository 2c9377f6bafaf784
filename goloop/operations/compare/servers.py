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
        self._record.seek(0)
        lines = [line.split() for line in self._record.read().splitlines()]
        others = sorted({name for word, name in lines if word == "other"})
        if others:
            raise self.failure(
                f"the program chooses its loop itself ({', '.join(others)}): remove its option "
                "for the loop, its loop_factory=, or its policy"
            )
        return any(word == "chosen" for word, _ in lines)

    def wait_until_ready(self, host: str, port: int, limit: float) -> None:
        """Wait until the server accepts connections; raises Failure, PortTaken for a taken port."""
        foreign: float | None = None  # since when another program accepts them
        while True:
            if (status := self.process.poll()) is not None:
                failure = self.failure(f"the server ended at its start, with status {status}")
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
                        f"another program listens on the server's port {port}: end it, or choose "
                        "another port",
                        self.last_output(),
                    )
            if now - self.started > limit:
                raise self.failure(
                    f"the server does not listen on port {port} after {limit:g} s: write {{port}} "
                    "in its arguments, read the variable PORT, or pass its port by --port"
                )
            time.sleep(0.02)

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
