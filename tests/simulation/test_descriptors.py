"""Descriptors in a simulation: pipes, files sent to sockets, paths of sockets."""

from __future__ import annotations

import asyncio
import fcntl
import os
import select
import socket
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from goloop import testing

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="simulated kernels are Linux's")


async def until_eof(pipe: Any) -> bytes:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    return await reader.read()


@pytest.mark.parametrize("name", ["fdopen", "open"])
def test_a_pipe_has_transports(name: str) -> None:
    async def main() -> bytes:
        loop = asyncio.get_running_loop()
        opens = open if name == "open" else os.fdopen
        reads, writes = os.pipe()
        transport, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, opens(writes, "wb", 0))
        reading = asyncio.create_task(until_eof(opens(reads, "rb", 0)))
        for _ in range(50):
            transport.write(bytes(10_000))  # more than a pipe holds
        assert transport.get_write_buffer_size() > 0
        transport.close()
        return await reading

    assert testing.run(main).value == bytes(500_000)


def test_os_functions_work_on_simulated_pipes() -> None:
    async def main() -> None:
        reads, writes = os.pipe()
        for number in (reads, writes):
            with pytest.raises(OSError, match="Bad file descriptor"):
                real_fstat(number)  # the host has no such descriptor
            assert stat.S_ISFIFO(os.fstat(number).st_mode)
            assert stat.S_ISFIFO(os.stat(number).st_mode)
            assert not os.isatty(number)
            assert not os.get_inheritable(number)
        assert os.write(writes, b"hello") == 5
        assert os.read(reads, 3) == b"hel"
        assert os.get_blocking(reads)
        os.set_blocking(reads, False)
        assert not os.get_blocking(reads)
        os.set_blocking(reads, True)
        assert os.get_blocking(reads)
        os.set_blocking(reads, False)
        assert fcntl.fcntl(reads, fcntl.F_GETFL) & os.O_NONBLOCK
        fcntl.fcntl(writes, fcntl.F_SETFL, os.O_NONBLOCK)
        assert not os.get_blocking(writes)
        assert os.read(reads, 9) == b"lo"
        with pytest.raises(BlockingIOError):
            os.read(reads, 1)
        other = os.dup(writes)
        os.close(writes)
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.write(writes, b"x")
        os.write(other, b"x")
        os.close(other)
        assert os.read(reads, 9) == b"x"
        assert os.read(reads, 9) == b""
        os.close(reads)

    real_fstat = os.fstat
    testing.run(main)
    assert os.fstat is real_fstat


@testing.simulate(seeds=1)
async def test_files_of_a_pipe_read_and_write_text_and_lines() -> None:
    reads, writes = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    with open(writes, "w", encoding="utf-8") as out, open(reads, encoding="utf-8") as into:
        print("grün", file=out, flush=True)
        assert into.readline() == "grün\n"
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.read(reads, 1)
    reads, writes = os.pipe()
    with open(reads, "rb", 0) as raw, open(writes, "wb", closefd=False) as out:
        os.set_blocking(reads, False)
        assert raw.read(1) is None
        out.write(b"kept\n")
        out.flush()
        assert raw.readline() == b"kept\n"
        with pytest.raises(ValueError, match="unbuffered text"):
            os.fdopen(reads, "r", 0, closefd=False)
    os.close(writes)


@testing.simulate(seeds=1)
async def test_files_of_the_host_stay_the_hosts(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("hello")
    with open(tmp_path / "file", "rb") as file:
        assert os.read(file.fileno(), 9) == b"hello"
        assert os.fstat(file.fileno()).st_size == 5
        assert os.get_blocking(file.fileno())
    os.chmod(tmp_path / "file", 0o600)
    assert stat.S_IMODE(os.stat(tmp_path / "file").st_mode) == 0o600
    os.unlink(tmp_path / "file")
    assert not (tmp_path / "file").exists()


def test_a_pipe_outside_of_a_simulation_is_the_hosts() -> None:
    reads, writes = os.pipe()

    async def main() -> bytes:
        os.write(writes, b"x")
        assert select.select([reads], [], [], 0)[0]
        return os.read(reads, 1)

    try:
        assert testing.run(main).value == b"x"
    finally:
        os.close(reads)
        os.close(writes)


def test_add_reader_watches_a_pipe() -> None:
    async def main() -> float:
        loop = asyncio.get_running_loop()
        reads, writes = os.pipe()
        readable = asyncio.Event()
        loop.add_reader(reads, readable.set)
        loop.call_later(5, os.write, writes, b"x")
        await readable.wait()
        loop.remove_reader(reads)
        os.close(reads)
        os.close(writes)
        return loop.time()

    assert testing.run(main).time == pytest.approx(5, abs=0.01)


@pytest.mark.parametrize("fallback", [True, False])
@testing.simulate(seeds=1)
async def test_file_is_sent_to_a_socket_and_through_a_transport(
    tmp_path: Path, fallback: bool
) -> None:
    content = bytes(range(256)) * 2000
    path = tmp_path / "file"
    path.write_bytes(content)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with path.open("rb") as file:
            sent = await asyncio.get_running_loop().sendfile(
                writer.transport, file, 10, fallback=fallback
            )
            assert sent == file.tell() - 10 == len(content) - 10
        writer.close()

    loop = asyncio.get_running_loop()
    async with await asyncio.start_server(serve, "localhost", 80):
        reader, writer = await asyncio.open_connection("localhost", 80)
        assert await reader.read() == content[10:]
        writer.close()
    a, b = socket.socketpair()
    with a, b, path.open("rb") as file:
        a.setblocking(False)
        b.setblocking(False)
        sending = asyncio.create_task(loop.sock_sendfile(a, file, fallback=fallback))
        got = bytearray()
        while len(got) < len(content):
            got += await loop.sock_recv(b, 1 << 16)
        assert got == content
        assert await sending == len(content)


@testing.simulate(seeds=1)
async def test_sockets_have_the_calls_that_programs_make() -> None:
    loop = asyncio.get_running_loop()
    a, b = socket.socketpair()
    with a, b:
        a.sendmsg([b"ab", b"c"])
        assert b.recvmsg(9)[0] == b"abc"
        a.sendall(b"abcde")
        one, other = bytearray(2), bytearray(2)
        assert b.recvmsg_into([one, other])[0] == 4
        assert (one, other) == (b"ab", b"cd")
        with b.makefile("rb") as file:
            a.sendall(b"fg\n")
            assert file.readline() == b"efg\n"
    first, second = (socket.socket(type=socket.SOCK_DGRAM) for _ in range(2))
    with first, second:
        for sock in (first, second):
            sock.setblocking(False)
            sock.bind(("localhost", 0))
        buffer = bytearray(4)
        await loop.sock_sendto(first, b"x", second.getsockname())
        received = await loop.sock_recvfrom_into(second, buffer)
        assert received == (1, first.getsockname())
        assert buffer[:1] == b"x"
        first.sendmsg([b"y"], [], 0, second.getsockname())
        await asyncio.sleep(1)
        assert second.recvfrom_into(buffer) == (1, first.getsockname())


@testing.simulate(seeds=1)
async def test_a_unix_socket_has_a_path_until_it_is_removed() -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readline())
        writer.close()

    for _ in range(2):  # asyncio removes a socket that is in the way
        server = await asyncio.start_unix_server(echo, "/run/simulated.sock")
        assert stat.S_ISSOCK(os.stat("/run/simulated.sock").st_mode)
        os.chmod("/run/simulated.sock", 0o666)
        reader, writer = await asyncio.open_unix_connection("/run/simulated.sock")
        writer.write(b"hello\n")
        assert await reader.read() == b"hello\n"
        writer.close()
        server.close()
        await server.wait_closed()
    if os.path.exists("/run/simulated.sock"):  # from 3.13 on close() removes it
        os.unlink("/run/simulated.sock")
    assert not os.path.exists("/run/simulated.sock")
    with pytest.raises(FileNotFoundError):
        await asyncio.open_unix_connection("/run/simulated.sock")


@testing.simulate(seeds=1)
async def test_a_path_of_a_socket_is_its_hosts(sim: testing.Simulation, tmp_path: Path) -> None:
    path = str(tmp_path / "socket")

    async def serve() -> None:
        await asyncio.start_unix_server(lambda *_: None, path)
        assert os.path.exists(path)
        await asyncio.sleep(100)

    async def looks() -> None:
        assert not os.path.exists(path)
        with pytest.raises(FileNotFoundError):
            os.unlink(path)

    a = sim.host("a")
    a.spawn(serve)
    await asyncio.sleep(1)
    await sim.host("b").spawn(looks)
    a.kill()
    a.restart()  # the path is there, and asyncio removes it before it binds
    await asyncio.sleep(1)
    assert a.is_up


def test_pipes_end_with_their_host() -> None:
    closed = []

    async def holds() -> None:
        for _ in range(3):
            reads, _ = os.pipe()
            closed.append(reads)
        await until_eof(os.fdopen(reads, "rb", 0))

    async def other() -> bytes:
        reads, writes = os.pipe()
        asyncio.get_running_loop().call_later(50, os.close, writes)
        return await until_eof(os.fdopen(reads, "rb", 0))

    async def main(sim: testing.Simulation) -> None:
        a = sim.host("a")
        a.spawn(holds)
        goes_on = sim.host("b").spawn(other)
        await asyncio.sleep(5)
        os.fstat(closed[0])
        a.kill()
        for number in closed:
            with pytest.raises(OSError, match="Bad file descriptor"):
                fcntl.fcntl(number, fcntl.F_GETPIPE_SZ)
        assert await goes_on == b""

    testing.run(main)
    assert len(closed) == 3


@testing.simulate(seeds=1)
async def test_descriptors_run_out_by_pipes_too(sim: testing.Simulation) -> None:
    sim.faults.set(descriptors=5)
    os.pipe()
    reads, writes = os.pipe()
    with pytest.raises(OSError, match="Too many open files"):
        os.pipe()
    os.close(reads)
    os.close(writes)
    os.pipe()


def test_poll_and_select_know_simulated_descriptors() -> None:
    real = os.pipe()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        a, b = socket.socketpair()
        with a, b:
            asked = select.poll()
            asked.register(a, select.POLLIN)
            asked.register(real[0], select.POLLIN)
            assert asked.poll(0) == []
            assert select.select([a], [], [], 0) == ([], [], [])
            began = loop.time()
            assert asked.poll(5000) == []
            assert loop.time() - began == pytest.approx(5)
            assert select.select([a], [b], [], 5) == ([], [b], [])
            os.write(real[1], b"x")
            assert asked.poll(5000) == [(real[0], select.POLLIN)]
            assert loop.time() - began == pytest.approx(5)
            os.read(real[0], 1)
            b.send(b"x")
            assert asked.poll() == [(a.fileno(), select.POLLIN)]
            os.write(real[1], b"x")
            assert sorted(asked.poll()) == [(real[0], select.POLLIN), (a.fileno(), select.POLLIN)]
            asked.unregister(real[0])
            asked.modify(a, select.POLLOUT)
            assert asked.poll() == [(a.fileno(), select.POLLOUT)]
            asked.unregister(a)
            assert asked.poll(0) == []
            assert select.select([a, real[0]], [], [a.fileno()]) == ([a, real[0]], [], [])

    try:
        testing.run(main)
    finally:
        for number in real:
            os.close(number)
