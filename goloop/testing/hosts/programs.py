"""Programs of a simulation: coroutine functions that stand for child processes.

asyncio's subprocess transport is the running version's, as it is; what it has for a `Popen` is a
Child, whose pipes are the simulated kernel's.  A child is a boot of its own on the host where it
was started, so its end is a host's: at once, and without a `finally`.
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
from ..simulated.kernel import FIRST_PID, Ask, ask, host_here, host_number
from . import lifecycle
from .lifecycle import HostRun

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .session_protocol import Session

_PROGRAM_BITS = 24  # see netloop/simulated/owners.go
# What asks for more of a shell than words.
_SHELL = frozenset("|&;<>()$`*?[]#~{}!\n\\")


class Process:
    """What a program has that stands for a child process: its argument.

    `Simulation.program()` says which functions do.  Since 0.3.0.
    """

    __module__ = "goloop.testing"

    def __init__(self, args: tuple[str, ...], env: Mapping[str, str], cwd: str, pid: int) -> None:
        self.args = args
        """The words that it was started with; the first one is its name."""
        self.env = dict(env)
        """Its environment variables."""
        self.cwd = cwd
        """Its working directory."""
        self.pid = pid
        """Its number, which `asyncio.subprocess.Process.pid` tells, too."""
        self.stdin: asyncio.StreamReader
        """What it is given; at its end where that is nothing."""
        self.stdout: asyncio.StreamWriter
        """Where it writes to; what is not a pipe goes where the test's output goes."""
        self.stderr: asyncio.StreamWriter
        """The same for errors."""

    def __repr__(self) -> str:
        return f"<Process {self.pid} {shlex.join(self.args)}>"


_Function = Callable[[Process], Coroutine[Any, Any, "int | None"]]


class Programs:
    """The programs of one simulation."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._functions: dict[str, _Function] = {}
        self._children: dict[int, Child] = {}
        self._started = 0
        self.own: weakref.WeakSet[Any] = weakref.WeakSet()  # transports that no program has made

    def register(self, name: str, function: _Function) -> None:
        """Let a function stand for a program."""
        self._functions[name] = function

    def find(self, words: tuple[str, ...], executable: str | None) -> _Function:
        """What stands for the program; EscapedSimulation where nothing does."""
        name = words[0] if executable is None else executable
        found = self._functions.get(name) or self._functions.get(os.path.basename(name))
        if found is None:
            raise EscapedSimulation(
                f"a child process is outside of the simulation; let a coroutine function stand "
                f"for it: sim.program({os.path.basename(name)!r}, function)"
            )
        return found

    async def start(
        self,
        protocol: asyncio.SubprocessProtocol,
        *command: Any,
        **options: Any,
    ) -> asyncio.SubprocessTransport:
        """The transport of a child that has started; the arguments are asyncio's own."""
        loop = self._session.loop
        lifecycle.have_boots(loop)
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

    def begin(self, child: Child) -> int:
        """Its number in the simulation."""
        self._started += 1
        self._children[FIRST_PID + self._started] = child
        return self._started

    def kill(self, pid: int, sig: int) -> None:
        """os.kill() of a child; ProcessLookupError where there is none."""
        child = self._children.get(pid)
        if child is None or not child.runs:
            raise ProcessLookupError
        child.send_signal(sig)

    def left(self) -> list[str]:
        """A sentence for each child that runs."""
        running = [each for each in self._children.values() if each.runs]
        return [f"a child runs: {shlex.join(each.args)}" for each in running]

    def forget(self, pid: int) -> None:
        """It has ended."""
        self._children.pop(pid, None)

    def end(self) -> None:
        """The simulation ends: nobody closes what is left."""
        for child in self._children.values():
            child.transport._closed = True


class _Transport(base_subprocess.BaseSubprocessTransport):
    """asyncio's transport, over a Child."""

    _loop: Any
    _proc: Any

    def _start(self, *args: Any, **options: Any) -> None:
        self._proc = Child(self._loop, self, *args, **options)

    # Newer versions ask the host's kernel for these.

    def send_signal(self, sig: int) -> None:
        self._check_proc()
        self._proc.send_signal(sig)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Child:
    """A program that runs: as much of a `subprocess.Popen` as asyncio's transport asks for."""

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
        simulation = loop._simulation
        self._loop, self.transport = loop, transport
        self.args = _words(args, shell)
        self.returncode: int | None = None
        self._function = simulation.programs.find(self.args, executable and os.fsdecode(executable))
        if pass_fds or preexec_fn is not None:
            raise EscapedSimulation("a program takes no pass_fds= and no preexec_fn=")
        number = simulation.programs.begin(self)
        self.pid = FIRST_PID + number
        parent = host_here.get()
        self._context = contextvars.copy_context()
        home = None if parent is None else parent.host
        of_host = host_number() & (1 << _PROGRAM_BITS) - 1
        self._boot = HostRun(home, of_host | number << _PROGRAM_BITS)
        self._siblings = [] if home is None else home._boot.children
        self._siblings.append(self._boot)
        if parent is not None:
            parent.started.add(transport)
        # Those of the child, as files, and of what it has made of them.
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
        # In a context of no host: a child that has ended has its end known.
        begin = contextvars.Context()
        loop.call_later(simulation.executor_delay(), self._begin, context=begin)

    # ---- its pipes

    def _open_stdin(self, wanted: Any) -> None:
        own = self._boot.number
        if wanted in (None, subprocess.DEVNULL):
            reads, writes = descriptors.pipe_for(own, own)
            descriptors.close(writes)
        elif wanted == subprocess.PIPE:
            reads, writes = descriptors.pipe_for(own, host_number())
            self.stdin = descriptors.open_(writes, "wb", 0)
        else:
            reads = _copy(wanted)
        self._files.append(descriptors.open_(reads, "rb", 0))

    def _open_output(self, wanted: Any, inherited: Any) -> Any:
        """The parent's end, if it wants one."""
        ours = None
        own = self._boot.number
        if wanted == subprocess.STDOUT:
            writes = _copy(self._files[1])
        elif wanted == subprocess.PIPE:
            reads, writes = descriptors.pipe_for(host_number(), own)
            ours = descriptors.open_(reads, "rb", 0)
        elif wanted is None or wanted == subprocess.DEVNULL or not _is_simulated(wanted):
            reads, writes = descriptors.pipe_for(host_number(), own)
            copy = self._copying(descriptors.open_(reads, "rb", 0), _sink(wanted, inherited))
            self._loop.create_own_task(copy)
        else:
            writes = _copy(wanted)
        self._files.append(descriptors.open_(writes, "wb", 0))
        return ours

    async def _copying(self, file: Any, write: Callable[[bytes], object]) -> None:
        transport, _ = await self._loop.connect_read_pipe(lambda: _Copying(write), file)
        self._loop._simulation.programs.own.add(transport)

    # ---- its life

    def _begin(self) -> None:
        if not self.runs:
            return
        context = contextvars.Context()
        context.run(host_here.set, self._boot)
        name = f"program {os.path.basename(self.args[0])}"
        task = self._loop.create_own_task(self._run(), name=name, context=context)
        task.add_done_callback(self._returned, context=contextvars.Context())

    async def _run(self) -> int:
        process = self._process
        process.stdin = asyncio.StreamReader(loop=self._loop)
        await self._connect(self._loop.connect_read_pipe, process.stdin, self._files[0])
        process.stdout = await self._writer(self._files[1])
        process.stderr = await self._writer(self._files[2])
        code = await self._code(process)
        for each in (process.stdout, process.stderr):
            each.close()
            with contextlib.suppress(OSError):  # nobody reads
                await each.wait_closed()
        return code

    async def _code(self, process: Process) -> int:
        """What the function returns, and after what it raises what Python has then."""
        try:
            code: Any = await self._function(process)
        except SystemExit as exc:
            code = exc.code
        except EscapedSimulation as exc:
            self._loop._simulation.has_escaped(exc)
            raise
        except Exception:
            process.stderr.write(traceback.format_exc().encode())
            return 1
        if code is None or isinstance(code, int):
            return int(code or 0) & 0xFF
        process.stderr.write(f"{code}\n".encode())
        return 1

    async def _connect(self, connect: Any, reader: asyncio.StreamReader, file: Any) -> Any:
        protocol = asyncio.StreamReaderProtocol(reader, loop=self._loop)
        transport, _ = await connect(lambda: protocol, file)
        self._streams.append(transport)
        self._loop._simulation.programs.own.add(transport)
        return transport, protocol

    async def _writer(self, file: Any) -> asyncio.StreamWriter:
        reader = asyncio.StreamReader(loop=self._loop)  # of nothing: what is written has a protocol
        transport, protocol = await self._connect(self._loop.connect_write_pipe, reader, file)
        return asyncio.StreamWriter(transport, protocol, reader, self._loop)

    def _returned(self, task: asyncio.Task[int]) -> None:
        failed = task.cancelled() or task.exception() is not None
        self._end(1 if failed else task.result())

    def _end(self, code: int) -> None:
        """The program has ended, or is ended: nothing of it runs any more."""
        if not self.runs:
            return
        self.returncode = code
        self._loop._simulation.programs.forget(self.pid)
        ask(Ask.END_PROGRAM, self._loop._simulation.kernel.number, self._boot.number)
        self._siblings.remove(self._boot)
        lifecycle.end([self._boot], self._loop)
        for stream in self._streams:
            if not stream.is_closing():
                lifecycle.end_transport(stream, [self._boot])
        for file in self._files[len(self._streams) :]:
            file.close()
        self._loop.call_soon(self.transport._process_exited, code, context=self._context)

    # ---- for its parent

    @property
    def runs(self) -> bool:
        """Whether neither it has ended nor its host."""
        return self.returncode is None and not self._boot.dead

    def poll(self) -> int | None:
        """The exit code, when there is one."""
        return self.returncode

    def send_signal(self, sig: int) -> None:
        """Runs the handler of its own, or else ends it, as the signal does."""
        if self.runs and sig and self._boot.signal(sig, self._loop):
            self._end(-sig)

    def kill(self) -> None:
        """Ends it."""
        self.send_signal(signal.SIGKILL)


class _Copying(asyncio.Protocol):
    """The end of a pipe whose bytes go elsewhere."""

    def __init__(self, write: Callable[[bytes], object]) -> None:
        self._write = write

    def data_received(self, data: bytes) -> None:
        self._write(data)


def _words(args: Any, shell: bool) -> tuple[str, ...]:
    """A command; what needs a shell is the program ``sh``'s."""
    if not shell:
        return tuple(map(os.fsdecode, (args,) if isinstance(args, (str, bytes)) else args))
    command = os.fsdecode(args)
    if _SHELL.isdisjoint(command):
        words = tuple(shlex.split(command))
        if words and "=" not in words[0]:
            return words
    return "/bin/sh", "-c", command


def _is_simulated(file: Any) -> bool:
    return descriptors.is_simulated(descriptors.number_of(file))


def _copy(file: Any) -> int:
    """What the child has of a file of its parent's."""
    if not _is_simulated(file):
        raise EscapedSimulation(
            "a program reads from PIPE, DEVNULL, or a pipe or a socket of the simulation"
        )
    return descriptors.dup(descriptors.number_of(file))


def _sink(wanted: Any, inherited: Any) -> Callable[[bytes], object]:
    """Where a child's output goes that is no pipe of the simulation."""
    if wanted == subprocess.DEVNULL:
        return len
    if wanted is None:
        return lambda data: inherited.write(data.decode(errors="backslashreplace"))
    number = descriptors.number_of(wanted)
    return lambda data: os.write(number, data)
