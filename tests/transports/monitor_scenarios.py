"""The scenarios of test_monitor.py: `python monitor_scenarios.py NAME` runs one."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import platform
import signal
import socket
import struct
import sys
import sysconfig
import time
import warnings

import goloop

PATIENCE = 60


def monitor():
    """The thread of the monitor, and how often it has been put to sleep."""
    for tid in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{tid}/status") as file:
            fields = dict(line.split(":", 1) for line in file)
        if fields["Name"].strip() == "goloop-monitor":
            return int(fields["voluntary_ctxt_switches"])
    return None


# The numbers of membarrier(2) and seccomp(2), and a filter of system calls (BPF): membarrier(2) is
# EPERM, everything else is allowed.
number, seccomp = {"x86_64": (324, 317), "aarch64": (283, 277)}[platform.machine()]
program = b"".join(
    struct.pack("=HBBI", *each)
    for each in (
        (0x20, 0, 0, 0),
        (0x15, 0, 1, number),
        (0x06, 0, 0, 0x00050001),
        (0x06, 0, 0, 0x7FFF0000),
    )
)
buffer = ctypes.create_string_buffer(program, len(program))


class Prog(ctypes.Structure):
    _fields_ = [("len", ctypes.c_ushort), ("filter", ctypes.c_void_p)]


libc = ctypes.CDLL(None, use_errno=True)
prog = Prog(4, ctypes.addressof(buffer))


def refuse():
    """Filter the system calls of all threads that the process has."""
    assert libc.prctl(38, 1, 0, 0, 0) == 0
    assert libc.syscall(seccomp, 1, 1, ctypes.byref(prog)) == 0, ctypes.get_errno()
    assert libc.syscall(number, 0, 0, 0) == -1


def the_monitor_sleeps_while_all_loops_do() -> None:
    async def main():
        await asyncio.sleep(0.2)  # the monitor parks some milliseconds after the last turn
        before = monitor()
        time_is_up = asyncio.get_running_loop().create_future()
        other = goloop.new_event_loop()  # neither does a loop that does not run keep it awake
        asyncio.get_running_loop().call_later(0.5, time_is_up.set_result, before)
        await time_is_up
        # While the loop waited, at most the ticks around its two ends.
        assert monitor() - before < 40, monitor() - before
        end = time.monotonic() + 20
        before = monitor()
        while monitor() - before <= 20 and time.monotonic() < end:
            pass
        # At work again: 60 in 0.2 s of a free core.
        assert monitor() - before > 20, monitor() - before
        other.close()

    goloop.run(main())


def monitor_rarely_wakes_for_a_loop_with_short_callbacks() -> None:
    writer = None
    TICK = 0.0017

    async def busy(seconds, long):
        # Ticks of the monitor while the loop turns, as a part of those that fit into the time.
        begun, before = time.monotonic(), monitor()
        while (spent := time.monotonic() - begun) < seconds:
            if long:
                writer.write(b"x")  # sent at once; later writes of the iteration wait
                writer.write(b"y")
                time.sleep(0.004)  # the monitor sends it
            await asyncio.sleep(0)
        return (monitor() - before) / (spent / TICK)

    async def discard(reader, answers):
        while await reader.read(100):
            pass
        answers.close()

    async def main():
        nonlocal writer
        async with await asyncio.start_server(discard, "127.0.0.1", 0) as server:
            _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            while monitor() is None:  # on a busy machine its thread begins late
                await asyncio.sleep(0.01)
            # A quarter in the end. Where others take the core, it looks as if the loop slept, so
            # only times in succession that the loop had for itself tell against the monitor.
            end, alone = time.monotonic() + 20, 0
            while time.monotonic() < end:
                begun, used = time.monotonic(), time.thread_time()
                part = await busy(0.5, False)
                if part <= 0.7:
                    break
                quiet = time.thread_time() - used > 0.98 * (time.monotonic() - begun)
                alone = alone + 1 if quiet else 0
                if alone == 5:
                    os._exit(9)
            loop = asyncio.get_running_loop()
            sent = loop.metrics().late_writes
            await busy(0.2, True)
            late = loop.metrics().late_writes - sent
            writer.close()
            await writer.wait_closed()
        assert late > 0

    goloop.run(main())


def thousands_of_loops_leave_no_entry_in_the_monitor() -> None:
    async def main():
        left, right = socket.socketpair()
        _, writer = await asyncio.open_connection(sock=left)
        writer.write(b"x")
        time.sleep(0.0005)
        writer.close()
        await writer.wait_closed()
        assert right.recv(10) == b"x"
        right.close()

    for _ in range(1000):
        goloop.run(main())


def a_child_that_is_forked_while_the_monitor_sends_has_its_own() -> None:
    warnings.simplefilter("ignore")
    fork_in_c = ctypes.PyDLL(None).fork
    without_gil = sysconfig.get_config_var("Py_GIL_DISABLED")

    class Echo(asyncio.Protocol):
        def connection_made(self, transport):
            transports.append(transport)

    async def child():
        nonlocal transports
        transports = []
        await main(0)

    async def main(forks):
        loop = asyncio.get_running_loop()
        server = await loop.create_server(Echo, "127.0.0.1", 0)
        client = socket.create_connection(server.sockets[0].getsockname())
        client.settimeout(PATIENCE)
        while not transports:
            await asyncio.sleep(0)
        mine = transports.pop()
        for n in range(forks):
            mine.write(b"x" * 100)
            end = time.monotonic() + n % 7 * 0.0004
            while time.monotonic() < end:
                pass
            pid = fork_in_c() if n % 2 else os.fork()
            if pid == 0:
                signal.alarm(30)
                code = 1
                # C's fork tells CPython nothing: without a GIL the collector would wait for
                # threads that are gone.
                collects = n % 2 == 0 or not without_gil
                if not collects:
                    gc.disable()
                try:
                    # The parent's transport may be read and dropped.
                    mine.get_write_buffer_size()
                    mine = None
                    if collects:
                        gc.collect()
                    if n % 2 == 0:  # C's fork leaves CPython in the middle of the task
                        asyncio._set_running_loop(None)
                        goloop.run(child())
                    code = 0
                finally:
                    os._exit(code)
            assert os.waitpid(pid, 0)[1] == 0, n
        mine.write(b"end")
        got = b""
        while len(got) < 100 * forks + 3:
            got += client.recv(65536)
        assert got == b"x" * 100 * forks + b"end"
        mine.abort()
        client.close()
        server.close()

    transports = []
    goloop.run(main(40))


def without_membarrier_there_are_fences(when: str) -> None:
    late = when == "later on"

    if not late:
        refuse()
    made = []

    class Keep(asyncio.Protocol):
        def connection_made(self, transport):
            made.append(transport)

    def write(data):
        # In pieces: they leave together, and not within write().
        made[0].write(data[:1])
        made[0].write(data[1:])

    async def main():
        loop = asyncio.get_running_loop()
        server = await loop.create_server(Keep, "127.0.0.1", 0)
        client = socket.create_connection(server.sockets[0].getsockname())
        client.settimeout(PATIENCE)
        while not made:
            await asyncio.sleep(0)

        def fences():
            return goloop.diagnostics(loop)["loop"]["fences"]

        assert fences() == (0 if late else 2)
        write(b"first")
        assert client.recv(100) == b"first"
        if late:
            assert fences() == 0
            refuse()
            # The monitor is refused, which it learns when it wants to send; so is this one.
            while fences() == 0:
                write(b"..")
                time.sleep(0.003)
                await asyncio.sleep(0)
            write(b"..")
            assert fences() == 2
            await asyncio.sleep(0)
            assert set(client.recv(100000)) == set(b".")
        # The monitor sends and then counts, and may lose the processor between the two; the turn
        # waits for the count.
        await asyncio.sleep(0)
        sent = loop.metrics().late_writes
        for n in range(200):
            write(b"n%d" % n)
            assert client.recv(100) == b"n%d" % n
            await asyncio.sleep(0)
        assert loop.metrics().late_writes - sent == 200
        made[0].abort()
        client.close()
        server.close()

    goloop.run(main())


def bytes_sent_within_write_are_not_late_writes() -> None:
    class Answers(asyncio.Protocol):
        def connection_made(self, transport):
            self.transport = transport

        def data_received(self, data):
            self.transport.write(data)
            if data == b"long":
                time.sleep(0.05)
            answered.append(data)

    answered = []

    async def main():
        loop = asyncio.get_running_loop()
        server = await loop.create_server(Answers, "127.0.0.1", 0)
        address = server.sockets[0].getsockname()
        clients = [socket.create_connection(address) for _ in range(2)]
        await asyncio.sleep(0.1)
        for message in [b"short"] + [b"long"] * 5:
            for client in clients:
                client.send(message)
            while len(answered) < 2:
                await asyncio.sleep(0)
            answered.clear()
        for client in clients:
            client.close()
        server.close()
        assert loop.metrics().late_writes == 0

    goloop.run(main())


def threads_have_names() -> None:
    async def main():
        loop = asyncio.get_running_loop()
        await loop.getaddrinfo("localhost", 80)
        end = time.monotonic() + 60
        while True:
            names = []
            for tid in os.listdir("/proc/self/task"):
                with open(f"/proc/self/task/{tid}/comm") as file:
                    names.append(file.read().strip())
            if "goloop-monitor" in names or time.monotonic() > end:
                break
            await asyncio.sleep(0.01)  # a thread names itself
        assert names.count("goloop-monitor") == names.count("goloop-resolve") == 1, names
        assert names.count("goloop-go") >= 3, names

    goloop.run(main())


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
