"""The scenarios of test_own_descriptors.py, each run by its name."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import socket
import sys
import threading
import time

import goloop


def signals() -> None:
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


def closed_while_it_sleeps() -> None:
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


def all_closed() -> None:
    def check():
        before = os.listdir("/proc/self/fd")
        goloop.run(asyncio.sleep(0))
        assert os.listdir("/proc/self/fd") == before, (
            "the process keeps descriptors of its first loop"
        )
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


if __name__ == "__main__":
    globals()[sys.argv[1]]()
