"""Calls of the extension's entry points with arguments that do something in the middle.

    python tests/fuzz/hostile.py [--types StreamTransport ...] [--name write] [--all | --seed N]
                            [--first N] [--trail FILE]

The calls are generated from the types' own tables: every method is called and every
descriptor read, written and deleted, with hostile values in each position.  PLAUSIBLE
has ordinary arguments of methods; methods that it does not know get the hostile values in
up to three positions.  `--first N` continues after a call that killed the interpreter; the
trail has its number.  tests/fuzz/calls.py draws from the same values.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import contextvars
import faulthandler
import functools
import gc
import itertools
import logging
import math
import os
import socket
import sys
import threading
import types
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    TESTS = Path(__file__).resolve().parent.parent
    sys.path[:0] = [str(TESTS), str(TESTS / "support")]

import arguments
import tls_tools
from fuzz.crash_log import Trail
from protocols import Echo

import goloop
from goloop import _core
from goloop._internal.net.pipes import WritePipeTransport
from goloop._internal.net.server import Listener

SILENT = float(os.environ.get("GOLOOP_HOSTILE_SILENT", "60"))  # seconds: then a call hangs

# Names that are not called, with the reason.  Every other name of the tables is called.
SKIPPED = {
    "module._enable_tasks": "takes offsets into the interpreter's memory once, by layout_check.py",
    "module._task_names": "takes an offset into a module's memory once, by layout_check.py",
    "module._trace": "is given a descriptor by its number, which is no longer its owner's then",
    "module.set_library_path": "is for the import of goloop; the library is open",
}
PLAIN_DATA = (str, int, bool, type(None), types.ModuleType)

# A loop whose _stopping is lost in each turn does not stop, nor does one of a guest at the end of
# _run(); the object's own dictionary is where the hostile ones are.
UNTOUCHED = ("__dict__", "_thread_id", "_stopping", "_hosted")

# ---- actions in the middle of a call --------------------------------------------------


class Interrupt(KeyboardInterrupt):
    """The hostile one's own, so that no other is mistaken for it."""


class Deliberate(ValueError):
    """The exception that hostile values raise."""


class World:
    """A loop with an object of the extension, and the means to disturb both."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.loop: Any = goloop.new_event_loop()
        self.loop.set_exception_handler(self.on_context)
        self.peers: list[Any] = []
        self.system_errors: list[str] = []
        self.numbers: list[tuple[int, int]] = []  # descriptors of ours, and their inodes
        self.again: Callable[[], Any] = lambda: None
        self.fired = 0
        self.subject: Any = MAKERS[kind](self)

    def on_context(self, loop: Any, context: dict[str, Any]) -> None:
        self.see(context.get("exception"))

    def see(self, error: BaseException | None) -> None:
        if isinstance(error, SystemError):
            self.system_errors.append(repr(error))

    def pair(self, kind: int = socket.SOCK_STREAM) -> tuple[socket.socket, socket.socket]:
        first, second = socket.socketpair(type=kind)
        first.setblocking(False)
        second.setblocking(False)
        self.peers += [first, second]
        return first, second

    def turns(self, count: int = 2) -> None:
        """Lets the loop go on a little, unless it can't."""
        loop = self.loop
        for _ in range(count):
            if loop.is_closed() or loop.is_running():
                return
            # asyncio formats a callback and its arguments within Handle._run(), and an exception of
            # their repr() leaves the loop: also the CancelledError of an argument that is a task.
            with contextlib.suppress(Interrupt, Exception, asyncio.CancelledError):
                loop.call_soon(loop.stop)
                loop.run_forever()

    def end(self) -> None:
        """Close everything, in any state."""
        self.again = lambda: None
        self.fired = 1000
        self.subject = None
        for peer in self.peers:
            with contextlib.suppress(Exception):
                peer.close()
        self.turns()
        self.peers.clear()
        with contextlib.suppress(RuntimeError):
            self.loop.close()
        # The collector closes the sockets of an open loop later, by their numbers, which must not
        # be another loop's by then.
        if not self.loop.is_closed():
            return
        for number, inode in self.numbers:
            with contextlib.suppress(OSError):
                if os.fstat(number).st_ino == inode:
                    os.close(number)


def quietly(function: Callable[..., Any], *arguments: Any) -> None:
    with contextlib.suppress(Exception, asyncio.CancelledError):
        function(*arguments)


def do_nothing(world: World) -> None:
    pass


def close_loop(world: World) -> None:
    quietly(world.loop.close)


def close_subject(world: World) -> None:
    for name in ("abort", "close", "cancel", "stop", "_stop"):
        if world.kind != "Loop" and hasattr(world.subject, name):
            quietly(getattr(world.subject, name))
            return


def lose_connection(world: World) -> None:
    quietly(lambda: world.subject._call_connection_lost(None))


def replace_attributes(world: World) -> None:
    for name in settable(type(world.subject)):
        if name not in UNTOUCHED:
            quietly(setattr, world.subject, name, {"other": 1} if name == "_extra" else None)


def delete_attributes(world: World) -> None:
    for name in settable(type(world.subject)):
        if name not in UNTOUCHED:
            quietly(delattr, world.subject, name)


def enter_again(world: World) -> None:
    quietly(world.again)


def collect(world: World) -> None:
    gc.collect()


def change_number(world: World) -> None:
    """Another open file takes the subject's number, as after close and open elsewhere."""
    number = -1
    for name in ("_sock_fd", "_fileno"):
        number = getattr(world.subject, name, None) or number
    if world.kind == "Loop" and world.peers:
        number = world.peers[0].fileno()
    if not isinstance(number, int) or number < 3:
        return
    quietly(os.close, number)
    first, second = socket.socketpair()
    first.setblocking(False)
    try:
        if first.fileno() != number:
            os.dup2(first.fileno(), number)
        else:
            first.detach()
        world.numbers.append((number, os.fstat(number).st_ino))
    finally:
        world.peers += [first, second]


def interrupt(world: World) -> None:
    raise Interrupt


def fail(world: World) -> None:
    raise Deliberate


def other_thread(world: World) -> None:
    thread = threading.Thread(target=quietly, args=(world.again,), daemon=True)
    thread.start()
    thread.join(5)


def run_loop(world: World) -> None:
    quietly(world.turns, 1)


def drop(world: World) -> None:
    world.subject = None
    gc.collect()


def add_callback(world: World) -> None:
    quietly(lambda: world.subject.add_done_callback(print))


ACTIONS: list[Callable[[World], None]] = [
    *(do_nothing, close_loop, close_subject, lose_connection, replace_attributes),
    *(delete_attributes, enter_again, collect, change_number, interrupt, fail, other_thread),
    *(run_loop, drop, add_callback),
]

# ---- hostile values -------------------------------------------------------------------


class Doing:
    """The base of all hostile values: a world and an action, done at most three times."""

    world: World
    action: Callable[[World], None]

    def do(self) -> None:
        """Three times for each call, so that everything ends."""
        if self.world.fired < 3:
            self.world.fired += 1
            self.action(self.world)


Method = Callable[..., Any]


def does(answer: Method) -> Method:
    """A method that does, and then answers so."""

    def method(self: Any, *arguments: Any, **words: Any) -> Any:
        self.do()
        return answer(self, *arguments, **words)

    return method


def gives(answer: Any) -> Method:
    """Return a method with a constant result."""
    return does(lambda *_, **__: answer)


def yields(*items: Any) -> Method:
    """An `__iter__` that does before each item."""

    def method(self: Any) -> Iterator[Any]:
        for item in items:
            self.do()
            yield item

    return method


def doing(base: type, methods: dict[str, Method]) -> Any:
    return type("Hostile", (Doing, base), methods)


def number_of(self: Any) -> int:
    peers = [peer for peer in self.world.peers if hasattr(peer, "fileno")]
    return peers[0].fileno() if peers else 5


def attribute_of(self: Any, name: str) -> Any:
    if name in ("world", "action"):
        raise AttributeError(name)
    self.do()
    if name == "_loop":
        return self.world.loop
    if name.startswith("__") or name == "get_buffer":
        raise AttributeError(name)
    return lambda *_, **__: self


def ends(self: Any) -> Any:
    raise StopIteration


def end_of(self: Any) -> None:
    with contextlib.suppress(AttributeError):
        self.do()


# Every special method that C may call.
Anything = doing(object, {
    **dict.fromkeys(("__add__", "__radd__", "__sub__", "__rsub__", "__mul__", "__rmul__"),
                    does(lambda self, other: other)),
    **dict.fromkeys(("__eq__", "__lt__", "__le__", "__gt__", "__ge__", "__contains__"),
                    gives(False)),
    "__index__": does(number_of), "fileno": does(number_of), "__hash__": gives(1),
    "__int__": gives(5), "__float__": gives(0.001), "__len__": gives(2), "__getitem__": gives(5),
    # Otherwise readers of the whole stream would never end.
    "__bool__": does(lambda self: self.world.fired < 3),
    "__iter__": yields(b"first", b"second"), "__next__": does(ends),
    "__await__": does(lambda self: iter([None])), "__call__": does(lambda self, *_, **__: self),
    "__repr__": gives("anything"), "__str__": gives("anything"),
    "__fspath__": gives("/nonexistent"), "__getattr__": attribute_of,
    "__buffer__": does(lambda self, flags: memoryview(bytearray(b"hostile bytes"))),
    "__del__": end_of,
})  # fmt: skip
# Equal to everything, and done when the last reference goes.
Last = doing(object, {
    "__call__": lambda self, *_: None, "__eq__": lambda self, other: True,
    "__hash__": lambda self: 1, "__del__": end_of,
})  # fmt: skip
Number = doing(int, {
    "__index__": gives(5), "__int__": gives(5), "__eq__": gives(False), "__hash__": int.__hash__,
})  # fmt: skip
Real = doing(float, {
    **dict.fromkeys(("__float__", "__radd__", "__add__", "__rsub__", "__sub__"), gives(0.001)),
    **dict.fromkeys(("__lt__", "__gt__", "__le__", "__ge__"), gives(True)),
})  # fmt: skip
# The hash is equal to the hash of a key of the transport's extra info.
Text = doing(str, {"__eq__": gives(False), "__hash__": does(lambda self: hash("a"))})
Bytes = doing(bytes, {
    "__buffer__": does(lambda self, flags: memoryview(b"other bytes")),
    "__len__": gives(1 << 20), "__bool__": gives(True),
})  # fmt: skip
Many = doing(list, {"__iter__": yields(b"piece", b"piece", b"piece"), "__len__": gives(3)})
Pair = doing(tuple, {
    "__iter__": yields("127.0.0.1", 9), "__eq__": gives(True), "__hash__": gives(1),
})  # fmt: skip
Mapping = doing(dict, {
    **dict.fromkeys(("keys", "__iter__"), does(lambda self: iter(()))),
    "__getitem__": gives(1), "get": does(lambda self, key, default=None: default),
})  # fmt: skip


class Socket(Doing, socket.socket):
    def fileno(self) -> int:
        with contextlib.suppress(AttributeError):
            self.do()
        return super().fileno()

    def detach(self) -> int:
        return super().detach()

    def getsockname(self) -> Any:
        self.do()
        return super().getsockname()

    def gettimeout(self) -> Any:
        self.do()
        return super().gettimeout()


class Protocol(Doing, asyncio.Protocol):
    def __getattribute__(self, name: str) -> Any:
        if name in ("data_received", "eof_received", "connection_made", "connection_lost"):
            self.do()
        return super().__getattribute__(name)


class Buffering(Doing, asyncio.BufferedProtocol):
    def get_buffer(self, sizehint: int) -> Any:
        self.do()
        return self.shared

    def buffer_updated(self, nbytes: int) -> None:
        self.do()

    shared = bytearray(64)


def a_socket(world: World) -> Socket:
    first, _ = world.pair()
    made = Socket(fileno=os.dup(first.fileno()))
    made.setblocking(False)
    world.peers.append(made)
    return made


def released(world: World) -> memoryview:
    view = memoryview(bytearray(b"gone"))
    view.release()
    return view


def a_function(*_: Any) -> None:
    pass


async def a_coroutine() -> None:
    pass


# The names in valid arguments: each use of one of the second kind makes another object.
NAMES: dict[str, Any] = {
    "function": a_function, "Protocol": asyncio.Protocol, "nan": math.nan, "inf": math.inf,
    "DatagramProtocol": asyncio.DatagramProtocol, "copy_context": contextvars.copy_context,
}  # fmt: skip
MADE: dict[str, Callable[[World], Any]] = {
    "near": lambda world: world.pair()[0], "loop": lambda world: world.loop,
    "coroutine": lambda world: a_coroutine(), "future": lambda world: world.loop.create_future(),
}  # fmt: skip


class Names(dict[str, Any]):
    """The names of an argument's source, for eval."""

    def __init__(self, world: World) -> None:
        super().__init__(NAMES)
        self.world = world

    def __missing__(self, name: str) -> Any:
        return MADE[name](self.world)


def made_of(source: str, world: World) -> Any:
    return eval(source, {}, Names(world))


# Makers of hostile values.
VALUES: dict[str, Callable[[World], Any]] = {
    "anything": lambda world: Anything(),
    "last": lambda world: Last(),
    "number": lambda world: Number(7),
    "real": lambda world: Real(0.01),
    "text": lambda world: Text("socket_"),
    "bytes": lambda world: Bytes(b"some bytes"),
    "many": lambda world: Many([b"a", b"b"]),
    "pair": lambda world: Pair(("127.0.0.1", 9)),
    "mapping": lambda world: Mapping(a=1),
    "socket": a_socket,
    "protocol": lambda world: Protocol(),
    "buffering": lambda world: Buffering(),
}
# Ordinary values, at the limits of the types in C.
EDGES: dict[str, Callable[[World], Any]] = {
    **{source: functools.partial(made_of, source) for source in arguments.LIMITS},
    "type": lambda world: type(world.subject),
    "subject": lambda world: world.subject,
    "loop": lambda world: world.loop,
    "released": released,
    "object": lambda world: object(),
    "uninitialised": lambda world: uninitialised(type(world.subject)),
}


def uninitialised(kind: type) -> Any:
    try:
        return kind.__new__(kind)
    except TypeError:
        return None


def hostile(world: World, value: str, action: Callable[[World], None]) -> Any:
    """A value of that name, which does that."""
    made = (VALUES.get(value) or EDGES[value])(world)
    if isinstance(made, Doing):
        made.world, made.action = world, action  # type: ignore[method-assign]
    return made


# ---- subjects -------------------------------------------------------------------------


def make_stream(world: World) -> Any:
    near, far = world.pair()
    waiter = world.loop.create_future()
    made = _core.StreamTransport(world.loop, near, asyncio.Protocol(), waiter, {"a": 1})
    world.turns(1)
    far.send(b"to be read")
    return made


def make_read_pipe(world: World) -> Any:
    reading, writing = os.pipe()
    near, far = os.fdopen(reading, "rb", 0), os.fdopen(writing, "wb", 0)
    world.peers += [near, far]
    made = _core.ReadPipeTransport(world.loop, near, asyncio.Protocol(), None, {"a": 1})
    world.turns(1)
    far.write(b"to be read")
    return made


def make_write_pipe(world: World) -> Any:
    reading, writing = os.pipe()
    near, far = os.fdopen(writing, "wb", 0), os.fdopen(reading, "rb", 0)
    world.peers += [near, far]
    made = WritePipeTransport(world.loop, near, asyncio.Protocol(), None, {"a": 1})
    world.turns(1)
    return made


def make_datagram(world: World) -> Any:
    near, far = world.pair(socket.SOCK_DGRAM)
    made = _core.DatagramTransport(world.loop, near, asyncio.DatagramProtocol(), extra={"a": 1})
    world.turns(1)
    far.send(b"to be read")
    return made


def make_listener(world: World) -> Any:
    sock = socket.create_server(("127.0.0.1", 0))
    sock.setblocking(False)
    world.peers.append(sock)
    context = contextvars.copy_context()
    made = Listener(world.loop, sock, asyncio.Protocol, None, 10, context)
    world.peers.append(socket.create_connection(sock.getsockname()))
    return made


def make_engine(world: World) -> Any:
    """Make one end of a TLS connection, in the middle of its handshake."""
    near, far = world.pair()
    loop = world.loop
    context = tls_tools.server_context()
    coroutine = loop.connect_accepted_socket(asyncio.Protocol, near, ssl=context)
    task = loop.create_task(coroutine)
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    world.turns(2)
    found = [each for each in gc.get_objects(0) if isinstance(each, _core.TLSEngine)]
    mine = [each for each in found if getattr(each, "_loop", None) is loop]
    if not mine:
        every = [each for each in gc.get_objects() if isinstance(each, _core.TLSEngine)]
        mine = [each for each in every if getattr(each, "_loop", None) is loop]
    far.send(b"\x16\x03\x01\x00\x05hello")
    return mine[0]


def make_sock_op(world: World) -> Any:
    near, _ = world.pair()
    made = world.loop.sock_recv(near, 10)
    if len(world.peers) % 4:
        quietly(made.send, None)
    return made


def make_task(world: World) -> Any:
    async def waits() -> None:
        await world.loop.create_future()

    made = world.loop.create_task(waits())
    world.turns(1)
    return made


def make_future_iterator(world: World) -> Any:
    return world.loop.create_future().__await__()


_streams = itertools.count()
MAKERS: dict[str, Callable[[World], Any]] = {
    "module": lambda world: _core,
    "Loop": lambda world: world.loop,
    "StreamTransport": lambda world: (make_stream, make_write_pipe)[next(_streams) % 2](world),
    "ReadPipeTransport": make_read_pipe,
    "DatagramTransport": make_datagram,
    "Listener": make_listener,
    "TLSEngine": make_engine,
    "Handle": lambda world: world.loop.call_soon(lambda *_: None),
    "TimerHandle": lambda world: world.loop.call_later(60, lambda: None),
    "SockOp": make_sock_op,
    "Future": lambda world: world.loop.create_future(),
    "Task": make_task,
    "FutureIter": make_future_iterator,
}
if hasattr(_core, "ThreadSafeHandle"):
    MAKERS["ThreadSafeHandle"] = lambda world: world.loop.call_soon_threadsafe(lambda: None)


def types_of_extension() -> dict[str, type]:
    """Every type of the extension, by its own name."""
    found = {name: kind for name, kind in vars(_core).items() if isinstance(kind, type)}
    found |= {kind.__name__: kind for kind in (goloop.Future, goloop.Task)}
    loop = goloop.new_event_loop()
    near, far = socket.socketpair()
    try:
        operation = loop.sock_recv(near, 1)
        results = [loop.create_future().__await__(), operation, loop.call_soon(lambda *_: None)]
        results += [loop.call_later(1, lambda: None), loop.call_soon_threadsafe(lambda: None)]
        for result in results:
            if type(result).__module__ in ("goloop._core", "goloop"):
                found.setdefault(type(result).__name__, type(result))
        operation.close()
    finally:
        loop.close()
        near.close()
        far.close()
    return found


def table_of(kind: str) -> dict[str, Any]:
    """Return the table of entries: of the module, or of a type."""
    if kind == "module":
        return {n: v for n, v in vars(_core).items() if not isinstance(v, type)}
    return dict(vars(TYPES[kind]))


def settable(kind: type) -> list[str]:
    """The data descriptors of a type of the extension and its bases there."""
    return [
        name
        for each in kind.__mro__
        if each.__module__ == "goloop._core" or each in TYPES.values()
        for name, value in vars(each).items()
        if isinstance(value, types.GetSetDescriptorType | types.MemberDescriptorType)
    ]


TYPES = types_of_extension()


# Not called from another thread while the loop runs: they run the loop or end it, or make
# another object.
NOT_POLLING = {"_run", "_close_core", "__init__", "__new__", "__del__"}


# ---- the calls ------------------------------------------------------------------------


# Arguments with which a method gets far, by its name: those of all tests, and the extension's own.
PLAUSIBLE = {
    function.partition(".")[2]: arguments.VALID[function]
    for function in (
        "loop.create_task", "loop.sock_recv", "loop.sock_recv_into", "loop.sock_sendall",
        "transport.write", "transport.writelines", "transport.set_protocol", "future.set_result",
        "future.set_exception", "future.add_done_callback", "future.remove_done_callback",
    )
}  # fmt: skip
_OWN = arguments.valid_calls("""
call_soon(function, 1); call_soon_threadsafe(function, 1); call_later(0.001, function, 1)
call_at(0.001, function, 1); add_reader(near, function, 1); add_writer(near, function, 1)
_add_reader(near, function, 1); _add_writer(near, function, 1); remove_reader(near)
remove_writer(near); _remove_reader(near); _remove_writer(near); _ensure_fd_no_transport(near)
_wait_readable(near); _wait_writable(near); _forget_wait(near, future); _write(b'some bytes')
_write_appdata([b'a', b'b']); sendto(b'some bytes', None); set_write_buffer_limits(100, 10)
_set_write_buffer_limits(100, 10); get_extra_info('socket', None)
_fatal_error(OSError(9, 'x'), 'message'); _force_close(None); _close(None); _adopt(near)
_raw_name(True); _call_connection_lost(None); throw(ValueError, ValueError(), None); send(None)
handle(loop, function, 1); drain((loop, near.fileno(), {}, function)); __call__(2, None)
cancel('message'); _peek(future); Task.__init__(coroutine); Loop.__setattr__('name', 1)
Loop.__delattr__('name'); Listener.__init__(loop, near, copy_context(), 5, True)
StreamTransport.__init__(loop, near, Protocol(), future, {'a': 1}, None, copy_context(), True,
                         True, True)
ReadPipeTransport.__init__(loop, near, Protocol(), future, {'a': 1})
DatagramTransport.__init__(loop, near, DatagramProtocol(), None, future, {'a': 1})
""")
PLAUSIBLE |= {function: tuple(given.values()) for function, given in _OWN.items()}
KNOWN = (
    *(TypeError, ValueError, OverflowError, RuntimeError, AttributeError, OSError, LookupError),
    *(BufferError, asyncio.InvalidStateError, asyncio.CancelledError, StopIteration, MemoryError),
    *(Interrupt, NameError, ArithmeticError, ImportError, GeneratorExit),
    AssertionError,  # asyncio's own error for other objects than buffers
)


class Call:
    """A generated call: the object, the name, and the positions of hostile values."""

    def __init__(
        self,
        kind: str,
        name: str,
        how: str,
        at: int,
        value: str,
        action: int,
        polling: bool = False,
    ) -> None:
        self.polling = polling  # called while the loop polls in another thread
        self.kind, self.name, self.how, self.at = kind, name, how, at
        self.value, self.action = value, ACTIONS[action]

    def __str__(self) -> str:
        where = f"{self.kind}.{self.name} {self.how} argument {self.at}"
        when = " while the loop polls" if self.polling else ""
        return f"{where} {self.value} {self.action.__name__}{when}"

    def arguments(self, world: World) -> list[Any]:
        plain = PLAUSIBLE.get(f"{self.kind}.{self.name}", PLAUSIBLE.get(self.name, ()))
        made = [made_of(each, world) for each in plain]
        while len(made) <= self.at:
            made.append(None)
        if self.at >= 0:
            made[self.at] = hostile(world, self.value, self.action)
        return made

    def perform(self, world: World) -> Any:
        subject = world.subject
        if self.how == "set":
            setattr(subject, self.name, hostile(world, self.value, self.action))
            return None
        if self.how == "del":
            delattr(subject, self.name)
            return None
        if self.how == "get":
            return getattr(subject, self.name)
        arguments = self.arguments(world)
        if self.name == "_run" and self.kind == "Loop":
            subject.call_soon(subject.stop)
        if self.name == "__new__":
            return type(subject).__new__(type(subject), *arguments)
        if self.name == "__init__" and self.kind in MAKERS and self.kind != "Loop":
            made = world.subject = uninitialised(TYPES[self.kind])
            made.__init__(*arguments)
            return made
        if self.name == "remove_done_callback":  # the removed callback is hostile, too
            subject.add_done_callback(hostile(world, self.value, self.action))
        # The name may be the base's; the entry of the table is called.
        entry = table_of(self.kind)[self.name]
        if isinstance(entry, staticmethod):
            entry = entry.__func__
            world.again = lambda: entry(*arguments)
        elif self.kind == "module":
            world.again = lambda: entry(*arguments)
        else:
            world.again = lambda: entry(world.subject, *arguments)
            return entry(subject, *arguments)
        return entry(*arguments)


def generate(kinds: list[str], everything: bool, seed: int = 0) -> Iterator[Call]:
    """All calls, in a fixed order; where not everything is asked for, actions take turns.

    The seed says which action has the first turn.
    """
    counter = itertools.count()
    for kind in kinds:
        for name, entry in sorted(table_of(kind).items()):
            if f"{kind}.{name}" in SKIPPED or isinstance(entry, PLAIN_DATA):
                continue
            if not is_entry(entry):
                continue
            for how, at in positions(kind, name, entry):
                yield Call(kind, name, how, at, "None", 0)
                if at < 1 and kind != "module" and name not in NOT_POLLING:
                    yield Call(kind, name, how, at, "None", 0, polling=True)
                if how in ("get", "del"):
                    continue
                for value in VALUES:
                    # Some actions for each value, others for the next; in all, all of them.
                    # 7 has no divisor that ACTIONS has, too.
                    first = next(counter) * 7 + seed
                    many = everything or name == "remove_done_callback"
                    some = range(first, first + (len(ACTIONS) if many else 4))
                    for action in some:
                        yield Call(kind, name, how, at, value, action % len(ACTIONS))
                for value in EDGES:
                    yield Call(kind, name, how, at, value, 0)


def is_field(value: Any) -> bool:
    return isinstance(value, types.GetSetDescriptorType | types.MemberDescriptorType)


def is_entry(value: Any) -> bool:
    """Whether a value of a table is code or a field of the extension's; others are data."""
    fields = (types.GetSetDescriptorType, types.MemberDescriptorType, staticmethod, classmethod)
    return isinstance(value, fields) or (callable(value) and not isinstance(value, type))


def positions(kind: str, name: str, entry: Any) -> list[tuple[str, int]]:
    """How an entry of a table is used: called with something in each position, or set."""
    if is_field(entry):
        return [("get", -1), ("set", 0), ("del", -1)]
    plain = PLAUSIBLE.get(f"{kind}.{name}", PLAUSIBLE.get(name))
    known = len(plain) if plain is not None else 1
    return [("call", at) for at in range(-1, known)]


def use_result(world: World, result: Any) -> None:
    """Use a result as a program would use it."""
    if asyncio.iscoroutine(result) or type(result).__name__ == "SockOp":
        if not world.loop.is_closed():
            task = world.loop.create_task(result)
            world.turns(1)
            task.cancel()
        else:
            result.close()
    repr(result)


def provoke(world: World) -> None:
    """Use the subject in ordinary ways, in its present state."""
    subject = world.subject
    ordinary = [("__repr__",), ("get_extra_info", "socket"), ("write", b"more"), ("is_closing",)]
    ordinary += [("get_write_buffer_size",), ("pause_reading",), ("resume_reading",), ("_run",)]
    if world.kind not in ("Loop", "module"):
        for name, *arguments in ordinary:
            if hasattr(type(subject), name):
                quietly(getattr(subject, name), *arguments)
    for peer in world.peers[1:2]:
        if isinstance(peer, socket.socket):
            quietly(peer.send, b"more to read")
    world.turns(2)
    if world.kind not in ("Loop", "module"):
        for name in ("close", "cancel", "stop"):
            if hasattr(type(subject), name):
                quietly(getattr(subject, name))


class Innocent:
    """A second loop, with a connection that has nothing to do with all this."""

    def __init__(self) -> None:
        # Hostile values name low numbers, and an action closes these descriptors.
        self.others = [os.open(os.devnull, os.O_RDONLY) for _ in range(16)]
        self.loop = goloop.new_event_loop()
        self.near, far = socket.socketpair()
        self.near.setblocking(False)
        self.count = 0
        self.loop.run_until_complete(self.loop.connect_accepted_socket(Echo, far))

    def check(self) -> None:
        self.count += 1
        message = b"%08d" % self.count

        async def echo() -> bytes:
            await self.loop.sock_sendall(self.near, message)
            return await self.loop.sock_recv(self.near, 100)

        answer = self.loop.run_until_complete(echo())
        assert answer == message, (answer, message)


class Runner:
    """Make the calls in sequence, and check their results."""

    def __init__(self, trail: Trail) -> None:
        self.trail = trail
        self.innocent = Innocent()
        self.problems: list[str] = []
        self.seen_system_errors: list[str] = []
        sys.unraisablehook = self.unraisable

    def unraisable(self, told: Any) -> None:
        if isinstance(told.exc_value, SystemError):
            self.seen_system_errors.append(repr(told.exc_value))

    def problem(self, call: object, text: str) -> None:
        self.problems.append(f"{call}: {text}")
        if len(self.problems) <= 50:
            print(f"PROBLEM {call}: {text}", flush=True)

    def one(self, number: int, call: Call) -> None:
        self.trail.note(f"{number} {call}")
        world = World(call.kind)
        inside = number % 2 == 1 and call.name not in ("_run", "_close_core")
        try:
            self.attempt(call, world, inside)
            quietly(provoke, world)
            self.check_loop(call, world)
        except Interrupt:
            pass
        finally:
            errors = world.system_errors + self.seen_system_errors
            if errors:
                self.problem(call, errors[0])
            self.seen_system_errors.clear()
            world.end()
            del world
        if number % 16 == 0:
            gc.collect()
            self.innocent.check()

    def attempt(self, call: Call, world: World, inside: bool) -> None:
        def do() -> None:
            try:
                world.fired = 0
                use_result(world, call.perform(world))
            except KNOWN as error:
                world.see(error)
            except (Exception, SystemError) as error:
                self.problem(call, repr(error))

        if call.polling:
            self.while_polling(world, do)
        elif inside and not world.loop.is_closed():
            world.loop.call_soon(do)
            world.turns(2)
        else:
            do()

    def while_polling(self, world: World, do: Callable[[], None]) -> None:
        """Calls from this thread while the loop waits, or works, in another."""
        started = threading.Event()
        loop = world.loop
        loop.call_soon(started.set)

        def run() -> None:
            quietly(loop.run_forever)

        thread = threading.Thread(target=run)
        thread.start()
        started.wait(SILENT)
        do()
        while thread.is_alive():
            quietly(loop.call_soon_threadsafe, loop.stop)
            thread.join(0.1)

    def check_loop(self, call: object, world: World) -> None:
        """The loop goes on, or is closed."""
        loop = world.loop
        if loop.is_closed() or world.kind == "Loop" or loop.is_running():
            return
        done: list[int] = []
        try:
            loop.call_soon(done.append, 1)
        except RuntimeError:
            return  # the flag of a closed one was removed
        world.turns(2)
        if not done and not loop.is_closed():
            self.problem(call, "the loop does not go on")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--types", nargs="+", choices=list(MAKERS), default=list(MAKERS))
    parser.add_argument("--name", default=None)
    parser.add_argument("--all", action="store_true", help="each action with each value")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="else: whose turn it is")
    parser.add_argument("--first", type=int, default=0, metavar="N")
    parser.add_argument("--one", action="store_true", help="only the first one")
    parser.add_argument("--trail", default=None)
    options = parser.parse_args()
    logging.disable()
    warnings.simplefilter("ignore")
    tls_tools.identity()
    runner = Runner(Trail(options.trail))
    gc.collect()
    gc.freeze()
    faulthandler.enable()
    count = 0
    for number, call in enumerate(generate(options.types, options.all, options.seed)):
        if number < options.first or options.name not in (None, call.name):
            continue
        if count % 50 == 0:
            faulthandler.dump_traceback_later(SILENT, exit=True)
        count += 1
        runner.one(number, call)
        if options.one:
            break
    faulthandler.cancel_dump_traceback_later()
    gc.collect()
    runner.innocent.check()
    print(f"{count} calls, {len(runner.problems)} problems")
    return 1 if runner.problems else 0


if __name__ == "__main__":
    sys.exit(main())
