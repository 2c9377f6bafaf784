"""The scenarios of test_alarms.py: `python alarms_scenarios.py NAME` runs one."""

from __future__ import annotations

import asyncio
import ctypes
import os
import platform
import resource
import signal
import socket
import struct
import subprocess
import sys
import time

import goloop

made = []


class Echo(asyncio.Protocol):
    def connection_made(self, transport):
        made.append(transport)

    def data_received(self, data):
        made[0].write(data)


async def connected():
    """A server's connection, and its client."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Echo, "127.0.0.1", 0)
    client = socket.create_connection(server.sockets[0].getsockname())
    client.settimeout(60)
    while not made:
        await asyncio.sleep(0)
    return client


def timers():
    with open("/proc/self/timers") as file:
        return file.read().count("notify:")


def write(data):
    """In two pieces: they leave together, and not within write()."""
    made[0].write(data[:1])
    made[0].write(data[1:])


async def late_writes(client):
    """Bytes that the monitor has to send, because the loop waits for them."""
    loop = asyncio.get_running_loop()
    await asyncio.sleep(0)
    sent = loop.metrics().late_writes
    for n in range(50):
        write(b"n%03d" % n)
        assert client.recv(4, socket.MSG_WAITALL) == b"n%03d" % n
        await asyncio.sleep(0)
    assert loop.metrics().late_writes - sent == 50
    most, end = 0, time.monotonic() + 30
    # About 40. If the monitor slept for as long as it may, there would be 3.
    while most < 15 and time.monotonic() < end:
        count, window = 0, time.monotonic() + 0.5
        while time.monotonic() < window:
            write(b"xx")
            assert client.recv(2, socket.MSG_WAITALL) == b"xx"
            count += 1
            await asyncio.sleep(0.005)  # the next iteration is short
        most = max(most, count)
    assert most >= 15


libc = ctypes.CDLL(None, use_errno=True)
seccomp, numbers = {
    "x86_64": (317, {"timer_create": 222, "timer_settime": 223}),
    "aarch64": (277, {"timer_create": 107, "timer_settime": 110}),
}[platform.machine()]


class Prog(ctypes.Structure):
    _fields_ = [("len", ctypes.c_ushort), ("filter", ctypes.c_void_p)]


def refuse(name):
    """Refuse a system call to all threads that the process has.

    The filter (BPF) makes the call fail with EPERM, and allows all others.
    """
    program = b"".join(
        struct.pack("=HBBI", *each)
        for each in (
            (0x20, 0, 0, 0),
            (0x15, 0, 1, numbers[name]),
            (0x06, 0, 0, 0x00050001),
            (0x06, 0, 0, 0x7FFF0000),
        )
    )
    buffer = ctypes.create_string_buffer(program, len(program))
    prog = Prog(4, ctypes.addressof(buffer))
    assert libc.prctl(38, 1, 0, 0, 0) == 0
    assert libc.syscall(seccomp, 1, 1, ctypes.byref(prog)) == 0, ctypes.get_errno()


timer_gettime = {"x86_64": 224, "aarch64": 108}[platform.machine()]


def remaining():
    """The time in ns until the loop's timer expires."""
    with open("/proc/self/timers") as file:
        number = int(file.readline().removeprefix("ID:"))
    spec = (ctypes.c_long * 4)()
    assert libc.syscall(timer_gettime, number, spec) == 0
    return spec[2] * 10**9 + spec[3]


async def latest(pause):
    """The latest time in the second half of 0.1 s."""
    times, middle = [0], time.monotonic() + 0.05
    while time.monotonic() < middle + 0.05:
        await asyncio.sleep(pause)
        if time.monotonic() >= middle:
            times.append(remaining())
    return max(times)


def late_writes_leave_without_timers(when: str, call: str) -> None:
    late = when == "later on"

    async def main():
        client = await connected()
        await late_writes(client)
        if late:
            refuse(call)
            await asyncio.sleep(0.01)
            await late_writes(client)
            await asyncio.sleep(0.2)  # the monitor parks
            await late_writes(client)
        made[0].abort()

    if not late:
        refuse(call)
    goloop.run(main())


def late_writes_leave_without_room_for_a_timer() -> None:
    async def main():
        client = await connected()
        await late_writes(client)
        made[0].abort()

    resource.setrlimit(resource.RLIMIT_SIGPENDING, (0, 0))
    goloop.run(main())


def a_forked_child_makes_its_own_timers() -> None:
    async def main():
        client = await connected()
        await late_writes(client)
        assert timers() == 1, timers()
        made.pop().abort()

    goloop.run(main())
    if (pid := os.fork()) == 0:
        code = 1
        try:
            goloop.run(main())
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0


def signals_of_another_process_keep_their_sender_and_order() -> None:
    NUMBERS = range(signal.SIGRTMIN, signal.SIGRTMAX + 1)
    signal.pthread_sigmask(signal.SIG_BLOCK, NUMBERS)

    SENDER = """
import ctypes, os, signal
for number in range(signal.SIGRTMIN, signal.SIGRTMAX + 1):
    for value in (1, 2, 3):
        assert ctypes.CDLL(None).sigqueue(os.getppid(), number, ctypes.c_void_p(value)) == 0
    os.kill(os.getppid(), number)
"""

    class Info(ctypes.Structure):
        _fields_ = [
            (name, ctypes.c_int) for name in ("number", "error", "code", "pad", "pid", "uid")
        ]
        _fields_ += [("value", ctypes.c_void_p), ("rest", ctypes.c_char * 96)]

    libc = ctypes.CDLL(None)

    def received(number):
        # signal.sigwaitinfo() leaves out the value.
        mask, limit = (ctypes.c_ulong * 16)(1 << number - 1), (ctypes.c_long * 2)(60, 0)
        info = Info()
        assert libc.sigtimedwait(mask, ctypes.byref(info), limit) == number
        return info.code, info.pid, info.value

    SI_USER, SI_QUEUE = 0, -1

    async def main():
        client = await connected()
        await late_writes(client)
        sender = subprocess.Popen([sys.executable, "-S", "-c", SENDER])
        assert sender.wait(60) == 0
        for number in NUMBERS:
            for value in (1, 2, 3):
                assert received(number) == (SI_QUEUE, sender.pid, value), number
            assert received(number)[:2] == (SI_USER, sender.pid), number
        await late_writes(client)
        made[0].abort()

    goloop.run(main())


def change_of_user_does_not_wait_for_the_monitor() -> None:
    async def main():
        client = await connected()
        for _ in range(3):
            await late_writes(client)
            for _ in range(200):  # the monitor is awake
                os.setuid(os.getuid())
                write(b"xx")
                assert client.recv(2, socket.MSG_WAITALL) == b"xx"
                await asyncio.sleep(0)
            # The monitor parks after the loop has slept for 50 ms.
            for delay in (0.01, 0.2):
                await asyncio.sleep(delay)
                os.setuid(os.getuid())
        await late_writes(client)
        made[0].abort()

    goloop.run(main())
    time.sleep(0.2)
    os.setuid(os.getuid())


def closed_loops_leave_no_timer() -> None:
    async def main():
        return timers()

    assert max(goloop.run(main()) for _ in range(50)) >= 1  # the monitor's thread may start late
    assert timers() == 0


def the_alarm_follows_the_turns_and_the_writes_of_a_loop() -> None:
    async def main():
        # On a busy machine the loop does not run for some windows, and its alarm expires.
        for pause, least, most in [
            (0, 3_000_000, 4_500_000),
            (0.00005, 1, 2_300_000),
            (0.005, 9_000_000, 25_500_000),
        ]:
            end = time.monotonic() + 30
            while not least <= (got := await latest(pause)) <= most:
                assert time.monotonic() < end, (pause, got)
        client = await connected()
        while True:
            await asyncio.sleep(0.005)
            far = remaining()
            write(b"xx")
            near = remaining()
            assert client.recv(2, socket.MSG_WAITALL) == b"xx"
            assert near <= 7_500_000, (far, near)
            if far >= 9_000_000:
                break
            assert time.monotonic() < end, far
            await asyncio.sleep(1)  # until the loop has forgotten the write

    goloop.run(main())


def helper_threads_rarely_wake(load: str, most: str, least_late: str) -> None:
    def helpers():
        # How often the monitor and each of Go's threads were put to sleep.
        monitor, go = 0, {}
        for tid in os.listdir("/proc/self/task"):
            if int(tid) != os.getpid():
                with open(f"/proc/self/task/{tid}/status") as file:
                    fields = dict(line.split(":", 1) for line in file)
                count = int(fields["voluntary_ctxt_switches"])
                if fields["Name"].strip() == "goloop-monitor":
                    monitor = count
                else:
                    go[tid] = count
        return monitor, go

    def be_client():
        # A client of another process, that waits for each answer.
        client = socket.create_connection(listener.getsockname())
        while True:
            client.sendall(b"x" * 100)
            if not client.recv(1000):
                break

    async def echo():
        await asyncio.sleep(0.5)

    async def each_10_ms():
        for _ in range(50):
            await asyncio.sleep(0.01)
            made[0].write(b"x")

    async def iterations_of_3_ms():
        for _ in range(170):
            time.sleep(0.003)
            await asyncio.sleep(0)

    async def late_writes_each_5_ms():
        for _ in range(100):
            write(b"xx")
            time.sleep(0.005)
            await asyncio.sleep(0)

    loads = (echo, each_10_ms, iterations_of_3_ms, late_writes_each_5_ms)
    run_load = next(each for each in loads if each.__name__ == load)

    async def main():
        loop = asyncio.get_running_loop()
        other = goloop.new_event_loop()  # a loop that does not run needs no wake-ups
        await loop.create_server(Echo, sock=listener)
        while not made:
            await asyncio.sleep(0.01)
        end = time.monotonic() + 30
        while time.monotonic() < end:
            (monitor, go), late = helpers(), loop.metrics().late_writes
            await run_load()
            monitor_after, go_after = helpers()
            of_go = sorted(n - go.get(tid, 0) for tid, n in go_after.items())
            late = loop.metrics().late_writes - late
            # A busy machine may make the window longer, but not the work in it.
            rate = (monitor_after - monitor - late + sum(of_go)) / 0.5
            # Go's thread sysmon has a reason to wake up.
            few = rate <= int(most) and sum(of_go[:-1]) <= 2
            if few and late >= int(least_late):
                break
        else:
            print(rate, late, of_go)
            os._exit(1)
        made[0].abort()
        other.close()

    listener = socket.create_server(("127.0.0.1", 0))
    if run_load is not echo:
        _silent = socket.create_connection(listener.getsockname())
    elif os.fork() == 0:
        try:
            be_client()
        finally:
            os._exit(0)
    goloop.run(main())


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
