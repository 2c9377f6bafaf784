"""Replacements of standard-library functions: clocks, randomness, sockets, names, processes.

Each replacement has the parameters and the result of its original.  It looks up the simulation of
the calling thread: in the thread of a simulation it does what its docstring says, in all other
threads it calls the original.  The replacements are installed while at least one simulation runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import importlib
import os
import queue
import random
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent import futures

from ..._internal import lazy_imports
from ..._internal.loop import loop
from . import clock, descriptors, sockets, threads
from .builtins import Replaced, ReplacedAttribute, ReplacedMethod
from .errors import EscapedSimulation
from .kernel import FIRST_PID, session_of_thread

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Protocol

    from .kernel import Kernel

    class Session(Protocol):
        """The part of a simulation that the replacements use (SimulationRun of session.py)."""

        kernel: Kernel
        program_random: random.Random
        programs: Any

        def monotonic_ns(self) -> int:
            """Return the monotonic clock in nanoseconds."""

        def wall_ns(self) -> int:
            """Return the wall clock in nanoseconds since 1970."""

        def sleep(self, seconds: float) -> None:
            """Sleep in virtual time."""

        def resolve(self, name: str, family: int) -> list[str]:
            """Return the addresses of a host name; `family` 0 means IPv4 and IPv6."""

        def hostname(self) -> str:
            """Return the name of the current host."""

        def set_signal(self, sig: int, handler: Any) -> Any:
            """Set the handler of a simulated signal; return the previous one."""

        def get_signal(self, sig: int) -> Any:
            """Return the handler of a simulated signal."""

        def raise_signal(self, sig: int) -> None:
            """Send a signal to the current host."""

        def has_ipv6(self) -> bool:
            """Return true if the current host has IPv6 addresses."""


def current_session() -> Any:
    """Return the simulation of this thread, or None."""
    return session_of_thread.get(threading.get_ident())


# ---- clocks --------------------------------------------------------------------------------------


def _wall(session: Session) -> float:
    """Return the simulation's wall clock in seconds."""
    return session.wall_ns() / 1e9


def _monotonic(session: Session) -> float:
    """Return the simulation's monotonic clock in seconds."""
    return session.monotonic_ns() / 1e9


_CLOCKS: tuple[tuple[Any, Callable[[Any], object]], ...] = (
    (time.time, _wall),
    (time.time_ns, lambda session: session.wall_ns()),
    (time.monotonic, _monotonic),
    (time.monotonic_ns, lambda session: session.monotonic_ns()),
    (time.perf_counter, _monotonic),
    (time.perf_counter_ns, lambda session: session.monotonic_ns()),
    (random.random, lambda session: session.program_random.random()),
)


def _with_session(answer: Callable[[Any], object]) -> Callable[[Callable[[], Any]], Any]:
    """Return a replacement that calls `answer(session)` in the thread of a simulation."""

    def replacement(original: Callable[[], Any]) -> Any:
        """Call `answer(session)` in the thread of a simulation, `original()` in other threads."""
        session = session_of_thread.get(threading.get_ident())
        return original() if session is None else answer(session)

    return replacement


_now: Any = vars(datetime.datetime)["now"]
_utcnow: Any = vars(datetime.datetime)["utcnow"]


def _datetime_now(cls: Any, tz: datetime.tzinfo | None = None) -> Any:
    """Replacement of datetime.datetime.now: the current host's wall clock."""
    session = current_session()
    if session is None:
        return _now.__get__(None, cls)(tz)
    return cls.fromtimestamp(_wall(session), tz)


def _datetime_utcnow(cls: Any) -> Any:
    """Replacement of datetime.datetime.utcnow: the current host's wall clock, a naive time."""
    session = current_session()
    if session is None:
        return _utcnow.__get__(None, cls)()
    return cls.fromtimestamp(_wall(session), datetime.UTC).replace(tzinfo=None)


# ---- functions with arguments --------------------------------------------------------------------

_sleep = time.sleep
_localtime, _gmtime = time.localtime, time.gmtime
_urandom = os.urandom
_seed: Any = random.Random.seed
_uuid1: Any = uuid.uuid1
_socketpair, _getaddrinfo = socket.socketpair, socket.getaddrinfo
_gethostbyname, _gethostname = socket.gethostbyname, socket.gethostname
_getnameinfo, _getfqdn = socket.getnameinfo, socket.getfqdn
_new_socket: Any = sockets._new
_new_popen: Any = subprocess.Popen.__init__
_begin_runner: Any = vars(asyncio.Runner)["_lazy_init"]
_fork, _kill = os.fork, os.kill
_signal, _getsignal, _raise_signal = signal.signal, signal.getsignal, signal.raise_signal
_LONGEST = 2**63 / 1e9  # upper limit of time.sleep() in seconds
_GREGORIAN = 0x01B2_1DD2_1381_4000  # units of 100 ns from 1582 (UUIDs) to 1970 (Unix)
_CHILD = (
    "a simulation can't start a child process; register a coroutine function for it with "
    "sim.program() and start it with asyncio.create_subprocess_exec()"
)
# Other functions that start a child process; multiprocessing calls the last one.
_STARTS: list[Any] = [
    getattr(os, name)
    for name in ("system", "posix_spawn", "posix_spawnp", "forkpty")
    if hasattr(os, name)
]
with contextlib.suppress(ImportError):  # systems without fork()
    _STARTS.append(importlib.import_module("_posixsubprocess").fork_exec)
_NO_NAME = (socket.EAI_NONAME, "Name or service not known")


def sleep(seconds: float) -> None:
    """Replacement of time.sleep: let virtual time pass. Raises the same errors as the original."""
    session = current_session()
    if session is None:
        _sleep(seconds)
        return
    if seconds < 0:
        raise ValueError("sleep length must be non-negative")
    if seconds >= _LONGEST:
        raise OverflowError("timestamp too large to convert to C PyTime_t")
    session.sleep(seconds)


def _at_virtual_time(convert: Any) -> Any:
    """Return the replacement of `convert`, which is time.localtime or time.gmtime."""

    def converted(seconds: float | None = None) -> Any:
        """Return the struct_time for seconds since 1970; None is the current host's wall clock."""
        session = current_session()
        if seconds is None and session is not None:
            seconds = _wall(session)
        return convert(seconds)

    return converted


def urandom(size: int) -> bytes:
    """Replacement of os.urandom: return bytes that derive from the simulation's seed."""
    session = current_session()
    if session is None or not isinstance(size, int) or size < 0:
        return _urandom(size)
    bytes_: bytes = session.program_random.randbytes(size)
    return bytes_


def seed(self: Any, a: Any = None, version: int = 2) -> None:
    """Replacement of random.Random.seed: without a value use the simulation's seed.

    A generator whose class overrides seed() is seeded by the original.
    """
    if (
        a is None
        and type(self).seed is random.Random.seed
        and (session := current_session()) is not None
    ):
        a = session.program_random.getrandbits(256)
    _seed(self, a, version)


def uuid1(node: int | None = None, clock_seq: int | None = None) -> uuid.UUID:
    """Replacement of uuid.uuid1, whose C implementation reads the real clock.

    The time is virtual, the clock sequence derives from the seed, and the node is constant.
    """
    session = current_session()
    if session is None:
        made: uuid.UUID = _uuid1(node, clock_seq)
        return made
    node = 0x02_00_5E_00_00_01 if node is None else node
    clock_seq = session.program_random.getrandbits(14) if clock_seq is None else clock_seq
    ticks = session.wall_ns() // 100 + _GREGORIAN
    low, middle, high = ticks & 0xFFFF_FFFF, ticks >> 32 & 0xFFFF, ticks >> 48 & 0x0FFF
    return uuid.UUID(
        fields=(low, middle, high, clock_seq >> 8 & 0x3F, clock_seq & 0xFF, node), version=1
    )


def new_socket(cls: Any, *args: Any, **options: Any) -> Any:
    """Replacement of socket.socket.__new__: create a simulated socket.

    EscapedSimulation for subclasses, which may call the real kernel.
    """
    if current_session() is None:
        return _new_socket(cls, *args, **options)
    if cls is not socket.socket:
        raise EscapedSimulation(
            f"a simulation supports only socket.socket itself, got its subclass "
            f"{cls.__qualname__}; for TLS use the loop's ssl= or asyncio's start_tls()"
        )
    return sockets.Socket.__new__(sockets.Socket)


def new_popen(self: Any, *args: Any, **options: Any) -> None:
    """Replacement of subprocess.Popen.__init__: raise EscapedSimulation."""
    if current_session() is not None:
        raise EscapedSimulation(_CHILD)
    _new_popen(self, *args, **options)


def kill(pid: int, sig: int, /) -> None:
    """Replacement of os.kill: process ids from FIRST_PID on belong to simulated children.

    ProcessLookupError if such a child does not run.
    """
    session = current_session()
    if session is None or pid < FIRST_PID:
        _kill(pid, sig)
    else:
        session.programs.kill(pid, sig)


def set_signal(signalnum: int, handler: Any, /) -> Any:
    """Replacement of signal.signal: set a handler of the current host; return the previous one."""
    session = current_session()
    return (
        _signal(signalnum, handler) if session is None else session.set_signal(signalnum, handler)
    )


def get_signal(signalnum: int, /) -> Any:
    """Replacement of signal.getsignal: return a handler of the current host."""
    session = current_session()
    return _getsignal(signalnum) if session is None else session.get_signal(signalnum)


def raise_signal(signalnum: int, /) -> None:
    """Replacement of signal.raise_signal: send a signal to the current host."""
    session = current_session()
    if session is None:
        _raise_signal(signalnum)
    else:
        session.raise_signal(signalnum)


def fork() -> int:
    """Replacement of os.fork: raise EscapedSimulation."""
    if current_session() is not None:
        raise EscapedSimulation(
            "a simulation can't fork; use Simulation.host() or sim.program() for other processes"
        )
    return _fork()


def _refuse_new_loop(function: Any) -> Any:
    """Return the replacement of a function that makes an event loop."""

    def new_event_loop(*args: Any, **options: Any) -> Any:
        """Raise EscapedSimulation in the thread of a simulation; else call the original."""
        if current_session() is not None:
            raise EscapedSimulation(
                "a simulation has one loop, and a job can't run another one with asyncio.run(); "
                "await the coroutine in the main function or in a task"
            )
        return function(*args, **options)

    return new_event_loop


def _refuse_child_process(function: Any) -> Any:
    """Return the replacement of a function that starts a child process."""

    def started(*args: Any, **options: Any) -> Any:
        """Raise EscapedSimulation in the thread of a simulation; else start the process."""
        if current_session() is not None:
            raise EscapedSimulation(f"{function.__name__}(): {_CHILD}")
        return function(*args, **options)

    started.__name__ = started.__qualname__ = function.__name__
    return started


def socketpair(family: int | None = None, type: int = socket.SOCK_STREAM, proto: int = 0) -> Any:
    """Replacement of socket.socketpair: return two connected simulated Unix sockets."""
    session = current_session()
    if session is None:
        return _socketpair(family, type, proto)
    return sockets.pair(session.kernel, type)


def getaddrinfo(
    host: Any, port: Any, family: int = 0, type: int = 0, proto: int = 0, flags: int = 0
) -> Any:
    """Replacement of socket.getaddrinfo: look up the names of simulated hosts only.

    Numeric addresses and the host None are converted by the original. gaierror for other names.
    """
    session = current_session()
    if session is None:
        return _getaddrinfo(host, port, family, type, proto, flags)
    numeric = flags | socket.AI_NUMERICHOST
    if host is None:  # the loopback or any address, in the families of this host
        family = family or (0 if session.has_ipv6() else socket.AF_INET)
        return _getaddrinfo(host, port, family, type, proto, flags & ~socket.AI_ADDRCONFIG)
    try:
        return _getaddrinfo(host, port, family, type, proto, numeric)
    except socket.gaierror as exc:
        if exc.errno != socket.EAI_NONAME or flags & socket.AI_NUMERICHOST:
            raise
    name = host.decode() if isinstance(host, bytes) else host
    found = []
    for address in session.resolve(name, family):
        found += _getaddrinfo(address, port, family, type, proto, numeric)
    if not found:
        raise socket.gaierror(*_NO_NAME)
    return found


def gethostbyname(name: str) -> str:
    """Replacement of socket.gethostbyname: return the IPv4 address of a simulated host."""
    if current_session() is None:
        return _gethostbyname(name)
    address: str = getaddrinfo(name, None, socket.AF_INET)[0][4][0]
    return address


def getnameinfo(address: Any, flags: int) -> tuple[str, str]:
    """Replacement of socket.getnameinfo: the address stays numeric."""
    session = current_session()
    if session is not None:
        flags |= socket.NI_NUMERICHOST
    return _getnameinfo(address, flags)


def gethostname() -> str:
    """Replacement of socket.gethostname: return the current host's name."""
    session = current_session()
    return _gethostname() if session is None else session.hostname()


def getfqdn(name: str = "") -> str:
    """Replacement of socket.getfqdn: return the name unchanged, or the current host's name."""
    session = current_session()
    return _getfqdn(name) if session is None else (name or session.hostname())


# ---- the random module's generator ---------------------------------------------------------------


class _SharedGenerator(random.Random):
    """Temporary class of the generator that the functions of `random` use.

    In the thread of a simulation the numbers come from the simulation's generator.
    """

    def random(self) -> float:
        """Return the simulation's next number in its thread, else the generator's own."""
        session = current_session()
        return super().random() if session is None else session.program_random.random()

    def getrandbits(self, k: int, /) -> int:
        """Return `k` bits of the simulation in its thread, else of the generator itself."""
        session = current_session()
        return super().getrandbits(k) if session is None else session.program_random.getrandbits(k)

    def _randbelow(self, n: int) -> int:
        """Return a number below `n`, of the simulation in its thread, else of the generator."""
        session = current_session()
        of: Any = super() if session is None else session.program_random
        number: int = of._randbelow(n)
        return number

    @property
    def gauss_next(self) -> float | None:
        """The stored second number of gauss(), of the simulation in its thread."""
        session = current_session()
        other: Any = vars(self) if session is None else vars(session.program_random)
        value: float | None = other["gauss_next"]
        return value

    @gauss_next.setter
    def gauss_next(self, value: float | None) -> None:
        """Store the second number of gauss() for the simulation or for the generator itself."""
        session = current_session()
        other: Any = vars(self) if session is None else vars(session.program_random)
        other["gauss_next"] = value


def _program_method(name: str) -> Any:
    """Return the replacement of the function `name` of `random`, such as getrandbits."""
    ours = getattr(random._inst, name)

    def call(*args: Any, **options: Any) -> Any:
        """Call the method of the simulation's generator in its thread, else the original."""
        session = current_session()
        return (ours if session is None else getattr(session.program_random, name))(
            *args, **options
        )

    call.__name__ = call.__qualname__ = name
    return call


class _SharedGeneratorPatch:
    """The patch that sets the class of the generator of the module `random`."""

    def __init__(self) -> None:
        """Set the class; restore() resets it."""
        self._generator = random._inst
        self._generator.__class__ = _SharedGenerator

    def restore(self) -> None:
        """Give the generator its original class back."""
        self._generator.__class__ = random.Random


# ---- installation --------------------------------------------------------------------------------

# Functions that modules may have imported by name, or as _name, and their replacements.
_FUNCTIONS: tuple[tuple[Any, Any], ...] = (
    (time.sleep, sleep),
    (time.localtime, _at_virtual_time(time.localtime)),
    (time.gmtime, _at_virtual_time(time.gmtime)),
    (os.urandom, urandom),
    (os.fork, fork),
    *((function, _refuse_child_process(function)) for function in _STARTS),
    (os.kill, kill),
    *(
        (function, _refuse_new_loop(function))
        for function in (asyncio.new_event_loop, loop.new_event_loop, clock.new_event_loop)
    ),
    (signal.signal, set_signal),
    (signal.getsignal, get_signal),
    (signal.raise_signal, raise_signal),
    (uuid.uuid1, uuid1),
    (socket.socketpair, socketpair),
    (socket.getaddrinfo, getaddrinfo),
    (socket.gethostbyname, gethostbyname),
    (socket.getnameinfo, getnameinfo),
    (socket.gethostname, gethostname),
    (socket.getfqdn, getfqdn),
    *descriptors.FUNCTIONS,
    *(
        (getattr(random, name), _program_method(name))
        for name in ("getrandbits", "seed", "getstate", "setstate")
    ),
)
_BY_NAME: dict[str, list[tuple[Any, Any]]] = {}
for _function, _replacement in _FUNCTIONS:
    for _name in (_function.__name__, f"_{_function.__name__}"):
        _BY_NAME.setdefault(_name, []).append((_function, _replacement))
_lock = threading.Lock()
_active_count = 0
_replaced: list[Any] = []


def _install_patches() -> Iterator[Any]:
    """Install all patches; yield each, for its restore()."""
    for function, answer in _CLOCKS:
        yield Replaced(function, _with_session(answer))
    yield ReplacedMethod(datetime.datetime, "now", classmethod(_datetime_now))
    yield ReplacedMethod(datetime.datetime, "utcnow", classmethod(_datetime_utcnow))
    yield _SharedGeneratorPatch()
    yield ReplacedAttribute(random.Random, "seed", seed)
    yield ReplacedAttribute(socket.socket, "__new__", new_socket)
    yield ReplacedAttribute(subprocess.Popen, "__init__", new_popen)
    yield ReplacedAttribute(asyncio.Runner, "_lazy_init", _refuse_new_loop(_begin_runner))
    yield ReplacedAttribute(threading.Thread, "start", threads.start)
    yield ReplacedAttribute(futures.Future, "result", threads.result)
    yield ReplacedMethod(threads.LOCK, "acquire", threads.acquire)
    yield ReplacedMethod(threads.LOCK, "__enter__", threads.enter)
    yield ReplacedMethod(queue.SimpleQueue, "get", threads.get)
    yield ReplacedAttribute(futures.ThreadPoolExecutor, "__init__", threads.new_executor)
    yield ReplacedAttribute(futures.ThreadPoolExecutor, "submit", threads.submit)
    yield ReplacedAttribute(futures.ThreadPoolExecutor, "shutdown", threads.shutdown)
    for module in list(sys.modules.values()):
        names = getattr(module, "__dict__", None)
        if not isinstance(names, dict) or module in (sys.modules[__name__], descriptors):
            continue
        for name in names.keys() & _BY_NAME.keys():
            for function, replacement in _BY_NAME[name]:
                if names[name] is function:
                    yield ReplacedAttribute(module, name, replacement)
                    break


@contextlib.contextmanager
def fresh_counters() -> Iterator[None]:
    """Reset the last timestamps of the uuid module, which are of the real clock, for the block."""
    names = [name for name in vars(uuid) if name.startswith("_last_timestamp")]
    before = {name: getattr(uuid, name) for name in names}
    for name in names:
        setattr(uuid, name, None)
    try:
        yield
    finally:
        vars(uuid).update(before)


@contextlib.contextmanager
def replacements() -> Iterator[None]:
    """Install the replacements of this module for the time of the block."""
    global _active_count
    with _lock:
        _active_count += 1
        if _active_count == 1:
            # An import in a simulation would use replaced functions.
            lazy_imports.load()
            _replaced.extend(_install_patches())
    try:
        yield
    finally:
        with _lock:
            _active_count -= 1
            while _active_count == 0 and _replaced:
                _replaced.pop().restore()
