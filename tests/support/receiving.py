"""The calls of a loop that receive from a socket, by their names."""

from __future__ import annotations

import socket
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

import pytest

Call = Callable[[Any, socket.socket], Coroutine[Any, Any, Any]]


def receivers(size: int) -> dict[str, Call]:
    """Return calls that each receive up to `size` bytes."""
    return {
        "sock_recv": lambda loop, sock: loop.sock_recv(sock, size),
        "sock_recv_into": lambda loop, sock: loop.sock_recv_into(sock, bytearray(size)),
        "sock_recvfrom": lambda loop, sock: loop.sock_recvfrom(sock, size),
        "sock_recvfrom_into": lambda loop, sock: loop.sock_recvfrom_into(sock, bytearray(size)),
        "sock_recvmsg": lambda loop, sock: loop.sock_recvmsg(sock, size),
    }


def on_both_loops(names: Iterable[str]) -> list[Any]:
    """Return the names as parameters; names that asyncio lacks are for goloop's loop alone."""
    return [
        pytest.param(name, marks=pytest.mark.goloop_only("asyncio has no such method"))
        if name == "sock_recvmsg"
        else name
        for name in names
    ]
