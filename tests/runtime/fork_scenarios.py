"""The scenarios of test_fork.py: `python fork_scenarios.py NAME` runs one in this process.

Each function under "scenarios" is a scenario; it returns or raises an exception.  Scenarios
fork, and a fork can't be undone, so none of them runs inside pytest.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import multiprocessing
import os
import platform
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
import unittest
import warnings
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import goloop
from goloop import _core

# From 3.12 on os.fork warns in a process with threads, and Go has threads.
warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)

# Importing pytest would take longer than most scenarios.
raises_with = unittest.TestCase().assertRaisesRegex

libc = ctypes.CDLL(None, use_errno=True)
# C's fork with the GIL held.  CDLL lets go of it, so that another Python thread may have
# it at the fork; the child would then wait for it for ever, with any loop or none.
fork_with_the_gil = ctypes.PyDLL(None).fork

# ---- tools ---------------------------------------------------------------------------


async def echo(rounds: int = 3) -> None:
    """A server and a client over TCP, a name, and Go's collector."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.close()

    loop = asyncio.get_running_loop()
    assert isinstance(loop, goloop.Loop)
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for i in range(rounds):
        message = bytes([i]) * 20_000
        writer.write(message)
        assert await reader.readexactly(len(message)) == message
    writer.close()
    await writer.wait_closed()
    server.close()
    await server.wait_closed()
    answers = await asyncio.gather(*(loop.getaddrinfo("localhost", port) for _ in range(5)))
    assert all(answers)
    await asyncio.sleep(0.001)


def works(mode: str | None = None) -> None:
    """Check that this process can run a loop, on a Go runtime that it got by `mode`."""
    goloop.run(echo())
    if mode is not None:
        facts = goloop.diagnostics()["library"]
        assert facts["mode"] == mode, facts


def thread_names() -> set[str]:
    names = set()
    for comm in Path("/proc/self/task").glob("*/comm"):
        with contextlib.suppress(OSError):
            names.add(comm.read_text().strip())
    return names


def alone() -> None:
    """Waits until no other thread can have the GIL, or want it: look-ups' end with their loop."""
    while len(sys._current_frames()) > 1 or "goloop-resolve" in thread_names():
        time.sleep(0.001)


def child(body: Callable[[], object], fork: Callable[[], int] = os.fork) -> int:
    """Forks; the child runs body() and exits with 0 if that returned.

    C's fork(3) copies the GIL's state: if another thread had it the child would wait for ever.
    """
    if fork is not os.fork:
        alone()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = fork()
    if pid:
        return pid
    code = 1
    try:
        body()
        code = 0
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


def ended_well(*pids: int) -> None:
    """Waits for the children; all of them exited with 0."""
    for pid in pids:
        _, status = os.waitpid(pid, 0)
        assert status == 0, f"child {pid}: {os.waitstatus_to_exitcode(status)}"


def raw_clone() -> int:
    """fork(2) without any of libc's care."""
    number = {"x86_64": 56, "aarch64": 220}[platform.machine()]
    return int(libc.syscall(number, int(signal.SIGCHLD), 0, 0, 0, 0))


def refused() -> contextlib.AbstractContextManager[object]:
    """Expect the RuntimeError of objects that belong to the parent."""
    return raises_with(RuntimeError, r"after fork\(\)")


class Recorder(asyncio.Protocol):
    """Keeps the received bytes."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.lost = False

    def data_received(self, data: bytes) -> None:
        self.received += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True


async def until(condition: Callable[[], object]) -> None:
    """Lets the loop run until the condition holds."""
    while not condition():
        await asyncio.sleep(0.001)


# ---- scenarios: before, between and inside runs --------------------------------------


def import_then_fork() -> None:
    """No Go before the fork: both sides open the library themselves."""
    assert goloop.diagnostics()["library"]["mode"] == "unopened"
    pid = child(lambda: works("first"))
    works("first")
    ended_well(pid)


def fork_after_a_closed_loop() -> None:
    """The parent had a loop, and closed it."""
    works("first")
    ended_well(*[child(lambda: works("restarted")) for _ in range(3)])
    works("first")


def fork_with_an_idle_loop() -> None:
    """The parent's loop is open but does not run; the child's new one works."""
    loop = goloop.new_event_loop()
    loop.run_until_complete(echo())

    def body() -> None:
        with refused():
            loop.run_until_complete(future)
        with refused():
            loop.call_soon(print)
        works("restarted")

    future = loop.create_future()
    ended_well(child(body))
    loop.run_until_complete(echo())
    loop.close()


def fork_inside_a_running_loop() -> None:
    """From a coroutine; the child runs a loop while the parent's frames lie below it."""

    async def main() -> None:
        for _ in range(3):
            pid = child(lambda: works("restarted"))
            await echo()
            while os.waitpid(pid, os.WNOHANG)[0] == 0:
                await asyncio.sleep(0.001)
        pids = [child(lambda: works("restarted")) for _ in range(3)]
        await echo()
        ended_well(*pids)

    goloop.run(main())


def fork_from_an_executor_thread() -> None:
    """The forking thread is none that ever ran a loop."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        for _ in range(3):
            pid = await loop.run_in_executor(None, child, lambda: works("restarted"))
            await echo()
            ended_well(pid)

    goloop.run(main())


def child_that_returns_into_the_parents_frames() -> None:
    """A child that forgets to exit leaves the parent's loop by an exception, and ends."""
    loop = goloop.new_event_loop()
    pid = 0

    async def main() -> None:
        nonlocal pid
        pid = os.fork()
        if pid:
            await echo()
            return
        await asyncio.sleep(0)

    try:
        loop.run_until_complete(main())
    except RuntimeError:
        assert pid == 0
        works("restarted")
        os._exit(7)
    assert pid
    loop.close()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7


def returning_child_takes_no_received_data() -> None:
    """A callback forks, and others are ready in the same turn: each is the parent's alone."""
    parent = os.getpid()
    into, out = os.pipe()

    class Notes(asyncio.Protocol):
        def __init__(self, forks: bool) -> None:
            self.forks = forks

        def data_received(self, data: bytes) -> None:
            os.write(out, b"p" if os.getpid() == parent else b"c")
            if self.forks and (pid := os.fork()):
                os.waitpid(pid, 0)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        fars = []
        for forks in (True, False, False):
            near, far = socket.socketpair()
            fars.append(far)
            await loop.create_connection(lambda forks=forks: Notes(forks), sock=near)
        reader, watched = socket.socketpair()
        loop.add_reader(reader, lambda: os.write(out, reader.recv(1)))
        for far in fars:
            far.send(b"data")
        watched.send(b"w")
        await asyncio.sleep(0.1)
        loop.remove_reader(reader)
        for each in (*fars, reader, watched):
            each.close()

    try:
        goloop.run(main())
    except BaseException:
        assert os.getpid() != parent
        os._exit(0)
    assert os.getpid() == parent
    os.close(out)
    assert sorted(os.read(into, 100)) == sorted(b"pppw")


# ---- scenarios: the parent's objects in the child ------------------------------------


def parents_loop_is_refused() -> None:
    """Each entry of the parent's loop raises RuntimeError in the child."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, goloop.Loop)
        left, right = socket.socketpair()
        left.setblocking(False)
        right.setblocking(False)
        handle = loop.call_later(1000, print)
        loop.add_reader(left, print)

        def body() -> None:
            for entry in (
                lambda: loop.call_soon(print),
                lambda: loop.call_soon_threadsafe(print),
                lambda: loop.call_later(0, print),
                lambda: loop.call_at(0, print),
                lambda: loop.add_reader(right, print),
                lambda: loop.add_writer(right, print),
                lambda: loop.add_signal_handler(signal.SIGUSR1, print),
                lambda: loop.run_in_executor(None, print),
                lambda: loop.getaddrinfo("localhost", 80).send(None),
                lambda: loop.sock_recv(left, 1).send(None),
                lambda: loop.sock_sendall(left, b"x").send(None),
                lambda: loop.run_forever(),
                lambda: loop.run_until_complete(loop.create_future()),
            ):
                with refused():
                    entry()
            # Calls that only read, or release the child's copy; they must not fail.
            handle.cancel()
            loop.remove_reader(left)
            loop.stop()
            assert loop.time() > 0
            repr(loop)
            works("restarted")

        pid = child(body)
        await echo()
        ended_well(pid)
        assert loop.remove_reader(left)
        handle.cancel()
        left.close()
        right.close()

    goloop.run(main())


def parents_loop_can_be_dropped() -> None:
    """Close or lose the parent's loop in the child, which must not disturb the parent."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        left, right = socket.socketpair()
        transport, protocol = await loop.create_connection(Recorder, sock=left)
        right.setblocking(False)

        def body() -> None:
            works("restarted")
            gc.collect()

        ended_well(child(body))
        await loop.sock_sendall(right, b"still here")
        await until(lambda: protocol.received == b"still here")
        transport.close()
        right.close()
        await echo()

    goloop.run(main())

    loop = goloop.new_event_loop()
    loop.run_until_complete(echo())

    def body() -> None:
        nonlocal loop
        gone = weakref.ref(loop)
        with contextlib.suppress(RuntimeError):
            loop.close()
        del loop
        gc.collect()
        assert gone() is None
        works("restarted")

    ended_well(child(body))
    loop.run_until_complete(echo())
    loop.close()


def parents_transport_is_refused() -> None:
    """A child can't write to, close or abort the parent's connection by its transport."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        left, right = socket.socketpair()
        right.setblocking(False)
        transport, protocol = await loop.create_connection(Recorder, sock=left)

        def body() -> None:
            for entry in (
                lambda: transport.write(b"from the child"),
                lambda: transport.writelines([b"from the child"]),
                lambda: transport.write_eof(),
                lambda: transport.pause_reading(),
                lambda: transport.close(),
                lambda: transport.abort(),
            ):
                with refused():
                    entry()
            works("restarted")
            gc.collect()

        ended_well(child(body))
        transport.write(b"from the parent")
        assert await loop.sock_recv(right, 100) == b"from the parent"
        await loop.sock_sendall(right, b"an answer")
        await until(lambda: protocol.received)
        assert protocol.received == b"an answer"
        assert not protocol.lost
        transport.close()
        await until(lambda: protocol.lost)
        right.close()

    goloop.run(main())


def parent_does_not_spin() -> None:
    """A closed connection that a child still holds must leave the parent's poller."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, goloop.Loop)
        left, right = socket.socketpair()
        right.setblocking(False)
        transport, protocol = await loop.create_connection(Recorder, sock=left)
        watched, other = socket.socketpair()
        watched.setblocking(False)
        loop.add_reader(watched, print)
        down, up = os.pipe()

        def hold() -> None:
            os.close(up)
            os.read(down, 1)  # until the parent has ended the pipe

        pid = child(hold)
        transport.close()
        await until(lambda: protocol.lost)
        loop.remove_reader(watched)
        watched.close()
        # The child's copies become readable; the parent has nothing to do with them.
        right.send(b"x")
        other.send(b"x")
        before = goloop.diagnostics()["loop"]["turns"]
        await asyncio.sleep(0.2)
        turns = goloop.diagnostics()["loop"]["turns"] - before
        assert turns < 20, turns
        os.close(up)
        os.close(down)
        ended_well(pid)
        right.close()
        other.close()

    goloop.run(main())


# ---- scenarios: ways to fork ---------------------------------------------------------


def nested_forks() -> None:
    """Child, grandchild, ... each with a loop before, during and after."""

    def descend(depth: int) -> None:
        works("restarted")

        async def main() -> None:
            if depth < 5:
                pid = child(lambda: descend(depth + 1))
                await echo()
                ended_well(pid)

        goloop.run(main())
        works("restarted")
        assert goloop.diagnostics()["library"]["instances"] == depth + 1

    works("first")
    ended_well(child(lambda: descend(1)))
    works("first")


def nested_forks_of_idle_processes() -> None:
    """The processes between have no loop of their own."""
    works("first")

    def descend(depth: int) -> None:
        if depth < 4:
            ended_well(child(lambda: descend(depth + 1)))
        else:
            works("restarted")

    ended_well(child(lambda: descend(1)))
    works("first")


def fork_from_c() -> None:
    """fork(3), _Fork(3) and the bare system call, none of which Python hears of."""
    works("first")
    for fork in (libc.fork, getattr(libc, "_Fork", raw_clone), raw_clone):
        ended_well(child(lambda: works("restarted"), fork))
    ended_well(child(lambda: works("restarted")))

    def counts_its_own() -> None:
        goloop.new_event_loop().close()
        assert goloop.metrics().turns == 0

    ended_well(child(counts_its_own, libc.fork))

    async def main() -> None:
        loop = asyncio.get_running_loop()

        def body() -> None:
            with refused():
                loop.call_soon(print)

        ended_well(child(body, libc.fork))
        await echo()

    goloop.run(main())


def child_forked_by_a_thread_ends() -> None:
    """The thread's function returns in the child, which has a Go runtime by then."""
    works("first")
    pids: list[int] = []

    def body() -> None:
        pid = os.fork()
        if pid:
            pids.append(pid)
        else:
            works("restarted")

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    ended_well(*pids)


def subprocess_with_preexec_fn() -> None:
    """subprocess forks (or vforks) and executes; the parent's loop sees none of it."""

    async def main() -> None:
        for options in ({}, {"preexec_fn": os.getpid}):
            done = subprocess.run(
                [sys.executable, "-c", "print(6 * 7)"], stdout=subprocess.PIPE, **options
            )
            assert done.stdout.strip() == b"42"
            await echo()

    goloop.run(main())


def daemon() -> None:
    """A daemon's way: fork twice, new session, close every descriptor."""
    works("first")
    down, up = os.pipe()

    def first() -> None:
        os.setsid()
        child(second)

    def second() -> None:
        top = 200
        os.dup2(up, top)
        os.closerange(0, top)
        os.closerange(top + 1, 1024)
        for fd in (0, 1, 2):
            os.open("/dev/null", os.O_RDWR)
            assert fd < 3
        works("restarted")
        os.write(top, b"done")

    ended_well(child(first))
    os.close(up)
    assert os.read(down, 10) == b"done"
    os.close(down)


# ---- scenarios: worker pools ---------------------------------------------------------


def _worker(number: int) -> int:
    goloop.run(echo())
    return number * number


def _multiprocessing(method: str, in_loop: bool) -> None:
    context: Any = multiprocessing.get_context(method)

    def use() -> None:
        with context.Pool(2) as pool:
            assert pool.map(_worker, range(6), chunksize=1) == [0, 1, 4, 9, 16, 25]
        process = context.Process(target=_worker, args=(2,))
        process.start()
        process.join()
        assert process.exitcode == 0, process.exitcode

    async def main() -> None:
        await echo()
        use()
        await echo()

    if in_loop:
        goloop.run(main())
    else:
        use()
        works()
        use()
    works()


def multiprocessing_fork() -> None:
    """Workers of multiprocessing, by fork, without and after a loop in the parent."""
    _multiprocessing("fork", in_loop=False)


def multiprocessing_fork_in_loop() -> None:
    """Use multiprocessing's fork from inside a running loop."""
    _multiprocessing("fork", in_loop=True)


def multiprocessing_forkserver() -> None:
    """Workers by forkserver."""
    _multiprocessing("forkserver", in_loop=True)


def multiprocessing_spawn() -> None:
    """Workers by spawn."""
    _multiprocessing("spawn", in_loop=True)


def _prefork(in_master: bool) -> None:
    # As gunicorn does: the master listens, the workers accept.
    listening = socket.create_server(("127.0.0.1", 0), backlog=64)
    listening.setblocking(False)
    port = listening.getsockname()[1]
    if in_master:
        works("first")

    def worker() -> None:
        async def main() -> None:
            loop = asyncio.get_running_loop()
            end = loop.create_future()
            loop.add_signal_handler(signal.SIGTERM, end.set_result, None)
            server: asyncio.Server

            async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                # Each worker gets a new connection, so that all four are seen to serve.
                server.close()
                writer.write(b"%d\n" % os.getpid())
                while data := await reader.read(100):
                    writer.write(data)
                writer.close()

            server = await asyncio.start_server(serve, sock=listening)
            await end

        goloop.run(main())
        mode = goloop.diagnostics()["library"]["mode"]
        assert mode == ("restarted" if in_master else "first"), mode

    pids = {child(worker) for _ in range(4)}

    async def talk() -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        pid = int(await reader.readline())
        for i in range(50):
            message = b"%010d" % i
            writer.write(message)
            assert await reader.readexactly(len(message)) == message
        writer.close()
        await writer.wait_closed()
        return pid

    async def clients() -> set[int]:
        served: set[int] = set()
        while len(served) < 4:
            # A worker that closed its listener may have let a second one in before.
            served.add(await talk())
        return served

    # The clients' loop must not be the master's Go where the master shall have none.
    runner = goloop.run if in_master else asyncio.run
    assert runner(clients()) == pids
    for pid in pids:
        os.kill(pid, signal.SIGTERM)
    ended_well(*pids)
    listening.close()


def prefork_with_a_loop_in_the_master() -> None:
    """Four workers of a master that runs loops itself."""
    _prefork(in_master=True)


def prefork_without_a_loop_in_the_master() -> None:
    """Four workers of a master that only imported goloop."""
    _prefork(in_master=False)
    assert goloop.diagnostics()["library"]["mode"] == "unopened"


# ---- scenarios: objects that a child does not need ------------------------------------


def no_file_may_grow() -> None:
    """A child needs no copy of the library, neither in memory nor on disk."""
    import resource

    works("first")
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    ended_well(child(lambda: works("restarted")))
    ended_well(child(lambda: works("restarted"), libc.fork))


def another_thread_of_the_child_starts_go() -> None:
    """The thread that has forked is known to the dead runtime, and comes to the new one later."""
    works("first")

    def body() -> None:
        other = threading.Thread(target=lambda: works("restarted"))
        other.start()
        other.join()
        works("restarted")
        ended_well(child(lambda: works("restarted")))

    for fork in (os.fork, libc.fork, raw_clone):
        ended_well(child(body, fork))


# ---- scenarios: the memory of the dead runtime -----------------------------------------


def mapped() -> tuple[int, int]:
    """The size of the process's address space in MiB, and the number of its mappings."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    lines = Path("/proc/self/maps").read_text().count("\n")
    return pages * os.sysconf("SC_PAGESIZE") >> 20, lines


def run_without_threads() -> None:
    """Runs a loop without threads of Python, which use memory and wait for the GIL."""
    goloop.run(asyncio.sleep(0.001))


def descend(generations: int, fork: Callable[[], int], check: Callable[[], None]) -> None:
    """Runs a loop in a child, in its child, and so on; the last one calls check()."""

    def body() -> None:
        run_without_threads()
        if generations > 1:
            descend(generations - 1, fork, check)
        else:
            check()

    ended_well(child(body, fork))


def generations_do_not_add_up() -> None:
    """Each child unmaps the memory of the dead runtime, 1.1 GiB in 20 ranges."""
    generations = 20
    run_without_threads()
    for fork in (os.fork, fork_with_the_gil):
        first: list[tuple[int, int]] = []

        def compare(first: list[tuple[int, int]] = first) -> None:
            space, lines = mapped()
            # glibc 2.43 does not use the stacks of the ended threads again, 8 MiB for each.
            assert space < first[0][0] + 150 * generations, (first, space)
            assert lines < first[0][1] + 8 * generations, (first, lines)

        def go_on(
            fork: Callable[[], int] = fork,
            first: list[tuple[int, int]] = first,
            compare: Callable[[], None] = compare,
        ) -> None:
            first.append(mapped())
            descend(generations, fork, compare)

        descend(1, fork, go_on)
    works("first")


def raw_forks_leave_stacks_only() -> None:
    """libc does not free the stacks of threads that a fork without it has ended; Go's heap goes."""
    run_without_threads()
    before, _ = mapped()
    number = {"x86_64": 56, "aarch64": 220}[platform.machine()]
    syscall = ctypes.PyDLL(None).syscall

    def compare() -> None:
        assert mapped()[0] < before + 5 * 800, (before, mapped())

    descend(5, lambda: int(syscall(number, int(signal.SIGCHLD), 0, 0, 0, 0)), compare)


def address_space_for_one_runtime() -> None:
    """A limit that lets the parent run lets its children and grandchildren run."""
    import resource

    # The number of arenas of malloc, 64 MiB each, depends on the machine's load: one for all.
    m_arena_max = -8
    libc.mallopt(m_arena_max, 1)
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    # The library asks for 2000 at first.  A child that keeps the dead runtime would need 2400.
    limit = (mapped()[0] + 2000 + 32) << 20
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    run_without_threads()
    descend(2, os.fork, run_without_threads)
    descend(2, fork_with_the_gil, run_without_threads)


def memory_of_others_stays() -> None:
    """A child unmaps memory of Go only, also if Go maps and other code unmaps at the fork."""
    import mmap

    content = b"not Go's" * 512
    kept = []
    ended = threading.Event()

    def churn() -> None:
        while not ended.is_set():
            parts = [mmap.mmap(-1, 65536 * (1 + i % 3)) for i in range(20)]
            for part in parts:
                part.close()

    def body() -> None:
        works("restarted")
        assert all(part[: len(content)] == content for part in kept)
        ended_well(child(lambda: works("restarted")))
        assert all(part[: len(content)] == content for part in kept)

    threads = [threading.Thread(target=churn) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(10):
            works("first")
            kept += [mmap.mmap(-1, 65536 + 4096 * i) for i in range(20)]
            for part in kept:
                part[: len(content)] = content
            ended_well(child(body))
    finally:
        ended.set()
        for thread in threads:
            thread.join()


# ---- the stopped world ---------------------------------------------------------------


def stopped_world() -> None:
    """Threads stop the world in a loop while this one forks FORKS children, which collect garbage.

    WAY is the function of goloop that stops the world.  The child's collector stops it, too.
    """
    stop = threading.Event()
    running = threading.Event()
    loop = goloop.new_event_loop()
    ident = threading.get_ident()

    async def suspended() -> None:
        """Has an await chain of one coroutine."""

    coroutine = suspended()

    def compute() -> None:
        running.set()
        while not stop.is_set():
            pass

    def run_loop() -> None:
        loop.call_soon(compute)
        loop.call_soon(loop.stop)
        loop.run_forever()

    ways: dict[str, Callable[[], object]] = {
        "await chain": lambda: _core._await_frames(coroutine),
        "stack": lambda: _core._thread_stack(ident),
        # The owner of the lock computes, so a thread that waits stops the world to get it.
        "lock of a loop": loop.is_closed,
    }
    way = ways[os.environ["WAY"]]

    def stop_world() -> None:
        running.wait()
        while not stop.is_set():
            way()

    def body() -> None:
        cycle: list[object] = []
        cycle.append(cycle)
        del cycle
        assert gc.collect() > 0

    # CPython 3.13 itself hangs in a child that was forked while another thread began to collect.
    gc.disable()
    threads = [threading.Thread(target=stop_world) for _ in range(2)]
    if way is loop.is_closed:
        threads.append(threading.Thread(target=run_loop))
    else:
        running.set()
    for thread in threads:
        thread.start()
    try:
        for _ in range(int(os.environ["FORKS"])):
            _wait_bounded(child(body), 30)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    coroutine.close()
    loop.close()


# ---- the stress ----------------------------------------------------------------------


def _wait_bounded(pid: int, seconds: float) -> None:
    """Like ended_well, but a child that hangs is killed and shown."""
    fd = os.pidfd_open(pid)
    ready, _, _ = select.select([fd], [], [], seconds)
    os.close(fd)
    if not ready:
        stacks = []
        for tid in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{tid}/syscall") as file:
                stacks.append(file.read().strip())
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise AssertionError(f"child {pid} hangs in {stacks}")
    ended_well(pid)


def stress() -> None:
    """FORKS children with sockets, goroutines and collections; a share beside dlopen."""
    forks = int(os.environ["FORKS"])
    beside_dlopen = forks // 15
    works("first")
    stop = threading.Event()

    def churn() -> None:
        libc.dlopen.restype = ctypes.c_void_p
        libc.dlopen.argtypes = [ctypes.c_char_p, ctypes.c_int]
        libc.dlclose.argtypes = [ctypes.c_void_p]
        names = (b"libz.so.1", b"libexpat.so.1", b"liblzma.so.5", b"libm.so.6")
        while not stop.is_set():
            for name in names:
                handle = libc.dlopen(name, os.RTLD_NOW)
                if handle:
                    libc.dlclose(handle)

    def body() -> None:
        works("restarted")
        runtime: dict[str, Any] = {}

        async def look() -> None:
            runtime.update(goloop.diagnostics()["runtime"])

        goloop.run(look())
        assert runtime["collections"] > 0, runtime

    for i in range(forks - beside_dlopen):
        _wait_bounded(child(body, fork_with_the_gil if i % 10 == 9 else os.fork), 30)
    thread = threading.Thread(target=churn, daemon=True)
    thread.start()
    # os.fork only: CPython's child of a bare fork hands the GIL to a thread that asked for
    # it in the parent, and waits for ever for that thread to take it.
    for _ in range(beside_dlopen):
        _wait_bounded(child(body), 30)
    stop.set()
    thread.join()
    works("first")


if __name__ == "__main__":
    globals()[sys.argv[1]]()
