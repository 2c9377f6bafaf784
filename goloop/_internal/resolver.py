"""getaddrinfo and getnameinfo.

Address literals and services are answered at once by socket.getaddrinfo itself,
told to look up no host name (AI_NUMERICHOST): the answer, its errors, the encoding
of names and the audit event are then the stdlib's.  What is left are host names,
which go to the C library on threads of goloop's, never to the default executor.
"""

from __future__ import annotations

import operator
import socket
from asyncio.log import logger

from .base import CoreLoop

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    AddressInfo = tuple[socket.AddressFamily, socket.SocketKind, int, str, Any]
    SocketName = tuple[str, int] | tuple[str, int, int] | tuple[str, int, int, int]

_NUMERIC_NAME = socket.NI_NUMERICHOST | socket.NI_NUMERICSERV
# As an int: the enum would drop the bits that it does not know of a negative number.
_NUMERIC_HOST = int(socket.AI_NUMERICHOST)


# A number as the enum's member, or as it is where the enum has none: as in socket.getaddrinfo.
_member: Any = socket._intenum_converter  # type: ignore[attr-defined]


def _as_bytes(value: str | bytes | int | None) -> bytes | None:
    """A service as the C library gets it; socket.getaddrinfo has checked it before."""
    if value is None or isinstance(value, bytes):
        return value
    return str(value).encode()


class Resolver(CoreLoop):
    """Name resolution."""

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
        self._check_closed()
        if not self._debug:
            return await self._lookup(host, port, family, type, proto, flags)
        question = f"{host!r}:{port!r}" if isinstance(host, bytes) else f"{host}:{port!r}"
        for name, value in (("family", family), ("type", type), ("proto", proto), ("flags", flags)):
            if value:
                question += f", {name}={value!r}"
        logger.debug("Get address info %s", question)
        start = self.time()
        answer = await self._lookup(host, port, family, type, proto, flags)
        taken = self.time() - start
        report = logger.info if taken >= self.slow_callback_duration else logger.debug
        report(f"Getting address info {question} took {taken * 1e3:.3f}ms: {answer!r}")
        return answer

    async def _lookup(
        self,
        host: bytes | str | None,
        port: bytes | str | int | None,
        family: int,
        type: int,
        proto: int,
        flags: int,
    ) -> list[AddressInfo]:
        flags = operator.index(flags)
        try:
            return list(socket.getaddrinfo(host, port, family, type, proto, flags | _NUMERIC_HOST))
        except socket.gaierror as exc:
            # "No such name" is what a name gets here; everything else is final, and
            # so is this where no name was to be looked up.
            if exc.errno != socket.EAI_NONAME or host is None or flags & _NUMERIC_HOST:
                raise
        name = host if isinstance(host, bytes) else host.encode("idna")
        service = _as_bytes(port)
        # The C library would see the text before a NUL, and look up another name.
        if b"\0" in name:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        if service is not None and b"\0" in service:
            raise socket.gaierror(socket.EAI_SERVICE, "Servname not supported for ai_socktype")
        answer = await self._resolve(name, service, flags, family, type, proto)
        return [
            (_member(family, socket.AddressFamily), _member(kind, socket.SocketKind), *rest)
            for family, kind, *rest in answer
        ]

    async def getnameinfo(
        self,
        sockaddr: tuple[str, int] | tuple[str, int, int] | tuple[str, int, int, int],
        flags: int = 0,
    ) -> tuple[str, str]:
        """socket.getnameinfo that does not block the loop."""
        if operator.index(flags) & _NUMERIC_NAME == _NUMERIC_NAME:
            # Nothing is looked up.
            self._check_closed()
            return socket.getnameinfo(sockaddr, flags)  # type: ignore[arg-type]
        getnameinfo: Any = socket.getnameinfo
        name: tuple[str, str] = await self.run_in_executor(None, getnameinfo, sockaddr, flags)
        return name
