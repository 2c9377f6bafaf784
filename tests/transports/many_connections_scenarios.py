"""The scenarios of test_many_connections.py, each run by its name."""

from __future__ import annotations

import resource
import socket
import struct
import sys


def clients() -> None:
    """Holds the clients' ends, and speaks in lines on stdin and stdout.

    One process has not enough descriptors for both ends where the hard limit is 20,000.
    """
    port, count = map(int, sys.argv[2:])
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    clients = []
    for number in range(count):
        clients.append(socket.create_connection(("127.0.0.1", port)))
        # Ended by a reset: thousands of ports that wait would slow the next run down.
        clients[-1].setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if number % 500 == 499:
            # The queue is taken in order, so an answer means that there is room in it.
            clients[-1].sendall(b"!")
            assert clients[-1].recv(1) == b"!"
    print("connected", flush=True)
    sys.stdin.readline()
    for number, client in enumerate(clients):
        client.sendall(b"%08d" % number)
    for number, client in enumerate(clients):
        assert client.recv(8, socket.MSG_WAITALL) == b"%08d" % number, number
    print("echoed", flush=True)
    sys.stdin.readline()
    for client in clients[::2]:
        client.close()
    print("half closed", flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    globals()[sys.argv[1]]()
