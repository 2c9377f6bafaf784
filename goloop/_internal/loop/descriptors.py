"""Whose a descriptor's number is, for the few that goloop opens for itself in Python.

Somebody may close them (os.closerange in a program that makes itself a daemon), and the numbers are
other files' then.  So each is compared with what it named at first before it is written to or
closed: docs/architecture.md, "Leases", has the table of all.
"""

from __future__ import annotations

import os
import socket

File = tuple[int, int]


def file_of(fd: int) -> File:
    """Which file a number names: its device and inode; (0, 0) where it names none."""
    try:
        facts = os.fstat(fd)
    except OSError:
        return 0, 0
    return facts.st_dev, facts.st_ino


def close_own(fd: int, file: File) -> None:
    """Close a descriptor if it still is that file."""
    if file_of(fd) == file:
        os.close(fd)


def close_own_socket(sock: socket.socket, file: File) -> None:
    """Close a socket if its number still is that file; else it has no number any more."""
    if file_of(sock.fileno()) == file:
        sock.close()
    else:
        sock.detach()
