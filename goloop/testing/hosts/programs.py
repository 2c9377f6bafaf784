"""Child programs of a simulation: coroutine functions that replace child processes.

The subprocess transport of the running asyncio is used unchanged.  Instead of a `Popen` it gets a
Child with pipes of the simulated kernel.  Each child is a host run (lifecycle.py) of its own, on
the host where it was started.  When it is killed or its function returns, its remaining tasks
therefore end like those of a killed host: at once, without running `finally` blocks.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import os
import shlex
import signal
import subprocess
import sys
import traceback
import weakref
from asyncio import base_subprocess
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from ..simulated import descriptors
from ..simulated.errors import EscapedSimulation
from ..simulated.kernel import FIRST_PID, Request, current_host_run, owner_number, request
from . import lifecycle
from .lifecycle import HostRun

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .session_protocol import Session

_PROGRAM_BITS = 24  # see netloop/simulated/owners.go
# Characters of a shell command that need more than splitting into words.
_SHELL = frozenset("|&;<>()$`*?[]#~{}!\n\\")


class Process:
    """The argument of a coroutine function that replaces a child process.

    `Simulation.program()` registers such functions.  Since 0.3.0.
    """

    __module__ = "goloop.testing"

    def __init__(self, args: tuple[str, ...], env: Mapping[str, str], cwd: str, pid: int) -> None:
        """Store the arguments; the simulation sets the three streams when the program starts."""
        self.args = args
        """Words of the command; the first one is the program's name."""
        self.env = dict(env)
        """Environment variables."""
        self.cwd = cwd
        """Working directory."""
        self.pid = pid
        """Process id, the same as `asyncio.subprocess.Process.pid`."""
        self.stdin: asyncio.StreamReader
        """Standard input; at EOF if the parent passes none."""
        self.stdout: asyncio.StreamWriter
        """Standard output; without a pipe the bytes are written to the test's output."""
        self.stderr: asyncio.StreamWriter
        """Standard error; without a pipe the bytes are written to the test's stderr."""

    def __repr__(self) -> str:
        return f"<Process {self.pid} {shlex.join(self.args)}>"


_Function = Callable[[Process], Coroutine[Any, Any, "int | None"]]


class Programs:
    """The child programs of one simulation, registered and running."""

    def __init__(self, session: Session) -> None:
        """Create the registry without programs."""
        self._session = session
        self._functions: dict[str, _Function] = {}
        self._children: dict[int, Child] = {}
        self._started = 0
        # Transports that the simulation itself has made.
        self.own_transports: weakref.WeakSet[Any] = weakref.WeakSet()

    def register(self, name: str, function: _Function) -> None:
        """Register the coroutine function that runs instead of a program."""
        self._functions[name] = function

    def find(self, words: tuple[str, ...], executable: str | None) -> _Function:
        """Return the function registered for a program; EscapedSimulation if there is none."""
        name = words[0] if executable is None else executable
        found = self._functions.get(name) or self._functions.get(os.path.basename(name))
        if found is None:
            raise EscapedSimulation(
                f"a simulation can't start the child process {name!r}; register a coroutine "
                f"function for it: sim.program({os.path.basename(name)!r}, function)"
            )
        return found

    async def start(
        self,
        protocol: asyncio.SubprocessProtocol,
        *command: Any,
        **options: Any,
    ) -> asyncio.SubprocessTransport:
        """Start a registered program as a child and return its transport.

        The arguments are those of asyncio's subprocess_exec() hook.  Raises EscapedSimulation for
        a program that is not registered or an option that is not supported.  If connecting the
        pipes fails or is cancelled, the child is killed.
        """
        loop = self._session.loop
        lifecycle.enable_hosts(loop)
        waiter = loop.create_future()
        make: Any = _Transport
        transport = make(loop, protocol, *command, waiter=waiter, **options)
        try:
            await waiter
        except BaseException:
            transport.close()
            raise
        started: asyncio.SubprocessTransport = transport
        return started

    def add(self, child: Child) -> int:
        """Add a child and return its number in the simulation, which its process id contains."""
        self._started += 1
        self._children[FIRST_PID + self._started] = child
        return self._started

    def kill(self, pid: int, sig: int) -> None:
        """Send a signal to a child, as os.kill() does; ProcessLookupError if it does not run."""
        child = self._children.get(pid)
        if child is None or not child.is_running:
            raise ProcessLookupError
        child.send_signal(sig)

    def leaks(self) -> list[str]:
        """Return a sentence for each child that still runs."""
        running = [each for each in self._children.values() if each.is_running]
        return [f"a child runs: {shlex.join(each.args)}" for each in running]

    def remove(self, pid: int) -> None:
        """Remove a child that has ended."""
        self._children.pop(pid, None)

    def mark_transports_closed(self) -> None:
        """Mark the transports of all children as closed, at the end of the simulation."""
        for child in self._children.values():
            child.transport._closed = True


class _Transport(base_subprocess.BaseSubprocessTransport):
    """asyncio's subprocess transport with a Child instead of a Popen."""

    _loop: Any
    _proc: Any

    def _start(self, *args: Any, **options: Any) -> None:
        """Create a Child where asyncio's transport starts a process."""
        self._proc = Child(self._loop, self, *args, **options)

    # Newer versions of asyncio send signals by the real kernel.

    def send_signal(self, sig: int) -> None:
        """Send a signal to the child; ProcessLookupError if it has ended."""
        self._check_proc()
        self._proc.send_signal(sig)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)


class Child:
    """A child program, with the part of `subprocess.Popen` that asyncio's transport uses.

    The constructor opens the pipes and schedules the start.  It raises EscapedSimulation if no
    function is registered for the program, or for an option or a file that is not supported.
    """

    def __init__(
        self,
        loop: Any,
        transport: Any,
        args: Any,
        shell: bool,
        stdin: Any,
        stdout: Any,
        stderr: Any,
        bufsize: int,
        *,
        env: Mapping[str, str] | None = None,
        cwd: Any = None,
        executable: Any = None,
        pass_fds: Any = (),
        preexec_fn: Any = None,
        **_: Any,
    ) -> None:
        """Open the pipes and schedule the start; the arguments are those of `subprocess.Popen`."""
        simulation = loop._simulation
        self._loop, self.transport = loop, transport
        self.args = _split_command(args, shell)
        self.returncode: int | None = None
        self._function = simulation.programs.find(self.args, executable and os.fsdecode(executable))
        if pass_fds or preexec_fn is not None:
            raise EscapedSimulation(
                "a simulated child program does not support pass_fds= and preexec_fn="
            )
        number = simulation.programs.add(self)
        self.pid = FIRST_PID + number
        parent = current_host_run.get()
        self._context = contextvars.copy_context()
        host = None if parent is None else parent.host
        of_host = owner_number() & (1 << _PROGRAM_BITS) - 1
        self._host_run = HostRun(host, of_host | number << _PROGRAM_BITS)
        self._running_on_host = [] if host is None else host._host_run.children
        self._running_on_host.append(self._host_run)
        if parent is not None:
            parent.child_transports.add(transport)
        # The child's ends of its pipes, as files, and the transports made from them.
        self._files: list[Any] = []
        self._streams: list[Any] = []
        self.stdin, self.stdout, self.stderr = None, None, None
        self._open_stdin(stdin)
        self.stdout = self._open_output(stdout, sys.stdout)
        self.stderr = self._open_output(stderr, sys.stderr)
        self._process = Process(
            self.args,
            os.environ if env is None else env,
            os.getcwd() if cwd is None else os.fsdecode(cwd),
            self.pid,
        )
        # The context names no host, so the exit is reported even if the host has ended.
        no_host = contextvars.Context()
        loop.call_later(simulation.executor_delay(), self._start, context=no_host)

    # ---- its pipes

    def _open_stdin(self, wanted: Any) -> None:
        """Open the child's end of stdin, and the parent's end if the parent has passed PIPE.

        For None and DEVNULL the child reads EOF; for a file it gets a duplicate.
        EscapedSimulation for a real file.
        """
        own_number = self._host_run.number
        if wanted in (None, subprocess.DEVNULL):
            reads, writes = descriptors.pipe_for(own_number, own_number)
            descriptors.close(writes)
        elif wanted == subprocess.PIPE:
            reads, writes = descriptors.pipe_for(own_number, owner_number())
            self.stdin = descriptors.open_(writes, "wb", 0)
        else:
            reads = _duplicate(wanted)
        self._files.append(descriptors.open_(reads, "rb", 0))

    def _open_output(self, wanted: Any, inherited: Any) -> Any:
        """Open the child's end of stdout or stderr; return the parent's end if it wants a pipe.

        If the output is inherited, discarded or a real file, a task copies the bytes to it.
        """
        ours = None
        own_number = self._host_run.number
        if wanted == subprocess.STDOUT:
            writes = _duplicate(self._files[1])
        elif wanted == subprocess.PIPE:
            reads, writes = descriptors.pipe_for(owner_number(), own_number)
            ours = descriptors.open_(reads, "rb", 0)
        elif wanted is None or wanted == subprocess.DEVNULL or not _is_simulated(wanted):
            reads, writes = descriptors.pipe_for(owner_number(), own_number)
            copy = self._copy_output(
                descriptors.open_(reads, "rb", 0), _output_writer(wanted, inherited)
            )
            self._loop.create_own_task(copy)
        else:
            writes = _duplicate(wanted)
        self._files.append(descriptors.open_(writes, "wb", 0))
        return ours

    async def _copy_output(self, file: Any, write: Callable[[bytes], object]) -> None:
        """Pass all bytes of a pipe to a function."""
        transport, _ = await self._loop.connect_read_pipe(lambda: _CopyProtocol(write), file)
        self._loop._simulation.programs.own_transports.add(transport)

    # ---- start and end

    def _start(self) -> None:
        """Start the task of the program, after the delay of its start."""
        if not self.is_running:
            return
        context = contextvars.Context()
        context.run(current_host_run.set, self._host_run)
        name = f"program {os.path.basename(self.args[0])}"
        task = self._loop.create_own_task(self._run(), name=name, context=context)
        task.add_done_callback(self._task_done, context=contextvars.Context())

    async def _run(self) -> int:
        """Run the function with connected pipes; return the exit code."""
        process = self._process
        process.stdin = asyncio.StreamReader(loop=self._loop)
        await self._connect_pipe(self._loop.connect_read_pipe, process.stdin, self._files[0])
        process.stdout = await self._open_writer(self._files[1])
        process.stderr = await self._open_writer(self._files[2])
        code = await self._exit_code(process)
        for each in (process.stdout, process.stderr):
            each.close()
            with contextlib.suppress(OSError):  # the reader has closed its end
                await each.wait_closed()
        return code

    async def _exit_code(self, process: Process) -> int:
        """Call the function and return the exit code, as Python maps results and exceptions.

        The traceback of an exception is written to the child's stderr.  EscapedSimulation is
        recorded and raised.
        """
        try:
            code: Any = await self._function(process)
        except SystemExit as exc:
            code = exc.code
        except EscapedSimulation as exc:
            self._loop._simulation.record_escape(exc)
            raise
        except Exception:
            process.stderr.write(traceback.format_exc().encode())
            return 1
        if code is None or isinstance(code, int):
            return int(code or 0) & 0xFF
        process.stderr.write(f"{code}\n".encode())
        return 1

    async def _connect_pipe(self, connect: Any, reader: asyncio.StreamReader, file: Any) -> Any:
        """Connect a pipe end to the loop; return its transport and protocol."""
        protocol = asyncio.StreamReaderProtocol(reader, loop=self._loop)
        transport, _ = await connect(lambda: protocol, file)
        self._streams.append(transport)
        self._loop._simulation.programs.own_transports.add(transport)
        return transport, protocol

    async def _open_writer(self, file: Any) -> asyncio.StreamWriter:
        """Return a stream writer for the child's end of an output pipe."""
        reader = asyncio.StreamReader(
            loop=self._loop
        )  # stays empty: the protocol of a writer needs a reader
        transport, protocol = await self._connect_pipe(self._loop.connect_write_pipe, reader, file)
        return asyncio.StreamWriter(transport, protocol, reader, self._loop)

    def _task_done(self, task: asyncio.Task[int]) -> None:
        """Finish with the task's exit code; 1 if the task failed or was cancelled."""
        failed = task.cancelled() or task.exception() is not None
        self._finish(1 if failed else task.result())

    def _finish(self, code: int) -> None:
        """End the program, close its files and report its exit code to the parent's transport.

        Does nothing if the program or its host has ended.
        """
        if not self.is_running:
            return
        self.returncode = code
        self._loop._simulation.programs.remove(self.pid)
        request(Request.END_PROGRAM, self._loop._simulation.kernel.number, self._host_run.number)
        self._running_on_host.remove(self._host_run)
        lifecycle.end_host_runs([self._host_run], self._loop)
        for stream in self._streams:
            if not stream.is_closing():
                lifecycle.end_transport(stream, [self._host_run])
        for file in self._files[len(self._streams) :]:
            file.close()
        self._loop.call_soon(self.transport._process_exited, code, context=self._context)

    # ---- the interface for the parent

    @property
    def is_running(self) -> bool:
        """Return true if neither the program nor its host has ended."""
        return self.returncode is None and not self._host_run.has_ended

    def poll(self) -> int | None:
        """Return the exit code; None while the program runs."""
        return self.returncode

    def send_signal(self, sig: int) -> None:
        """Run the program's handler of a signal; without one a signal that kills ends the program.

        Does nothing if the program has ended.
        """
        if self.is_running and sig and self._host_run.signal(sig, self._loop):
            self._finish(-sig)

    def kill(self) -> None:
        """End the program, as SIGKILL does."""
        self.send_signal(signal.SIGKILL)


class _CopyProtocol(asyncio.Protocol):
    """Passes the bytes received from a pipe to a function."""

    def __init__(self, write: Callable[[bytes], object]) -> None:
        """Pass the bytes to `write`."""
        self._write = write

    def data_received(self, data: bytes) -> None:
        """Pass the bytes to the function."""
        self._write(data)


def _split_command(args: Any, shell: bool) -> tuple[str, ...]:
    """Return the words of a command, as Popen treats `args`.

    Without `shell` nothing is split: a string is one word. With `shell` a plain command is split
    into words. A command that uses the shell's syntax or variables, has an unclosed quote or is
    empty becomes ``('/bin/sh', '-c', command)``.
    """
    if not shell:
        return tuple(map(os.fsdecode, (args,) if isinstance(args, (str, bytes)) else args))
    command = os.fsdecode(args)
    if _SHELL.isdisjoint(command):
        words: list[str] = []
        with contextlib.suppress(ValueError):  # an unclosed quote: the shell reports the error
            words = shlex.split(command)
        if words and "=" not in words[0]:
            return tuple(words)
    return "/bin/sh", "-c", command


def _is_simulated(file: Any) -> bool:
    """Return true if a file's descriptor is simulated."""
    return descriptors.is_simulated(descriptors.number_of(file))


def _duplicate(file: Any) -> int:
    """Return a duplicate of the parent's file for the child; EscapedSimulation for a real file."""
    if not _is_simulated(file):
        raise EscapedSimulation(
            "stdin= of a simulated program must be PIPE, DEVNULL, or a pipe or a socket of the "
            f"simulation, got {file!r}"
        )
    return descriptors.dup(descriptors.number_of(file))


def _output_writer(wanted: Any, inherited: Any) -> Callable[[bytes], object]:
    """Return the function that writes a child's output if the child has no simulated pipe.

    DEVNULL discards the bytes, None writes them as text to `inherited`, and a real file gets them
    by os.write().
    """
    if wanted == subprocess.DEVNULL:
        return len
    if wanted is None:
        return lambda data: inherited.write(data.decode(errors="backslashreplace"))
    number = descriptors.number_of(wanted)
    return lambda data: os.write(number, data)
