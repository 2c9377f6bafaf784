"""A pipe's transport and other users of the pipe: their bytes keep the order of the calls.

goloop collects the writes of an iteration only if no other code can write: to a child's stdin.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import tty
from pathlib import Path
from typing import Any

import ended
import pytest
from protocols import Recorder, close_each, turns, until

SCENARIOS = Path(__file__).with_name("pipe_order_scenarios.py")

Loop = asyncio.AbstractEventLoop


@pytest.fixture
def _children(loop_name: str) -> None:
    if loop_name == "asyncio" and sys.version_info < (3, 12):
        pytest.skip("asyncio has a thread per child before 3.12, which outlives the test")


async def writing_to(loop: Loop, fd: int) -> Any:
    """A started transport over a duplicate of the descriptor."""
    file = os.fdopen(os.dup(fd), "wb", 0)
    transport, protocol = await loop.connect_write_pipe(Recorder, file)
    await protocol.made
    await turns(2)
    return transport


async def test_writes_to_the_pipes_file_follow_its_transport(loop: Loop) -> None:
    reading, writing = os.pipe()
    file = os.fdopen(writing, "wb", 0)
    transport, protocol = await loop.connect_write_pipe(Recorder, file)
    await turns(2)
    transport.write(b"1 ")
    file.write(b"2 ")
    transport.write(b"3 ")
    os.write(transport.get_extra_info("pipe").fileno(), b"4")
    assert os.read(reading, 100) == b"1 2 3 4"
    transport.close()
    await protocol.lost
    os.close(reading)


async def test_two_transports_of_one_pipe_keep_their_order(loop: Loop) -> None:
    """As those of stdout and stderr, both of them one pipe."""
    reading, writing = os.pipe()
    first, second = await writing_to(loop, writing), await writing_to(loop, writing)
    for i in range(3):
        first.write(b"out%d " % i)
        second.write(b"err%d " % i)
    assert os.read(reading, 100) == b"out0 err0 out1 err1 out2 err2 "
    close_each(first, second)
    await turns(3)
    os.close(reading)
    os.close(writing)


async def test_child_output_follows_bytes_written_before_its_start(loop: Loop) -> None:
    reading, writing = os.pipe()
    transport = await writing_to(loop, writing)
    transport.write(b"running echo: ")
    subprocess.run(["echo", "hello"], stdout=writing, check=True)
    assert os.read(reading, 100) == b"running echo: hello\n"
    transport.close()
    await turns(3)
    os.close(reading)
    os.close(writing)


async def test_a_terminal_keeps_the_order(loop: Loop) -> None:
    leader, follower = os.openpty()
    tty.setraw(follower)
    transport = await writing_to(loop, follower)
    transport.write(b"1 ")
    os.write(follower, b"2 ")
    transport.writelines([b"3 ", b"4 "])
    os.write(follower, b"5\n")
    got = b""
    while not got.endswith(b"\n"):
        got += os.read(leader, 100)
    assert got == b"1 2 3 4 5\n"
    transport.close()
    await turns(3)
    os.close(leader)
    os.close(follower)


def test_print_follows_the_transport_of_stdout(loop_name: str) -> None:
    said = ended.passes(SCENARIOS, "print_follows_the_transport_of_stdout", loop_name)
    assert said == "first\nsecond\nthird\n"


@pytest.mark.usefixtures("_children")
async def test_writes_to_a_childs_stdin_file_follow_its_transport(loop: Loop) -> None:
    child = await asyncio.create_subprocess_exec(
        "cat", stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    stdin: Any = child.stdin
    stdin.write(b"1 ")
    file = stdin.transport.get_extra_info("pipe")
    os.write(file.fileno(), b"2 ")
    stdin.write(b"3 ")
    os.write(file.fileno(), b"4")
    assert await child.communicate(b"") == (b"1 2 3 4", None)


@pytest.mark.goloop_only("asyncio writes each at once")
async def test_small_writes_to_a_childs_stdin_are_collected(loop: Loop) -> None:
    """No other code has that pipe."""
    child = await asyncio.create_subprocess_exec(
        "cat", stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    stdin: Any = child.stdin
    assert stdin.transport._exposed is False
    stdin.write(b"1 ")
    stdin.write(b"2")
    assert await child.communicate(b"") == (b"1 2", None)


# ---- sockets that keep messages apart -----------------------------------------------------


@pytest.mark.parametrize("kind", [socket.SOCK_SEQPACKET, socket.SOCK_DGRAM])
async def test_a_message_is_read_whole_by_a_pipe_transport(
    loop: Loop, kind: socket.SocketKind
) -> None:
    """Many at once, and one that is longer than a receive of a stream is."""
    pairs = [socket.socketpair(socket.AF_UNIX, kind) for _ in range(20)]
    made = []
    for near, far in pairs:
        far.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 212_992)  # the kernel doubles it
        made.append(await loop.connect_read_pipe(Recorder, near))
    messages = [bytes([i]) * (9_000 if i else 250_000) for i in range(len(pairs))]
    for (_, far), message in zip(pairs, messages, strict=True):
        assert far.send(message) == len(message)
    for (_, protocol), message in zip(made, messages, strict=True):
        await until(lambda: protocol.data)  # noqa: B023
        assert protocol.calls == [("made",), ("data", message)]
    for (transport, protocol), (_, far) in zip(made, pairs, strict=True):
        transport.close()
        await protocol.lost
        far.close()


@pytest.mark.parametrize("kind", [socket.SOCK_SEQPACKET, socket.SOCK_DGRAM])
async def test_each_write_to_a_pipe_transport_is_a_message(
    loop: Loop, kind: socket.SocketKind
) -> None:
    near, far = socket.socketpair(socket.AF_UNIX, kind)
    transport, protocol = await loop.connect_write_pipe(Recorder, near)
    transport.write(b"first")
    transport.write(b"second")
    await turns(3)
    transport.write(b"third")
    transport.write(b"fourth")
    assert [far.recv(100) for _ in range(4)] == [b"first", b"second", b"third", b"fourth"]
    transport.close()
    await protocol.lost
    far.close()


@pytest.mark.usefixtures("_children")
async def test_message_does_not_overtake_writes_to_a_childs_stdin(loop: Loop) -> None:
    protocols: list[Recorder] = []

    def made() -> Recorder:
        protocols.append(Recorder())
        return protocols[-1]

    path = f"\0goloop-stdin-{os.getpid()}-{id(loop)}"
    server = await loop.create_unix_server(made, path)
    signals = socket.socket(socket.AF_UNIX)
    signals.connect(path)
    reading, writing = os.pipe()
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-I", "-S", SCENARIOS, "child", str(signals.fileno()), str(writing),
        stdin=subprocess.PIPE, pass_fds=[signals.fileno(), writing],
    )  # fmt: skip
    await until(lambda: protocols)
    assert child.stdin is not None
    for job in (b"1", b"2", b"3"):
        await turns()
        child.stdin.write(job)
        protocols[0].transport.write(b"go")
        assert os.read(reading, 10) == job  # the callback goes on until the child has answered
    protocols[0].transport.close()
    child.stdin.close()
    await child.wait()
    close_each(server, signals)
    os.close(reading)
    os.close(writing)
