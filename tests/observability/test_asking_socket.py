"""The socket at which others ask: whose it is, and who is heard there."""

from __future__ import annotations

import os
import signal
import socket
import sys
from pathlib import Path

import pytest
from asked_programs import goloop, running, until

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="abstract names are Linux's")

# As python-daemon does, and uvicorn and gunicorn: the child closes all descriptors, makes its own
# listening socket, and then a loop.
DAEMON = """
import asyncio, ctypes, os, socket, sys
import goloop
from goloop._internal import introspection
from pathlib import Path
if os.fork():
    os._exit(os.wait()[1])
number = introspection._serving.fileno()
os.closerange(3, 256)
sock = socket.socket(socket.AF_UNIX)
assert sock.fileno() == number
sock.bind(PATH)
sock.listen(100)
AGAIN
async def serve(reader, writer):
    await reader.readuntil(b"\\n")
    writer.write(b"app")
    writer.close()
async def main():
    server = await asyncio.start_unix_server(serve, sock=sock)
    print(os.getpid(), flush=True)
    ctypes.PyDLL(None).sleep(2)  # keeps the GIL
    await server.serve_forever()
goloop.run(main())
"""


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def answer_at(path: str) -> bytes:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(60)
        client.connect(path)
        client.sendall(b"GET / HTTP/1.0\n")
        return client.makefile("rb").read()


@linux_only
@pytest.mark.forks
def test_a_daemons_own_listener_is_not_taken_for_that_of_goloop(tmp_path: Path) -> None:
    path = str(tmp_path / "app")
    program = DAEMON.replace("PATH", repr(path)).replace("AGAIN", "")
    with running(program, ready="") as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        try:
            # While the GIL is held, and when poll(2) begins again by the number.
            assert answer_at(path) == b"app"
            os.kill(pid, signal.SIGSTOP)
            until(lambda: state_of(pid) == "T")
            os.kill(pid, signal.SIGCONT)
            until(lambda: state_of(pid) != "T")
            assert {answer_at(path) for _ in range(20)} == {b"app"}
            assert f"process {pid} does not answer" in goloop("top", str(pid)).stderr
        finally:
            os.kill(pid, signal.SIGKILL)


@linux_only
@pytest.mark.forks
def test_a_daemon_can_have_a_new_socket(tmp_path: Path) -> None:
    path = str(tmp_path / "app")
    program = DAEMON.replace("PATH", repr(path)).replace("AGAIN", "goloop.introspect()")
    with running(program, ready="") as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        try:
            assert goloop("top", str(pid), "--once").returncode == 0
            assert answer_at(path) == b"app"
        finally:
            os.kill(pid, signal.SIGKILL)
