"""A program that has replaced Python's functions that wait, as gevent and eventlet do.

Their get_ident() returns the number of a greenlet, which no system call accepts, their
start_new_thread() starts a greenlet, which does not run while the loop waits, and their os.read()
cannot be called in a callback of the loop.  Each test is a program of its own.
"""

from __future__ import annotations

import ended
import pytest

PROGRAM = """
import asyncio, os, signal, socket, sys, threading, time
import _thread

greenlet = 12345

def refuse(fd, size):
    raise RuntimeError("do not call blocking functions from the mainloop")

def replace():
    os.read = refuse
    for module in (threading, _thread):
        module.get_ident = lambda: greenlet
    for name in ("start_new_thread", "start_joinable_thread"):
        for module, known_as in ((_thread, name), (threading, "_" + name)):
            if hasattr(module, known_as):
                setattr(module, known_as, lambda *args, **kwargs: None)

if sys.argv[1] == "before":
    replace()
import goloop
if sys.argv[1] == "after":
    replace()

async def main():
    loop = asyncio.get_running_loop()
    {body}

with asyncio.Runner(loop_factory=goloop.new_event_loop) as runner:
    runner.run(main())
greenlet = threading.main_thread().ident  # for the end of Python 3.11 and 3.12
print("ran", flush=True)
# At exit, CPython 3.13.0 reports a TypeError for each thread that threading did not start.
if sys.version_info[:3] == (3, 13, 0):
    os._exit(0)
"""

WHEN = pytest.mark.parametrize("when", ["before", "after"])


def passes(when: str, body: str) -> None:
    """Run `body` in a coroutine of a program with replacements made before or after the import."""
    done = ended.python("-c", PROGRAM.replace("{body}", body.strip()), when, limit=60)
    assert done.stdout == "ran\n", done.stdout
    assert done.returncode == 0


@WHEN
@pytest.mark.goloop_only("the program makes its loop itself")
def test_cpu_time_is_measured_with_a_replaced_get_ident(when: str) -> None:
    passes(
        when,
        """
    await asyncio.sleep(0.001)
    until = time.thread_time() + 0.01
    while time.thread_time() < until:
        pass
    assert loop.metrics().time_cpu >= 0.01
    loop.set_busy_poll(0.00001)
""",
    )


@WHEN
@pytest.mark.goloop_only("the program makes its loop itself")
def test_thread_id_is_that_of_the_replaced_get_ident(when: str) -> None:
    passes(when, "assert loop._thread_id == threading.get_ident() == 12345")


@WHEN
@pytest.mark.goloop_only("asyncio's wait goes on")
def test_closed_socket_ends_a_wait_at_once_with_a_replaced_get_ident(when: str) -> None:
    passes(
        when,
        """
    one, other = socket.socketpair()
    one.setblocking(False)
    waiting = asyncio.ensure_future(loop.sock_recv(one, 1))
    await asyncio.sleep(0)
    socket_of_loop = one._io_refs, one.fileno()
    assert loop._before_close(*socket_of_loop)
    global greenlet
    greenlet = 6789
    one.close()
    assert not loop._before_close(*socket_of_loop)
    other.close()
    waiting.cancel()
""",
    )


@WHEN
@pytest.mark.goloop_only("the program makes its loop itself")
def test_host_name_is_looked_up_with_replaced_thread_starts(when: str) -> None:
    passes(
        when,
        """
    found = await asyncio.wait_for(loop.getaddrinfo("localhost", 80), 30)
    assert found
""",
    )


@WHEN
@pytest.mark.goloop_only("the program makes its loop itself")
def test_signal_handler_is_called_with_a_replaced_read(when: str) -> None:
    passes(
        when,
        """
    done = loop.create_future()
    loop.add_signal_handler(signal.SIGUSR1, done.set_result, None)
    os.kill(os.getpid(), signal.SIGUSR1)
    await asyncio.wait_for(done, 30)
""",
    )
