"""The scenarios of test_replaced_thread_functions.py: `python FILE NAME before|after` runs one.

The program replaces Python's functions before it imports goloop, or after it.
"""

from __future__ import annotations

import _thread
import asyncio
import os
import signal
import socket
import sys
import threading
import time

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


async def cpu_time_is_measured(loop):
    await asyncio.sleep(0.001)
    until = time.thread_time() + 0.01
    while time.thread_time() < until:
        pass
    assert loop.metrics().time_cpu >= 0.01
    loop.set_busy_poll(0.00001)


async def thread_id_is_that_of_get_ident(loop):
    assert loop._thread_id == threading.get_ident() == 12345


async def closed_socket_ends_a_wait_at_once(loop):
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


async def host_name_is_looked_up(loop):
    assert await asyncio.wait_for(loop.getaddrinfo("localhost", 80), 30)


async def signal_handler_is_called(loop):
    done = loop.create_future()
    loop.add_signal_handler(signal.SIGUSR1, done.set_result, None)
    os.kill(os.getpid(), signal.SIGUSR1)
    await asyncio.wait_for(done, 30)


async def main(scenario):
    await scenario(asyncio.get_running_loop())


if __name__ == "__main__":
    if sys.argv[2] == "before":
        replace()
    import goloop

    if sys.argv[2] == "after":
        replace()
    with asyncio.Runner(loop_factory=goloop.new_event_loop) as runner:
        runner.run(main(globals()[sys.argv[1]]))
    greenlet = threading.main_thread().ident  # for the end of Python 3.11 and 3.12
    print("ran", flush=True)
    # At exit, CPython 3.13.0 reports a TypeError for each thread that threading did not start.
    if sys.version_info[:3] == (3, 13, 0):
        os._exit(0)
