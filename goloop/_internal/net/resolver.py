"""getaddrinfo and getnameinfo.

Address literals and services are answered at once by socket.getaddrinfo itself, told to look
up no host name (AI_NUMERICHOST).  What is left are names, which go to threads of the loop's
own (resolver_threads.py), never to the default executor.

That is for the socket module's own functions.  One that the program has put in their place may
do anything, and takes asyncio's way: a thread of the default executor; and so does all
in a loop that has a run_in_executor of its own.
"""

from __future__ import annotations

import asyncio.base_events
import operator
import socket
import time
from asyncio.log import logger
from types import BuiltinFunctionType

from ..loop.base import CoreLoop
from .resolver_threads import LookUps  # here: a program may have no files by its first look-up

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .resolver_threads import Question

    AddressInfo = tuple[socket.AddressFamily, socket.SocketKind, int, str, Any]
    SocketName = tuple[str, int] | tuple[str, int, int] | tuple[str, int, int, int]

_Base: Any = asyncio.base_events.BaseEventLoop

_NUMERIC_NAME = socket.NI_NUMERICHOST | socket.NI_NUMERICSERV
# As an int: the enum would drop the bits that it does not know of a negative number.
_NUMERIC_HOST = int(socket.AI_NUMERICHOST)
# All characters of an IPv4 address; in any form that libc knows.
_IPV4 = "0123456789abcdefABCDEFxX."


def _has(text: object, character: str) -> bool:
    if isinstance(text, bytes):
        return character.encode() in text
    return isinstance(text, str) and character in text


def _may_be_literal(host: Any) -> bool:
    """False where it is a name without doubt."""
    if not isinstance(host, (str, bytes)) or _has(host, ":") or _has(host, "\0"):
        return True
    return not (host.strip(_IPV4) if isinstance(host, str) else host.strip(_IPV4.encode()))


def _check_nul(host: bytes | str | None, port: bytes | str | int | None) -> None:
    """libc would see the text before a NUL, and look up another name."""
    if _has(host, "\0"):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    if _has(port, "\0"):
        raise socket.gaierror(socket.EAI_SERVICE, "Servname not supported for ai_socktype")


class Resolver(CoreLoop):
    """Name resolution."""

    _look_ups: LookUps | None = None

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
        """socket.getaddrinfo that does not block the loop."""
        if (
            getattr(socket.getaddrinfo, "__globals__", None) is not vars(socket)
            or not self._has_own_threads()
        ):
            found: list[AddressInfo] = await _Base.getaddrinfo(
                self, host, port, family=family, type=type, proto=proto, flags=flags
            )
            return found
        self._check_closed()
        if not self._debug:
            return await self._answer(host, port, family, type, proto, flags)
        question = f"{host!r}:{port!r}" if isinstance(host, bytes) else f"{host}:{port!r}"
        for name, value in (("family", family), ("type", type), ("proto", proto), ("flags", flags)):
            if value:
                question += f", {name}={value!r}"
        logger.debug("Get address info %s", question)
        start = self.time()
        answer = await self._answer(host, port, family, type, proto, flags)
        taken = self.time() - start
        report = logger.info if taken >= self.slow_callback_duration else logger.debug
        report(f"Getting address info {question} took {taken * 1e3:.3f}ms: {answer!r}")
        return answer

    async def _answer(
        self,
        host: bytes | str | None,
        port: bytes | str | int | None,
        family: int,
        type: int,
        proto: int,
        flags: int,
    ) -> list[AddressInfo]:
        ask: Any = socket.getaddrinfo
        found: list[AddressInfo]
        if _may_be_literal(host):
            flags = operator.index(flags)
            try:
                found = ask(host, port, family, type, proto, flags | _NUMERIC_HOST)
                return found
            except socket.gaierror as exc:
                # "No such name" is what a name gets here; everything else is final, and
                # so is this where no name was to be looked up.
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
        """socket.getnameinfo that does not block the loop."""
        ask: Any = socket.getnameinfo
        name: tuple[str, str]
        if not isinstance(ask, BuiltinFunctionType) or not self._has_own_threads():
            name = await _Base.getnameinfo(self, sockaddr, flags)
            return name
        self._check_closed()
        if operator.index(flags) & _NUMERIC_NAME == _NUMERIC_NAME:
            name = ask(sockaddr, flags)  # nothing is looked up
        else:
            name = await self._look_up(ask, sockaddr, flags)
        return name

    def _has_own_threads(self) -> bool:
        """Whether the loop's run_in_executor is asyncio's, and nothing is to be seen of it."""
        if "run_in_executor" in vars(self):
            return False
        return type(self).run_in_executor is _Base.run_in_executor

    def _end_look_ups(self) -> None:
        if self._look_ups is not None:
            self._look_ups.close()

    async def _look_up(self, ask: Callable[..., Any], *args: Any) -> Any:
        if self._look_ups is None:
            self._look_ups = LookUps(self._looked_up)
        future = self.create_future()
        self._look_ups.ask(future, ask, *args)
        self._count("dns_in_flight")
        try:
            return await future
        finally:
            self._count("dns_in_flight", -1)
            del future  # its error knows this frame

    @staticmethod
    def _looked_up(question: Question, answer: Any, failed: BaseException | None) -> None:
        future, since, _, _ = question
        loop: Any = future.get_loop()
        loop._note_lookup(time.monotonic_ns() - since)
        if failed is not None:
            loop._count("dns_failures")
        if future.done():
            return
        if failed is None:
            future.set_result(answer)
        else:
            future.set_exception(failed)
