"""The load generator in Python, of the modes in which a client costs little beside the server.

    plain_load.py MODE ADDRESS CONNECTIONS SIZE WARMUP SECONDS

`idle` opens CONNECTIONS that send nothing, `feed` and `feed-wide` write to the FIFO at ADDRESS,
`drain` reads from it.  A message of a pipe is SIZE bytes.  The kernel moves the bytes of a pipe, so
that nothing is copied here, and none is checked: the tests of the pipe transports do.  As
ceiling/epoll_load.c, the program writes "begin" and "end" at the ends of the window, waits for a
line after each, and writes its result as JSON.
"""

from __future__ import annotations

import fcntl
import json
import os
import resource
import socket
import sys
import time
from collections.abc import Callable

# Connections that are opened before the others: they pay for the server's one-time allocations.
BATCH = 500
# The bytes of one call, and the capacity of a wide pipe: the usual maximum of pipe-max-size.
BLOCK, WIDE = 64 * 1024, 1024 * 1024


def pause(word: str) -> None:
    """Say where the window is, and wait until the runner has taken its accounts."""
    print(word, flush=True)
    sys.stdin.readline()


def hold(port: int, connections: int, size: int) -> dict[str, float]:
    """Open idle connections.

    The last one of a batch sends a question: the server accepts in order, so an answer means that
    all earlier ones have been accepted.
    """
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    opened = []
    for number in range(1, BATCH + connections + 1):
        opened.append(socket.create_connection(("127.0.0.1", port), 10))
        if number % BATCH == 0 or number == BATCH + connections:
            opened[-1].sendall(bytes(size))
            opened[-1].recv(size, socket.MSG_WAITALL)
        if number == BATCH:
            pause("begin")
    pause("end")
    return {"messages": connections}


def pump(move: Callable[[], int], fill: int, size: int, times: list[float]) -> dict[str, float]:
    """Move bytes; the warm-up begins when more than `fill` have passed, as a full pipe has."""
    warmup, seconds = times
    moved = 0
    while moved <= fill:
        moved += move()
    end = time.perf_counter() + warmup
    while time.perf_counter() < end:
        moved += move()
    before, began = moved, time.perf_counter()
    pause("begin")
    while (now := time.perf_counter()) < began + seconds or moved - before < size:
        moved += move()
    pause("end")
    return {"messages": (moved - before) // size, "seconds": now - began}


def main(mode: str, address: str, connections: str, size: str, *times: str) -> None:
    """Run a mode and print the result."""
    if mode == "idle":
        result = hold(int(address), int(connections), int(size))
    else:
        drains = mode == "drain"
        # Opening waits for the other end.
        pipe = os.open(address, os.O_RDONLY if drains else os.O_WRONLY)
        other = os.open(os.devnull, os.O_WRONLY) if drains else os.memfd_create("block")
        if not drains:
            os.write(other, bytes(BLOCK))
        if mode == "feed-wide":
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, WIDE)

        def move() -> int:
            if drains:
                return os.splice(pipe, other, WIDE) or sys.exit("the writer closed the pipe")
            return os.splice(other, pipe, BLOCK, offset_src=0)

        fill = fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ) + BLOCK
        result = pump(move, fill, int(size), [*map(float, times)])
    print(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
