"""The scenarios of test_unix_descriptors.py, each run by its name."""

from __future__ import annotations

import array
import asyncio
import os
import resource
import socket
import sys

import goloop


def peer() -> None:
    sock = socket.socket(fileno=int(sys.argv[2]))
    sock.setblocking(True)
    data, fds, _, _ = socket.recv_fds(sock, 100, 10)
    assert data == b"take this" and len(fds) == 2, (data, fds)
    os.write(fds[0], b"from the child")
    socket.send_fds(sock, [b"and this"], [fds[1]])
    sock.recv(1)


def received_ones_are_closed_without_free_numbers() -> None:
    class Receiver(asyncio.Protocol):
        def connection_made(self, transport):
            self.calls = []
            self.lost = asyncio.get_running_loop().create_future()

        def fds_received(self, fds):
            self.calls.append(fds)

        def data_received(self, data):
            self.calls.append(data)

        def connection_lost(self, exc):
            self.lost.set_result(exc)

    async def main():
        loop = asyncio.get_running_loop()
        reports = []
        loop.set_exception_handler(lambda loop, report: reports.append(report["message"]))
        near, far = socket.socketpair()
        transport, protocol = await loop.create_unix_connection(Receiver, sock=near)
        before = sorted(os.listdir("/proc/self/fd"))
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (len(before) + 5, hard))
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0] * 200))
        far.sendmsg([b"x"], [rights])
        lost = await protocol.lost
        assert lost.errno == 24, lost
        assert protocol.calls == [], protocol.calls
        assert len(reports) == 1 and "raise its limit" in reports[0], reports
        after = set(os.listdir("/proc/self/fd"))
        assert after < set(before), after - set(before)
        # A descriptor that cannot be duplicated is not sent.
        near, other = socket.socketpair()
        transport, protocol = await loop.create_unix_connection(Receiver, sock=near)
        try:
            transport.send_fds(b"x", [0] * 100)
        except OSError as exc:
            assert exc.errno == 24
        else:
            raise AssertionError("no error")
        transport.send_fds(b"y", [0])
        other.setblocking(True)
        data, fds, _, _ = socket.recv_fds(other, 10, 1)
        assert data == b"y" and len(fds) == 1
        transport.close()

    goloop.run(main())
    print("done")


if __name__ == "__main__":
    globals()[sys.argv[1]]()
