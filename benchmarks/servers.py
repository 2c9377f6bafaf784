"""The processes of a row: measured servers and clients that stay, and load generators."""

from __future__ import annotations

import signal
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence

from goloop.operations.compare.measuring.talker import Talker
from goloop.operations.compare.measuring.turns import Failure

START_SECONDS = 20.0  # an interpreter and a loop on a busy machine
END_SECONDS = 1.0  # from a crash to the end of the process
CRASHED = ("fatal error: ", "panic: ", "Fatal Python error: ")


class Child(Talker):
    """A process with its standard error; `role` names it in failures."""

    def __init__(
        self,
        role: str,
        command: Sequence[str],
        variables: Mapping[str, str],
        prepare: Callable[[], None],
    ) -> None:
        """Start the process; `prepare` is called between fork and exec."""
        self.role = role
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115  end() closes it
        super().__init__(command, stderr=self._complaints, env=dict(variables), preexec_fn=prepare)

    def end(self) -> None:
        """End the process."""
        super().end()
        self._complaints.close()

    def answer(self, verb: str, seconds: float) -> str:
        """Return the next line of output; raises Failure if there is none in some seconds."""
        try:
            return self.line(seconds)
        except TimeoutError:
            raise Failure(f"the {self.role} did not {verb} within {seconds:.0f} s") from None
        except EOFError:
            raise self.gone() from None

    def gone(self) -> Failure:
        """Return the failure of a process that ends."""
        status = self.process.wait()
        return Failure(f"the {self.role} {told(status, self.last_line())}")

    def has_ended(self, seconds: float = 0) -> bool:
        """Return true if the process has ended, or ends in some seconds."""
        deadline = time.monotonic() + seconds
        while self.process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        return self.process.poll() is not None

    def last_line(self) -> str:
        """Return the most informative line of the process's standard error."""
        self._complaints.seek(0)
        return text_last_line(self._complaints.read().decode(errors="replace"))


class Server(Child):
    """A process that listens, or a client, with the directory of its files.

    `address` is the address for its clients, or the server's of a client; `windows` counts how
    often it has been measured.
    """

    def __init__(
        self,
        role: str,
        directory: tempfile.TemporaryDirectory[str],
        command: Sequence[str],
        variables: Mapping[str, str],
        prepare: Callable[[], None],
        loops: int = 1,
    ) -> None:
        """Start the process and wait until each of its loops is ready; raises Failure if not."""
        self._directory = directory
        self.windows = 0
        super().__init__(role, command, variables, prepare)
        try:
            self.address = self._listening(loops)
        except BaseException:
            self.end()
            raise

    def end(self) -> None:
        """End the process, and remove its files."""
        super().end()
        self._directory.cleanup()

    def _listening(self, loops: int) -> str:
        """Wait for the line "port N" or "path P" of each loop, and return N or P.

        The results of several loops are joined by commas.  Other lines, for example of a logger,
        are ignored.
        """
        deadline = time.monotonic() + START_SECONDS
        found: list[str] = []
        while len(found) < loops:
            verb = "connect" if self.role == "client" else "listen"
            line = self.answer(verb, max(deadline - time.monotonic(), 0))
            if line.startswith(("port ", "path ")):
                found.append(line[5:].strip())
        return ",".join(found)


def ending(status: int) -> str:
    """Write how a process ended."""
    if status < 0:
        return f"was ended by {signal.Signals(-status).name}"
    return f"exited with status {status}"


def told(status: int, words: str) -> str:
    """Write how a process ended, with the last line of its output if there is one."""
    return f"{ending(status)}: {words}" if words else ending(status)


def text_last_line(text: str) -> str:
    """Return the reason of a crash, or the last line of a text."""
    lines = text.strip().splitlines()
    # A long crash report of Go or Python starts with the reason.
    reasons = [line for line in lines if line.startswith(CRASHED)]
    return (reasons[:1] or lines[-1:] or [""])[0].strip()
