"""The load generator of idle connections: `idle_load.py PORT CONNECTIONS SIZE`.

The connections send nothing, but the last one of a batch sends a question of SIZE bytes: the server
accepts in order, so an answer means that all earlier ones have been accepted.  The first batch also
pays for the server's one-time allocations, and is not counted.  As ceiling/epoll_load.c, the
program writes "begin" and "end", waits for a line after each, and writes its result as JSON.
"""

from __future__ import annotations

import resource
import socket
import sys

BATCH = 500


def pause(word: str) -> None:
    """Say how far the connections are, and wait until the runner has taken its accounts."""
    print(word, flush=True)
    sys.stdin.readline()


def main(port: int, connections: int, size: int) -> None:
    """Open the connections; the process's end closes them."""
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
    print(f'{{"messages": {connections}}}')


if __name__ == "__main__":
    main(*map(int, sys.argv[1:4]))
