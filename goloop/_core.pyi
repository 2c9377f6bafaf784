"""Types of the C extension; its sources are in pybridge/core/."""

import asyncio
import socket
import sys
from asyncio import Future
from asyncio import Handle as _AsyncioHandle
from asyncio import TimerHandle as _AsyncioTimerHandle
from asyncio.transports import _FlowControlMixin
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context
from types import FrameType
from typing import Any, TypeVar, TypeVarTuple, final

from _typeshed import FileDescriptorLike, ReadableBuffer, StrOrBytesPath, WriteableBuffer
from typing_extensions import disjoint_base

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")

abi_version: int

def set_library_path(path: StrOrBytesPath, /) -> None: ...
def library_info() -> dict[str, Any]: ...
def _before_fork() -> None: ...
def _shut_door() -> None: ...
def _fail_call(call: str, errno: int, after: int = 0, times: int = 1) -> None: ...
def _simulate(request: bytearray) -> int: ...

if sys.version_info >= (3, 13):
    def swap_wakeup_fd(fd: int, /) -> int: ...

def _layout() -> dict[str, int] | None: ...
def _peek(future: Future[Any], /) -> dict[str, int]: ...
def _thread_words() -> tuple[tuple[int, ...], int, int]: ...
def _enable_tasks(
    thread_offsets: tuple[int, int, int], objects: tuple[Any, ...], /
) -> tuple[type[Future[Any]], type[asyncio.Task[Any]]]: ...
def _step(task: asyncio.Task[Any], error: BaseException | None, /) -> None: ...
def _note_collection(phase: str, info: dict[str, int], /) -> None: ...
def _set_asker(fd: int, /) -> None: ...
def _next_asker(ino: int, /) -> int: ...
def _thread_stack(ident: int, /) -> list[tuple[str, str, int]]: ...
def _collected() -> float: ...
def _profile() -> str: ...
def _open_loops() -> list[Any]: ...
def _live_tasks() -> list[asyncio.Task[Any]]: ...
def _begin_tls(
    file: str | bool | None,
    types: tuple[type, type],
    classes: tuple[type, type],
    objects: tuple[Any, ...],
    /,
) -> str | None: ...
def replaced_methods(sock: object) -> list[str]: ...

@final
class Handle(_AsyncioHandle): ...

@final
class TimerHandle(_AsyncioTimerHandle): ...

if sys.version_info >= (3, 14):
    from asyncio.events import _ThreadSafeHandle

    @final
    class ThreadSafeHandle(_ThreadSafeHandle): ...

@disjoint_base
class Loop:
    _closed: bool
    _stopping: bool
    _debug: bool
    _thread: int
    _current_handle: _AsyncioHandle | None
    def __init__(self) -> None: ...
    def call_soon(
        self,
        callback: Callable[[*_Ts], object],
        *args: *_Ts,
        context: Context | None = None,
    ) -> _AsyncioHandle: ...
    def call_soon_threadsafe(
        self,
        callback: Callable[[*_Ts], object],
        *args: *_Ts,
        context: Context | None = None,
    ) -> _AsyncioHandle: ...
    def call_later(
        self,
        delay: float,
        callback: Callable[[*_Ts], object],
        *args: *_Ts,
        context: Context | None = None,
    ) -> _AsyncioTimerHandle: ...
    def call_at(
        self,
        when: float,
        callback: Callable[[*_Ts], object],
        *args: *_Ts,
        context: Context | None = None,
    ) -> _AsyncioTimerHandle: ...
    def time(self) -> float: ...
    def is_running(self) -> bool: ...
    if sys.version_info >= (3, 13):
        def create_task(
            self,
            coro: Generator[Any, None, _T] | Coroutine[Any, Any, _T],
            *,
            name: object = None,
            context: Context | None = None,
            eager_start: bool | None = None,
            **kwargs: Any,
        ) -> asyncio.Task[_T]: ...
    else:
        def create_task(
            self,
            coro: Generator[Any, None, _T] | Coroutine[Any, Any, _T],
            *,
            name: object = None,
            context: Context | None = None,
        ) -> asyncio.Task[_T]: ...

    def create_future(self) -> Future[Any]: ...
    def add_reader(
        self, fd: FileDescriptorLike, callback: Callable[[*_Ts], Any], *args: *_Ts
    ) -> None: ...
    def add_writer(
        self, fd: FileDescriptorLike, callback: Callable[[*_Ts], Any], *args: *_Ts
    ) -> None: ...
    def remove_reader(self, fd: FileDescriptorLike) -> bool: ...
    def remove_writer(self, fd: FileDescriptorLike) -> bool: ...
    def sock_recv(self, sock: socket.socket, n: int) -> Coroutine[Any, Any, bytes]: ...
    def sock_recv_into(
        self, sock: socket.socket, buf: WriteableBuffer
    ) -> Coroutine[Any, Any, int]: ...
    def sock_sendall(
        self, sock: socket.socket, data: ReadableBuffer
    ) -> Coroutine[Any, Any, None]: ...
    def _add_reader(
        self, fd: FileDescriptorLike, callback: Callable[..., Any], /, *args: Any
    ) -> _AsyncioHandle: ...
    def _add_writer(
        self, fd: FileDescriptorLike, callback: Callable[..., Any], /, *args: Any
    ) -> _AsyncioHandle: ...
    def _remove_reader(self, fd: FileDescriptorLike, /) -> bool: ...
    def _remove_writer(self, fd: FileDescriptorLike, /) -> bool: ...
    def _ensure_fd_no_transport(self, fd: FileDescriptorLike, /) -> None: ...
    def _wait_readable(self, fd: FileDescriptorLike, /) -> Future[None]: ...
    def _wait_writable(self, fd: FileDescriptorLike, /) -> Future[None]: ...
    def _waits(self, users: int, fd: int, /) -> bool | None: ...
    def _end_waits(self, users: int, fd: int, /) -> None: ...
    def _forget_wait(self, fd: FileDescriptorLike, future: Future[Any], /) -> None: ...
    def _check_closed(self) -> None: ...
    def _registered(self) -> list[object]: ...
    def _all_transports(self) -> list[Any]: ...
    def _run(self) -> None: ...
    def _wake(self) -> None: ...
    def _close_core(self) -> None: ...
    def _describe(self) -> str: ...
    def _counted(self) -> bytes: ...
    def _block(
        self,
    ) -> tuple[
        int,
        float,
        float,
        float | None,
        int,
        float,
        list[tuple[float, list[tuple[str, str, int]]]],
    ]: ...
    def _block_told(self, serial: int, how: int, /) -> None: ...
    def _set_watchdog(
        self, limit: float, end: float, every: float, slow: float, number: int, /
    ) -> None: ...
    _reactor: int
    _iterations: int

# What the base of transports has. No class of its own: each has asyncio's bases.
class _Transport:
    _closing: bool
    _paused: bool
    _context: Context | None
    _loop: Any
    _owner: Any
    _protocol: Any
    @property
    def _number(self) -> int: ...
    @property
    def _sock_fd(self) -> int: ...
    @property
    def _polled(self) -> tuple[bool, bool, int]: ...

@disjoint_base
class StreamTransport(_FlowControlMixin, _Transport):
    max_size: int
    _empty_waiter: Any
    _exposed: bool
    _counted: bool
    _lazy: bool
    def __init__(
        self,
        loop: Loop,
        sock: socket.socket,
        protocol: asyncio.BaseProtocol,
        waiter: Future[Any] | None = None,
        extra: dict[str, Any] | None = None,
        server: Any = None,
        context: Context | None = None,
        exposed: bool = False,
    ) -> None: ...
    def _flush(self) -> None: ...
    def _adopt(self, sock: socket.socket, /) -> bool: ...
    def _raw_name(self, peer: bool, /) -> Any: ...

@disjoint_base
class ReadPipeTransport(asyncio.ReadTransport, _Transport):
    max_size: int
    def __init__(
        self,
        loop: Loop,
        pipe: Any,
        protocol: asyncio.BaseProtocol,
        extra: dict[str, Any] | None = None,
        watch_end: bool = False,
    ) -> None: ...

@disjoint_base
class WritePipeTransport(_FlowControlMixin, _Transport):
    _exposed: bool
    def __init__(
        self,
        loop: Loop,
        pipe: Any,
        protocol: asyncio.BaseProtocol,
        extra: dict[str, Any] | None = None,
        watch_end: bool = False,
        exposed: bool = False,
    ) -> None: ...

@disjoint_base
class DatagramTransport(_FlowControlMixin, asyncio.DatagramTransport, _Transport):
    max_size: int
    _parcels: deque[tuple[bytes, Any]] | None
    _buffer_size: int
    _maybe_pause_protocol: Callable[[], None]
    _maybe_resume_protocol: Callable[[], None]
    @property
    def _address(self) -> Any: ...
    @property
    def _conn_lost(self) -> int: ...
    def _fatal_error(self, exc: BaseException, message: str = ...) -> None: ...
    def _send(self, data: bytes, addr: Any, /) -> bool: ...
    def _sent_all(self) -> None: ...
    def __init__(
        self,
        loop: Loop,
        sock: socket.socket,
        protocol: asyncio.DatagramProtocol,
        address: Any = None,
        waiter: Future[Any] | None = None,
        extra: dict[str, Any] | None = None,
        family: int = 0,
        connected: bool = False,
        nameless: bool = False,
    ) -> None: ...

@disjoint_base
class Listener:
    def __init__(
        self, loop: Loop, sock: socket.socket, context: Context, most: int, tcp: bool
    ) -> None: ...
    def stop(self) -> None: ...
    def _take(
        self, cls: type, protocol: asyncio.BaseProtocol, server: Any, context: Context, /
    ) -> StreamTransport: ...
    def _detach(self) -> int: ...
    @property
    def _peer(self) -> Any: ...
    @property
    def _number(self) -> int: ...
    @property
    def _open(self) -> bool: ...

@disjoint_base
class TLSEngine:
    _state: Any
    _app_protocol: Any
    _transport: Any
    _sslobj: Any
    _incoming: Any
    _outgoing: Any
    _write_backlog: Any
    _app_protocol_get_buffer: Any
    _app_protocol_buffer_updated: Any
    _app_protocol_is_buffer: bool
    _app_reading_paused: bool
    _read_held: bool
    _ssl_reading_paused: bool
    _ssl_writing_paused: bool
    _app_writing_paused: bool
    _write_buffer_size: int
    _incoming_high_water: int
    _incoming_low_water: int
    _outgoing_high_water: int
    _outgoing_low_water: int
    def _advance_handshake(self, watched: bool, /) -> bool | None: ...
    def _do_read(self) -> None: ...
    def _process_outgoing(self) -> None: ...
    def _write_appdata(self, list_of_data: Any, /) -> None: ...
    def _write(self, data: ReadableBuffer, /) -> None: ...

@final
class SignalNotes:
    def __new__(cls) -> SignalNotes: ...
    def __call__(self, signum: int, frame: FrameType | None, /) -> None: ...
    def drain(
        self,
        what: tuple[Loop, int, dict[int, _AsyncioHandle], Callable[[int], object]],
        /,
    ) -> None: ...
    @staticmethod
    def handle(
        loop: Loop, callback: Callable[[*_Ts], object], /, *args: *_Ts
    ) -> _AsyncioHandle: ...

# What sock_recv and its kin return; there is no other way to one.
@final
class SockOp(Coroutine[Any, Any, Any]):
    __name__: str
    __qualname__: str
    cr_await: Any
    cr_code: Any
    cr_frame: Any
    cr_origin: Any
    cr_running: bool
    def __await__(self) -> Generator[Any, Any, Any]: ...
    def __iter__(self) -> SockOp: ...
    def __next__(self) -> Any: ...
    def send(self, value: Any, /) -> Any: ...
    def throw(self, type: Any, value: Any = None, traceback: Any = None, /) -> Any: ...
    def close(self) -> None: ...
