"""The loop's own descriptors, closed by other code: it says so, and others are left alone.

tests/fuzz/own_fd_storm.py does it in all orders.  These tests close goloop's descriptors, so they
run on no other loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest
from conftest import isolated
from protocols import in_thread

import goloop

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it looks into /proc")


def links() -> dict[int, str]:
    found = {}
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the one of listdir
            found[int(name)] = os.readlink(f"/proc/self/fd/{name}")
    return found


@pytest.fixture
def loop_and_numbers() -> Iterator[tuple[goloop.Loop, dict[str, int]]]:
    """Return a loop, and its descriptor numbers by their use."""
    before = links()
    loop = goloop.new_event_loop()
    mine = {what: fd for fd, what in links().items() if before.get(fd) != what}
    yield loop, mine
    loop.close()


@pytest.mark.parametrize("what", ["anon_inode:[eventpoll]", "anon_inode:[eventfd]"])
@pytest.mark.parametrize("again", [False, True], ids=["free", "used again"])
def test_loop_without_its_poller_raises_an_error(
    loop_and_numbers: tuple[goloop.Loop, dict[str, int]], what: str, again: bool
) -> None:
    loop, numbers = loop_and_numbers
    near, far = socket.socketpair()
    near.setblocking(False)
    number = numbers[what]
    os.close(number)
    if again:
        os.dup2(near.fileno(), number)
    words = (
        rf"other code has closed descriptor {numbers['anon_inode:[eventpoll]']} or "
        rf"{numbers['anon_inode:[eventfd]']}, which the event loop uses"
    )
    for _ in range(2):
        main = asyncio.sleep(0)
        with pytest.raises(OSError, match=words) as caught:
            loop.run_until_complete(main)
        assert caught.value.errno == errno.EBADF
        main.close()
    in_thread(loop.call_soon_threadsafe, int)
    loop.close()
    if again:
        os.fstat(number)
        os.close(number)
    else:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(number)
    with pytest.raises(BlockingIOError):
        near.recv(1)
    far.settimeout(10)
    near.send(b"only this")
    assert far.recv(100) == b"only this"
    near.close()
    far.close()
    # A descriptor that the loop could not identify as its own is left open.
    for fd in set(numbers.values()) & set(links()) - {number}:
        if links()[fd].startswith("anon_inode:"):
            os.close(fd)


def test_closed_signal_pipe_is_replaced() -> None:
    assert isolated(SIGNALS) == "heard\n"


SIGNALS = """
import asyncio, os, signal, socket, goloop
loop = goloop.new_event_loop()
stranger, far = socket.socketpair()
stranger.setblocking(False)
far.setblocking(False)
for fd in loop._signal_pipe:
    os.dup2(stranger.fileno(), fd)
async def main():
    heard = loop.create_future()
    signal.signal(signal.SIGUSR1, lambda *args: heard.set_result(None))
    os.kill(os.getpid(), signal.SIGUSR1)
    await heard
pipe = loop._signal_pipe
loop.run_until_complete(main())
try:
    print(far.recv(1))
except BlockingIOError:
    print("heard")
loop.close()
for fd in pipe:
    os.fstat(fd)
"""


CLOSED_WHILE_IT_SLEEPS = """
import asyncio, goloop, os, threading, time

def numbers():
    return {n for n in range(3, 100) if os.path.exists(f"/proc/self/fd/{n}")}

before = numbers()

async def main():
    loop = asyncio.get_running_loop()
    def close_and_call():
        asleep = 0
        while asleep < 50:
            with open(f"/proc/self/task/{os.getpid()}/stat") as stat:
                asleep = asleep + 1 if ") S " in stat.read() else 0
            time.sleep(0.01)
        for number in numbers() - before:
            os.close(number)
        loop.call_later(1, print)
    threading.Thread(target=close_and_call).start()
    await asyncio.sleep(3600)

goloop.run(main())
"""


def test_call_to_a_sleeping_loop_without_its_descriptors_ends_the_process() -> None:
    """The call would wait for ever for the turn's end, and with the GIL.

    A signal of Go's may wake the loop right after the close: then it raises the lost error.
    """
    for _ in range(10):
        ended = subprocess.run(
            [sys.executable, "-c", CLOSED_WHILE_IT_SLEEPS],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if ended.returncode == -signal.SIGABRT:
            break
        assert "OSError: [Errno 9]" in ended.stderr
    assert "can't be woken for a call of another thread" in ended.stderr


ALL_CLOSED = """
import asyncio, os, select, sys, time, goloop

def check():
    before = os.listdir("/proc/self/fd")
    goloop.run(asyncio.sleep(0))
    assert os.listdir("/proc/self/fd") == before, "the process keeps descriptors of its first loop"
    os.closerange(3, 1000)
    # The lowest numbers name pollers again, with events that only they may take.
    pollers = [select.epoll() for _ in range(4)]
    ends = os.pipe()
    for poller in pollers:
        poller.register(ends[0], select.EPOLLIN | select.EPOLLET)
    os.write(ends[1], b"x")
    time.sleep(0.1)  # Go's monitor thread runs every 10 ms
    assert [len(poller.poll(0)) for poller in pollers] == [1] * 4
    goloop.run(asyncio.sleep(0.01))

def in_child(then):
    child = os.fork()
    if child == 0:
        then()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0

in_child(lambda: None)  # before Go runs
check()
in_child(lambda: (check(), in_child(check)))
print("alive")
"""


@pytest.mark.forks
def test_a_process_that_closes_all_descriptors_lives() -> None:
    """Go's runtime keeps none, neither in a process nor in its forked children."""
    assert isolated(ALL_CLOSED) == "alive\n"
