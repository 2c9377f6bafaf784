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
import sys
from collections.abc import Iterator
from pathlib import Path

import ended
import pytest
from protocols import close_each, in_thread

import goloop

SCENARIOS = Path(__file__).with_name("own_descriptors_scenarios.py")

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
    close_each(near, far)
    # A descriptor that the loop could not identify as its own is left open.
    for fd in set(numbers.values()) & set(links()) - {number}:
        if links()[fd].startswith("anon_inode:"):
            os.close(fd)


def test_closed_signal_pipe_is_replaced() -> None:
    assert ended.passes(SCENARIOS, "signals") == "heard\n"


def test_call_to_a_sleeping_loop_without_its_descriptors_ends_the_process() -> None:
    """The call would wait for ever for the turn's end, and with the GIL.

    A signal of Go's may wake the loop right after the close: then it raises the lost error.
    """
    for _ in range(10):
        done = ended.python(SCENARIOS, "closed_while_it_sleeps")
        if done.returncode == -signal.SIGABRT:
            break
        assert "OSError: [Errno 9]" in done.stdout
    assert "can't be woken for a call of another thread" in done.stdout


@pytest.mark.forks
def test_a_process_that_closes_all_descriptors_lives() -> None:
    """Go's runtime keeps none, neither in a process nor in its forked children."""
    assert ended.passes(SCENARIOS, "all_closed") == "alive\n"
