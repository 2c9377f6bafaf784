"""getaddrinfo and getnameinfo.

socket.getaddrinfo resolves address literals and services immediately, with AI_NUMERICHOST so that
it looks up no host name. Host names are resolved by threads of the loop (resolver_threads.py),
never by the default executor.

That applies to the socket module's own functions only. If the program has replaced such a
function or BaseEventLoop's method, or if the loop overrides run_in_executor, the lookup is
asyncio's: the function is called in a thread of the default executor.
"""

from __future__ import annotations

import asyncio.base_events
import operator
import socket
import time
from asyncio.log import logger
from types import BuiltinFunctionType, FunctionType

from ..loop.base import CoreLoop
from .resolver_threads import ResolverThreads  # at the top: imports may fail later, after chroot()

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .resolver_threads import Question

    AddressInfo = tuple[socket.AddressFamily, socket.SocketKind, int, str, Any]

_Base: Any = asyncio.base_events.BaseEventLoop

_NUMERIC_NAME = socket.NI_NUMERICHOST | socket.NI_NUMERICSERV
# As an int: `flags | enum` would drop unknown bits of a negative number.
_NUMERIC_HOST = int(socket.AI_NUMERICHOST)
# All characters of an IPv4 address, in any form that libc accepts.
_IPV4 = "0123456789abcdefABCDEFxX."


def _is_replaced(name: str) -> bool:
    """Return true if a program has replaced this method of asyncio's BaseEventLoop."""
    method = vars(_Base).get(name)
    own = type(method) is FunctionType and method.__globals__ is vars(asyncio.base_events)
    return not own


def _contains(text: object, character: str) -> bool:
    """Return true if the text, bytes or str, contains the character."""
    if isinstance(text, bytes):
        return character.encode() in text
    return isinstance(text, str) and character in text


def _may_be_literal(host: Any) -> bool:
    """Return false if `host` certainly is a host name and not an address literal."""
    if not isinstance(host, (str, bytes)) or _contains(host, ":") or _contains(host, "\0"):
        return True
    return not (host.strip(_IPV4) if isinstance(host, str) else host.strip(_IPV4.encode()))


def _check_nul(host: bytes | str | None, port: bytes | str | int | None) -> None:
    """Raise gaierror for a NUL: libc would look up the text before it, which is another name."""
    if _contains(host, "\0"):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    if _contains(port, "\0"):
        raise socket.gaierror(socket.EAI_SERVICE, "Servname not supported for ai_socktype")


class Resolver(CoreLoop):
    """Resolves names: getaddrinfo() and getnameinfo()."""

    _resolver_threads: ResolverThreads | None = None

    async def getaddrinfo(  # type: ignore[override]
        self,
        host: bytes | str | None,
        port: bytes | str | int | None,
        *,
        family: int = 0,
        type: int = 0,
        proto: int = 0,
        flags: int = 0,
    ) -> list[AddressInfo]:
        """Resolve a host and a port like socket.getaddrinfo, without blocking the loop.

        Raises socket.gaierror as that function does. `host` and `port` may be None.
        """
        if (
            getattr(socket.getaddrinfo, "__globals__", None) is not vars(socket)
            or not self._has_own_threads()
            or _is_replaced("getaddrinfo")
        ):
            found: list[AddressInfo] = await _Base.getaddrinfo(
                self, host, port, family=family, type=type, proto=proto, flags=flags
            )
            return found
        self._check_closed()
        if not self._debug:
            return await self._resolve(host, port, family, type, proto, flags)
        question = f"{host!r}:{port!r}" if isinstance(host, bytes) else f"{host}:{port!r}"
        for name, value in (("family", family), ("type", type), ("proto", proto), ("flags", flags)):
            if value:
                question += f", {name}={value!r}"
        logger.debug("Get address info %s", question)
        start = self.time()
        answer = await self._resolve(host, port, family, type, proto, flags)
        taken = self.time() - start
        report = logger.info if taken >= self.slow_callback_duration else logger.debug
        report(f"Getting address info {question} took {taken * 1e3:.3f}ms: {answer!r}")
        return answer

    async def _resolve(
        self,
        host: bytes | str | None,
        port: bytes | str | int | None,
        family: int,
        type: int,
        proto: int,
        flags: int,
    ) -> list[AddressInfo]:
        """Return the addresses of a host: convert a literal here, look up a name in a thread.

        Raises socket.gaierror, also for a NUL in host or port.
        """
        ask: Any = socket.getaddrinfo
        found: list[AddressInfo]
        if _may_be_literal(host):
            flags = operator.index(flags)
            try:
                found = ask(host, port, family, type, proto, flags | _NUMERIC_HOST)
                return found
            except socket.gaierror as exc:
                # EAI_NONAME: `host` may be a host name, to be looked up below, unless a numeric
                # host was required. All other errors are final.
                if exc.errno != socket.EAI_NONAME or host is None or flags & _NUMERIC_HOST:
                    raise
        _check_nul(host, port)
        found = await self._look_up(ask, host, port, family, type, proto, flags)
        return found

    async def getnameinfo(
        self,
        sockaddr: tuple[str, int] | tuple[str, int, int] | tuple[str, int, int, int],
        flags: int = 0,
    ) -> tuple[str, str]:
        """Return the host and service of an address like socket.getnameinfo, without blocking.

        Raises OSError as that function does, such as socket.gaierror.
        """
        ask: Any = socket.getnameinfo
        name: tuple[str, str]
        if (
            not isinstance(ask, BuiltinFunctionType)
            or not self._has_own_threads()
            or _is_replaced("getnameinfo")
        ):
            name = await _Base.getnameinfo(self, sockaddr, flags)
            return name
        self._check_closed()
        if operator.index(flags) & _NUMERIC_NAME == _NUMERIC_NAME:
            name = ask(sockaddr, flags)  # numeric results need no lookup
        else:
            name = await self._look_up(ask, sockaddr, flags)
        return name

    def _has_own_threads(self) -> bool:
        """Return true if run_in_executor is asyncio's, so that threads of the loop may be used."""
        if "run_in_executor" in vars(self):
            return False
        return type(self).run_in_executor is _Base.run_in_executor

    def _end_resolver_threads(self) -> None:
        """End the resolver threads of a loop that is being closed."""
        if self._resolver_threads is not None:
            self._resolver_threads.close()

    async def _look_up(self, ask: Callable[..., Any], *args: Any) -> Any:
        """Return the result of `ask(*args)`, called in a resolver thread; raise its exception.

        RuntimeError: the loop has no resolver thread, and none can be started.
        """
        if self._resolver_threads is None:
            self._resolver_threads = ResolverThreads(self._finish_lookup)
        future = self.create_future()
        self._resolver_threads.ask(future, ask, *args)
        self._count("dns_in_flight")
        try:
            return await future
        finally:
            self._count("dns_in_flight", -1)
            del future  # the traceback of the future's exception refers to this frame

    @staticmethod
    def _finish_lookup(question: Question, answer: Any, failed: BaseException | None) -> None:
        """Count a finished lookup and set the result of its future, in the loop's thread.

        A future that is done, such as a cancelled one, stays unchanged.
        """
        future, since, _, _ = question
        loop: Any = future.get_loop()
        loop._record_lookup(max(0, time.monotonic_ns() - since))
        if failed is not None:
            loop._count("dns_failures")
        if future.done():
            return
        if failed is None:
            future.set_result(answer)
        else:
            future.set_exception(failed)
