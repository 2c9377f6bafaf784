"""A loop's life on a kernel that lacks, refuses or limits the features that goloop needs.

    limited_kernel.py CASE MOMENT

The case is `EPERM` or `ENOSYS`, for system calls that a seccomp filter answers so, or one of PROC.
The moment is `first`, or `later` for a filter that comes while a loop runs.  With `own table`
a thread has other descriptors than the main thread, which /proc/self shows.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import os
import platform
import socket
import struct
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "support"))

from protocols import Echo

import goloop

# Numbers on x86-64 and aarch64; from pidfd_send_signal on they are the same on both.
CALLS = {
    "kcmp": (312, 272),
    "memfd_create": (319, 279),
    "membarrier": (324, 283),
    "process_vm_readv": (310, 270),
    "epoll_pwait2": (441, 441),
    "pidfd_open": (434, 434),
    "pidfd_send_signal": (424, 424),
}
LATER = {"membarrier", "process_vm_readv", "epoll_pwait2", "pidfd_send_signal"}
SECCOMP = (317, 277)
NOT_POSSIBLE = 77

libc = ctypes.CDLL(None, use_errno=True)
machine = ("x86_64", "aarch64").index(platform.machine())


def impossible(reason: str) -> None:
    print(reason)
    sys.exit(NOT_POSSIBLE)


def refuse(calls: set[str], answer: int) -> None:
    """For all threads of the process, and its children."""
    numbers = sorted(CALLS[each][machine] for each in calls)
    steps = [(0x20, 0, 0, 0)]  # load the number of the call
    for i, number in enumerate(numbers):
        steps.append((0x15, len(numbers) - i, 0, number))  # equal: jump to the answer
    steps.append((0x06, 0, 0, 0x7FFF0000))  # allow
    steps.append((0x06, 0, 0, 0x00050000 | answer))
    program = b"".join(struct.pack("=HBBI", *step) for step in steps)
    buffer = ctypes.create_string_buffer(program, len(program))
    filters = ctypes.create_string_buffer(struct.pack("@HP", len(steps), ctypes.addressof(buffer)))
    libc.prctl(38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS
    if libc.syscall(SECCOMP[machine], 1, 1, filters) != 0:
        impossible(f"no filter of system calls: {os.strerror(ctypes.get_errno())}")
    for number in numbers:
        assert libc.syscall(number, 0, 0, 0, 0, 0, 0) == -1
        assert ctypes.get_errno() == answer, number


def mount(source: str, target: str, kind: str | None, flags: int) -> None:
    encoded = kind and kind.encode()
    if libc.mount(source.encode(), target.encode(), encoded, flags, None) != 0:
        impossible(f"{target}: {os.strerror(ctypes.get_errno())}")


def private_mounts() -> None:
    new_mounts, new_user = 0x20000, 0x10000000
    if libc.unshare(new_mounts) != 0 and libc.unshare(new_mounts | new_user) != 0:
        impossible(f"no mounts of its own: {os.strerror(ctypes.get_errno())}")
    mount("none", "/", None, 0x4000 | 0x40000)  # MS_REC, MS_PRIVATE


def no_proc() -> None:
    mount("none", "/proc", "tmpfs", 0)
    mount("none", "/sys", "tmpfs", 0)


def flags_only() -> None:
    """The facts of a descriptor as gVisor has them."""
    with tempfile.TemporaryDirectory() as folder:
        for number in range(64):
            with open(f"{folder}/{number}", "w") as file:
                file.write("flags:\t02\n")
        for each in (
            f"/proc/{os.getpid()}/task/{os.getpid()}/fdinfo",
            f"/proc/{os.getpid()}/fdinfo",
        ):
            mount(folder, each, None, 0x1000)  # MS_BIND
        limited_to("flags:\t02\n")


def empty() -> None:
    """Files without a line: facts of descriptors, a process, its threads and its sockets."""
    me = f"/proc/{os.getpid()}"
    with tempfile.TemporaryDirectory() as folder:
        for number in range(64):
            with open(f"{folder}/{number}", "w"):
                pass
        for each in (f"{me}/task/{os.getpid()}/fdinfo", f"{me}/fdinfo"):
            mount(folder, each, None, 0x1000)
        for each in (
            f"{me}/stat",
            f"{me}/cmdline",
            f"{me}/task/{os.getpid()}/comm",
            f"{me}/net/unix",
        ):
            mount("/dev/null", each, None, 0x1000)
        limited_to("")


def limited_to(text: str) -> None:
    with open("/proc/thread-self/fdinfo/0") as facts:
        assert facts.read() == text


PROC = {"no /proc": no_proc, "flags only": flags_only, "empty files": empty}


async def echo() -> None:
    """More connections at once than eager turns have."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Echo, "127.0.0.1", 0)
    address = server.sockets[0].getsockname()[:2]
    pairs = [await asyncio.open_connection(*address) for _ in range(12)]
    for _ in range(3):
        for _, writer in pairs:
            writer.write(b"x" * 100)
        for reader, _ in pairs:
            assert await reader.readexactly(100) == b"x" * 100
    for _, writer in pairs:
        writer.close()
        await writer.wait_closed()
    server.close()
    await server.wait_closed()


async def others() -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, goloop.Loop)
    child = await asyncio.create_subprocess_exec("/bin/sh", "-c", "exit 3")
    assert await child.wait() == 3
    assert await asyncio.to_thread(int, "1") == 1
    assert await loop.getaddrinfo("127.0.0.1", 80, type=socket.SOCK_STREAM)
    await asyncio.sleep(0.001)
    near, far = socket.socketpair()
    near.setblocking(False)
    _, writer = await asyncio.open_connection(sock=near)
    writer.write(b"late")
    await asyncio.sleep(0)
    assert far.recv(10) == b"late"
    writer.close()
    far.close()
    assert goloop.diagnostics(loop)
    loop.set_slow_limit(0.001)
    time.sleep(0.005)  # an iteration whose stack the monitor wants to read
    await asyncio.sleep(0)
    assert loop.slow_iterations()


def descriptors() -> int:
    """Without /proc, which this case may lack."""
    found = 0
    for number in range(256):
        try:
            os.fstat(number)
        except OSError:
            continue
        found += 1
    return found


def run() -> None:
    goloop.run(echo())
    goloop.run(others())


def own_table() -> None:
    ready, go = threading.Event(), threading.Event()
    failed: list[BaseException] = []

    def work() -> None:
        try:
            if libc.unshare(0x400) != 0:  # CLONE_FILES
                impossible(os.strerror(ctypes.get_errno()))
            ready.set()
            go.wait()
            run()
            before = descriptors()
            run()
            assert descriptors() == before, (before, descriptors())
        except BaseException as error:
            failed.append(error)
        finally:
            ready.set()

    run()
    thread = threading.Thread(target=work)
    thread.start()
    ready.wait()
    files = [os.open("/dev/null", os.O_RDWR) for _ in range(100)]
    go.set()
    thread.join()
    for each in files:
        os.close(each)
    for error in failed:
        raise error


def main(case: str, moment: str) -> None:
    if case == "own table":
        own_table()
        print("passed")
        return
    answer = getattr(errno, case, None)
    if case in PROC:
        private_mounts()
        PROC[case]()
    elif moment == "first":
        refuse(set(CALLS), answer)
    else:

        async def later() -> None:
            await echo()
            refuse(LATER, answer)
            await echo()
            await others()

        goloop.run(later())
    run()
    before = descriptors()
    run()
    assert descriptors() == before, (before, descriptors())
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            run()
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    print("passed")


if __name__ == "__main__":
    main(*sys.argv[1:])
