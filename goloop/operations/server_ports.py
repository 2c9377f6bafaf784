"""The ports of measured servers: free ones, and whether it is the server that listens there."""

from __future__ import annotations

import contextlib
import errno
import functools
import ipaddress
import os
import re
import socket
import sys

from . import proc_stat
from .keeper import session_pids

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

_LISTEN = "0A"  # the state in /proc/net/tcp
_IN_USE = re.compile(
    f"EADDRINUSE|address (is )?already in use|{re.escape(os.strerror(errno.EADDRINUSE))}",
    re.IGNORECASE,
)


class Port:
    """A free port, which stays reserved until release().

    A socket holds it that does not listen. The system then gives the number to no other program
    that asks for any free port, but to the server, which asks for this one and sets SO_REUSEADDR
    or SO_REUSEPORT, as nearly all servers do. On other systems than Linux such a socket would keep
    the server away, too, so the port is not reserved.
    """

    def __init__(self, host: str, *, reserve: bool) -> None:
        """Choose a port; raises OSError if the host is not an address of this machine."""
        self._held: socket.socket | None = socket.socket(_family(host))
        try:
            if reserve and sys.platform == "linux":
                self._held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                with contextlib.suppress(OSError):
                    self._held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            self._held.bind((host, 0))
            self.number: int = self._held.getsockname()[1]
        except BaseException:
            self.release()
            raise
        if not reserve or sys.platform != "linux":
            self.release()

    @property
    def is_reserved(self) -> bool:
        """True until release(), if the port is reserved at all."""
        return self._held is not None

    def __enter__(self) -> Port:
        """Return the port."""
        return self

    def __exit__(self, *error: object) -> None:
        """End the reservation."""
        self.release()

    def release(self) -> None:
        """End the reservation."""
        if self._held is not None:
            self._held.close()
            self._held = None


def _family(host: str) -> socket.AddressFamily:
    """Return the family of a host's address."""
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def is_in_use(host: str, port: int) -> bool:
    """Return true if a program listens on this port, also one that accepts no connections."""
    with socket.socket(_family(host)) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False


def says_in_use(output: str) -> bool:
    """Return true if a program's output says that its port is in use."""
    return _IN_USE.search(output) is not None


def accepting_address(host: str, port: int) -> tuple[Any, ...] | None:
    """Return the address at which a program accepts connections to this host; None if none does."""
    with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=1) as found:
        peer: tuple[Any, ...] = found.getpeername()
        return peer
    return None


# ---- the listening process -----------------------------------------------------------------------


def family_of(pid: int) -> list[int]:
    """Return a process, the processes of the session that it leads, and all their descendants."""
    found = {pid, *session_pids(pid)}
    parents: dict[int, list[int]] = {}
    with contextlib.suppress(OSError):
        for name in os.listdir("/proc"):
            if name.isdigit() and (parent := proc_stat.parent(name)) is not None:
                parents.setdefault(parent, []).append(int(name))
    new = list(found)
    while new:
        new = [child for each in new for child in parents.get(each, ()) if child not in found]
        found.update(new)
    return sorted(found)


def is_listener(address: tuple[Any, ...], pids: Iterable[int]) -> bool | None:
    """Return true if connections to an address reach one of these processes.

    False means that they reach another process, None that the system does not tell.
    """
    if not _can_identify_listeners():
        return None
    wanted = _listening_inodes(address)
    if not wanted:
        return None
    for pid in pids:
        try:
            wanted -= _socket_inodes(pid)
        except PermissionError:
            return None  # a server that has changed its user
        except OSError:
            continue  # the process has ended
    return not wanted


@functools.cache
def _can_identify_listeners() -> bool:
    """Return true if this system tells that this process listens on a port of its own."""
    with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", 0)) as own:
        found = _listening_inodes(own.getsockname())
        return bool(found) and found <= _socket_inodes(os.getpid())
    return False


def _socket_inodes(pid: int) -> set[str]:
    """Return the inodes of a process's open sockets; raises OSError."""
    found = set()
    for name in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            target = os.readlink(f"/proc/{pid}/fd/{name}")
            if target.startswith("socket:["):
                found.add(target[len("socket:[") : -1])
    return found


def _listening_inodes(address: tuple[Any, ...]) -> set[str]:
    """Return the inodes of the sockets that accept connections to an address: several share them.

    As in the kernel, a socket of that address has precedence over one of all addresses, and a
    socket of the same family over one of IPv6 for both.
    """
    host = ipaddress.ip_address(str(address[0]).partition("%")[0])
    anywhere = ["0.0.0.0", "::"] if host.version == 4 else ["::"]
    mapped = [f"::ffff:{host}"] if host.version == 4 else []
    by_host: dict[str, set[str]] = {}
    for where, port, inode in _listening_sockets():
        if port == address[1]:
            by_host.setdefault(where, set()).add(inode)
    for each in (str(host), *mapped, *anywhere):
        key = str(ipaddress.ip_address(each))
        if key in by_host:
            return by_host[key]
    return set()


def listening_addresses(pids: Iterable[int]) -> list[tuple[str, int]]:
    """Return host and port of each TCP socket on which one of these processes listens.

    [] if the system does not tell.
    """
    own: set[str] = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            own |= _socket_inodes(pid)
    return sorted({(host, port) for host, port, inode in _listening_sockets() if inode in own})


def _listening_sockets() -> Iterator[tuple[str, int, str]]:
    """Yield host, port and inode of each socket that listens; none without /proc."""
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(OSError), open(f"/proc/net/{name}") as file:
            for line in file:
                fields = line.split()
                if len(fields) > 9 and fields[3] == _LISTEN:
                    where, _, port = fields[1].partition(":")
                    yield _decoded(where), int(port, 16), fields[9]


def _decoded(text: str) -> str:
    """Return an address of /proc/net/tcp, whose words of 32 bits are in the machine's order."""
    raw = bytes.fromhex(text)
    words = [raw[at : at + 4] for at in range(0, len(raw), 4)]
    if sys.byteorder == "little":
        words = [word[::-1] for word in words]
    return str(ipaddress.ip_address(b"".join(words)))
