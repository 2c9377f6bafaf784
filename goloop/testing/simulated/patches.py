"""What a simulated thread sees of the world: clocks, randomness, sockets and names.

The functions that programs call for these ask which thread calls: of a simulated one they answer
for its simulation, and any other one gets what it always got.  They are replaced while there are
simulations.
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
from .kernel import FIRST_PID, worlds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Protocol

    from .kernel import Kernel

    class World(Protocol):
        """What a simulation answers."""

        kernel: Kernel
        program_random: random.Random
        programs: Any

        def monotonic_ns(self) -> int: ...
        def wall_ns(self) -> int: ...
        def sleep(self, seconds: float) -> None: ...
        def resolve(self, name: str, family: int) -> list[str]: ...
        def hostname(self) -> str: ...
        def set_signal(self, sig: int, handler: Any) -> Any: ...
        def get_signal(self, sig: int) -> Any: ...
        def raise_signal(self, sig: int) -> None: ...
        def has_ipv6(self) -> bool: ...


def world_here() -> Any:
    """The simulation of this thread, or None."""
    return worlds.get(threading.get_ident())


# ---- clocks --------------------------------------------------------------------------------------


def _wall(world: World) -> float:
    return world.wall_ns() / 1e9


def _monotonic(world: World) -> float:
    return world.monotonic_ns() / 1e9


_CLOCKS: tuple[tuple[Any, Callable[[Any], object]], ...] = (
    (time.time, _wall),
    (time.time_ns, lambda world: world.wall_ns()),
    (time.monotonic, _monotonic),
    (time.monotonic_ns, lambda world: world.monotonic_ns()),
    (time.perf_counter, _monotonic),
    (time.perf_counter_ns, lambda world: world.monotonic_ns()),
    (random.random, lambda world: world.program_random.random()),
)


def _answering(answer: Callable[[Any], object]) -> Callable[[Callable[[], Any]], Any]:
    def replacement(original: Callable[[], Any]) -> Any:
        world = worlds.get(threading.get_ident())
        return original() if world is None else answer(world)

    return replacement


_now: Any = vars(datetime.datetime)["now"]
_utcnow: Any = vars(datetime.datetime)["utcnow"]


def _datetime_now(cls: Any, tz: datetime.tzinfo | None = None) -> Any:
    world = world_here()
    if world is None:
        return _now.__get__(None, cls)(tz)
    return cls.fromtimestamp(_wall(world), tz)


def _datetime_utcnow(cls: Any) -> Any:
    world = world_here()
    if world is None:
        return _utcnow.__get__(None, cls)()
    return cls.fromtimestamp(_wall(world), datetime.UTC).replace(tzinfo=None)


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
_LONGEST = 2**63 / 1e9  # seconds that time.sleep() takes
_GREGORIAN = 0x01B2_1DD2_1381_4000  # from 1582 to 1970, in 100 ns
_CHILD = (
    "a child process is outside of the simulation; start it by asyncio.create_subprocess_exec(), "
    "and let a coroutine function stand for it by sim.program()"
)
# What else starts one; multiprocessing does by the last.
_STARTS: list[Any] = [
    getattr(os, name)
    for name in ("system", "posix_spawn", "posix_spawnp", "forkpty")
    if hasattr(os, name)
]
with contextlib.suppress(ImportError):  # where there is no fork()
    _STARTS.append(importlib.import_module("_posixsubprocess").fork_exec)
_NO_NAME = (socket.EAI_NONAME, "Name or service not known")


def sleep(seconds: float) -> None:
    """time.sleep."""
    world = world_here()
    if world is None:
        _sleep(seconds)
        return
    if seconds < 0:
        raise ValueError("sleep length must be non-negative")
    if seconds >= _LONGEST:
        raise OverflowError("timestamp too large to convert to C PyTime_t")
    world.sleep(seconds)


def _broken_down(convert: Any) -> Any:
    def converted(seconds: float | None = None) -> Any:
        world = world_here()
        if seconds is None and world is not None:
            seconds = _wall(world)
        return convert(seconds)

    return converted


def urandom(size: int) -> bytes:
    """os.urandom."""
    world = world_here()
    if world is None or not isinstance(size, int) or size < 0:
        return _urandom(size)
    bytes_: bytes = world.program_random.randbytes(size)
    return bytes_


def seed(self: Any, a: Any = None, version: int = 2) -> None:
    """random.Random.seed."""
    if a is None and type(self).seed is random.Random.seed and (world := world_here()) is not None:
        a = world.program_random.getrandbits(256)
    _seed(self, a, version)


def uuid1(node: int | None = None, clock_seq: int | None = None) -> uuid.UUID:
    """uuid.uuid1, whose C half has a clock and a state of its own."""
    world = world_here()
    if world is None:
        made: uuid.UUID = _uuid1(node, clock_seq)
        return made
    node = 0x02_00_5E_00_00_01 if node is None else node
    clock_seq = world.program_random.getrandbits(14) if clock_seq is None else clock_seq
    ticks = world.wall_ns() // 100 + _GREGORIAN
    low, middle, high = ticks & 0xFFFF_FFFF, ticks >> 32 & 0xFFFF, ticks >> 48 & 0x0FFF
    return uuid.UUID(
        fields=(low, middle, high, clock_seq >> 8 & 0x3F, clock_seq & 0xFF, node), version=1
    )


def new_socket(cls: Any, *args: Any, **options: Any) -> Any:
    """socket.socket.__new__."""
    if world_here() is None:
        return _new_socket(cls, *args, **options)
    if cls is not socket.socket:
        raise EscapedSimulation(
            f"{cls.__qualname__}: in a simulation sockets are of socket.socket itself, not of a "
            "class that derives from it; for TLS use the loop's ssl= or asyncio's start_tls()"
        )
    return sockets.Socket.__new__(sockets.Socket)


def new_popen(self: Any, *args: Any, **options: Any) -> None:
    """subprocess.Popen.__init__."""
    if world_here() is not None:
        raise EscapedSimulation(_CHILD)
    _new_popen(self, *args, **options)


def kill(pid: int, sig: int, /) -> None:
    """os.kill."""
    world = world_here()
    if world is None or pid < FIRST_PID:
        _kill(pid, sig)
    else:
        world.programs.kill(pid, sig)


def set_signal(signalnum: int, handler: Any, /) -> Any:
    """signal.signal."""
    world = world_here()
    return _signal(signalnum, handler) if world is None else world.set_signal(signalnum, handler)


def get_signal(signalnum: int, /) -> Any:
    """signal.getsignal."""
    world = world_here()
    return _getsignal(signalnum) if world is None else world.get_signal(signalnum)


def raise_signal(signalnum: int, /) -> None:
    """signal.raise_signal."""
    world = world_here()
    if world is None:
        _raise_signal(signalnum)
    else:
        world.raise_signal(signalnum)


def fork() -> int:
    """os.fork."""
    if world_here() is not None:
        raise EscapedSimulation("a simulation can't fork")
    return _fork()


def _making_loop(function: Any) -> Any:
    """A function that makes an event loop."""

    def new_event_loop(*args: Any, **options: Any) -> Any:
        if world_here() is not None:
            raise EscapedSimulation(
                "a simulation has one loop, and a job can't run another one, as asyncio.run() "
                "does; let the main function or a task await what the job wants to run"
            )
        return function(*args, **options)

    return new_event_loop


def _starting(function: Any) -> Any:
    """A function that starts a child process."""

    def started(*args: Any, **options: Any) -> Any:
        if world_here() is not None:
            raise EscapedSimulation(f"{function.__name__}(): {_CHILD}")
        return function(*args, **options)

    started.__name__ = started.__qualname__ = function.__name__
    return started


def socketpair(family: int | None = None, type: int = socket.SOCK_STREAM, proto: int = 0) -> Any:
    """socket.socketpair."""
    world = world_here()
    if world is None:
        return _socketpair(family, type, proto)
    return sockets.pair(world.kernel, type)


def getaddrinfo(
    host: Any, port: Any, family: int = 0, type: int = 0, proto: int = 0, flags: int = 0
) -> Any:
    """socket.getaddrinfo."""
    world = world_here()
    if world is None:
        return _getaddrinfo(host, port, family, type, proto, flags)
    numeric = flags | socket.AI_NUMERICHOST
    if host is None:  # the loopback or any address, of what families this host has
        family = family or (0 if world.has_ipv6() else socket.AF_INET)
        return _getaddrinfo(host, port, family, type, proto, flags & ~socket.AI_ADDRCONFIG)
    try:
        return _getaddrinfo(host, port, family, type, proto, numeric)
    except socket.gaierror as exc:
        if exc.errno != socket.EAI_NONAME or flags & socket.AI_NUMERICHOST:
            raise
    name = host.decode() if isinstance(host, bytes) else host
    found = []
    for address in world.resolve(name, family):
        found += _getaddrinfo(address, port, family, type, proto, numeric)
    if not found:
        raise socket.gaierror(*_NO_NAME)
    return found


def gethostbyname(name: str) -> str:
    """socket.gethostbyname."""
    if world_here() is None:
        return _gethostbyname(name)
    address: str = getaddrinfo(name, None, socket.AF_INET)[0][4][0]
    return address


def getnameinfo(address: Any, flags: int) -> tuple[str, str]:
    """socket.getnameinfo."""
    world = world_here()
    if world is not None:
        flags |= socket.NI_NUMERICHOST
    return _getnameinfo(address, flags)


def gethostname() -> str:
    """socket.gethostname."""
    world = world_here()
    return _gethostname() if world is None else world.hostname()


def getfqdn(name: str = "") -> str:
    """socket.getfqdn."""
    world = world_here()
    return _getfqdn(name) if world is None else (name or world.hostname())


# ---- the random module's generator ---------------------------------------------------------------


class _Shared(random.Random):
    """The class of `random`'s own generator meanwhile: its methods ask it for random numbers."""

    def random(self) -> float:
        world = world_here()
        return super().random() if world is None else world.program_random.random()

    def getrandbits(self, k: int, /) -> int:
        world = world_here()
        return super().getrandbits(k) if world is None else world.program_random.getrandbits(k)

    def _randbelow(self, n: int) -> int:
        world = world_here()
        of: Any = super() if world is None else world.program_random
        number: int = of._randbelow(n)
        return number

    @property
    def gauss_next(self) -> float | None:
        world = world_here()
        other: Any = vars(self) if world is None else vars(world.program_random)
        value: float | None = other["gauss_next"]
        return value

    @gauss_next.setter
    def gauss_next(self, value: float | None) -> None:
        world = world_here()
        other: Any = vars(self) if world is None else vars(world.program_random)
        other["gauss_next"] = value


def _of_generator(name: str) -> Any:
    ours = getattr(random._inst, name)

    def call(*args: Any, **options: Any) -> Any:
        world = world_here()
        return (ours if world is None else getattr(world.program_random, name))(*args, **options)

    call.__name__ = call.__qualname__ = name
    return call


class _Generator:
    def __init__(self) -> None:
        self._of = random._inst
        self._of.__class__ = _Shared

    def restore(self) -> None:
        self._of.__class__ = random.Random


# ---- all of it -----------------------------------------------------------------------------------

# What modules may have imported by name, or as _name.
_FUNCTIONS: tuple[tuple[Any, Any], ...] = (
    (time.sleep, sleep),
    (time.localtime, _broken_down(time.localtime)),
    (time.gmtime, _broken_down(time.gmtime)),
    (os.urandom, urandom),
    (os.fork, fork),
    *((function, _starting(function)) for function in _STARTS),
    (os.kill, kill),
    *(
        (function, _making_loop(function))
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
        (getattr(random, name), _of_generator(name))
        for name in ("getrandbits", "seed", "getstate", "setstate")
    ),
)
_BY_NAME: dict[str, list[tuple[Any, Any]]] = {}
for _function, _replacement in _FUNCTIONS:
    for _name in (_function.__name__, f"_{_function.__name__}"):
        _BY_NAME.setdefault(_name, []).append((_function, _replacement))
_lock = threading.Lock()
_users = 0
_replaced: list[Any] = []


def _replace() -> Iterator[Any]:
    for function, answer in _CLOCKS:
        yield Replaced(function, _answering(answer))
    yield ReplacedMethod(datetime.datetime, "now", classmethod(_datetime_now))
    yield ReplacedMethod(datetime.datetime, "utcnow", classmethod(_datetime_utcnow))
    yield _Generator()
    yield ReplacedAttribute(random.Random, "seed", seed)
    yield ReplacedAttribute(socket.socket, "__new__", new_socket)
    yield ReplacedAttribute(subprocess.Popen, "__init__", new_popen)
    yield ReplacedAttribute(asyncio.Runner, "_lazy_init", _making_loop(_begin_runner))
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
    """What the uuid module remembers of the last ones is not of another time."""
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
    """The functions of this module are in the places of those that they stand for."""
    global _users
    with _lock:
        _users += 1
        if _users == 1:
            lazy_imports.load()  # an import needs what is replaced
            _replaced.extend(_replace())
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            while _users == 0 and _replaced:
                _replaced.pop().restore()
