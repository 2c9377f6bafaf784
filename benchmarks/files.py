"""File I/O by io_uring compared with threads: `python -m benchmarks.files`.

The ring is a Python model of a possible `goloop.files`: all requests of one iteration go to the
kernel by one system call.  It is compared with aiofiles and anyio (pip install aiofiles anyio),
which use a thread for each call, and with a thread of the program itself.  All run on goloop, in
turns.  Each line has the median of the ratios to aiofiles and to anyio and its 95 %
interval (stats.py), of processor time and of elapsed time.  docs/benchmarks.md has the answer.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import mmap
import os
import random
import resource
import shutil
import statistics
import struct
import tempfile
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, cast

import aiofiles
import anyio

import goloop

from . import stats

BLOCK = 4096
FILE = 256 << 20
DEPTH = 32
COPY = 1 << 30

# ---- the model of a ring ------------------------------------------------------------------------

SETUP, ENTER, REGISTER = 425, 426, 427
SLOTS = 256
READ, WRITE = 22, 23
libc = ctypes.CDLL(None, use_errno=True)

Kinds = dict[str, Callable[[], Coroutine[Any, Any, None]]]


def call(number: int, *arguments: Any) -> int:
    """A system call."""
    result: int = libc.syscall(number, *arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


class Ring:
    """An io_uring that wakes the running loop by an eventfd for its completions."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        parameters = bytearray(120)
        self.fd = call(SETUP, SLOTS, (ctypes.c_char * 120).from_buffer(parameters))
        sq, cq = (
            struct.unpack_from("10I", parameters, 40),
            struct.unpack_from("10I", parameters, 80),
        )
        entries = struct.unpack_from("2I", parameters)
        size = max(sq[6] + 4 * entries[0], cq[5] + 16 * entries[1])
        self.map = mmap.mmap(self.fd, size, mmap.MAP_SHARED)
        self.requests = mmap.mmap(self.fd, 64 * entries[0], mmap.MAP_SHARED, offset=0x10000000)
        words = memoryview(self.map).cast("I")
        self.words, self.tail, self.mask = words, sq[1] // 4, entries[0] - 1
        for index in range(entries[0]):
            words[sq[6] // 4 + index] = index
        self.done_head, self.done_tail, self.done = cq[0] // 4, cq[1] // 4, cq[5]
        self.done_mask = entries[1] - 1
        self.wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        call(REGISTER, self.fd, 4, ctypes.byref(ctypes.c_int(self.wake)), 1)
        self.loop.add_reader(self.wake, self.woken)
        self.free = list(range(SLOTS))
        self.waiting: list[Any] = [None] * SLOTS
        self.pending = 0

    def ask(self, kind: int, fd: int, data: bytearray, offset: int) -> asyncio.Future[int]:
        """Return a future of the kernel's answer, which keeps `data` alive."""
        future: asyncio.Future[int] = self.loop.create_future()
        slot = self.free.pop()
        pinned = (ctypes.c_char * len(data)).from_buffer(data)
        self.waiting[slot] = future, pinned
        at = self.words[self.tail]
        struct.pack_into(
            "<BBHiQQIIQ24x", self.requests, (at & self.mask) * 64,
            kind, 0, 0, fd, offset, ctypes.addressof(pinned), len(data), 0, slot,
        )  # fmt: skip
        self.words[self.tail] = (at + 1) & 0xFFFFFFFF
        if not self.pending:
            self.loop.call_soon(self.submit)
        self.pending += 1
        return future

    def submit(self) -> None:
        """Submit all new requests; the kernel answers requests of cached pages at once."""
        count, self.pending = self.pending, 0
        call(ENTER, self.fd, count, 0, 0, None, 0)
        self.reap()

    def woken(self) -> None:
        os.eventfd_read(self.wake)
        self.reap()

    def reap(self) -> None:
        head, words = self.words[self.done_head], self.words
        while head != words[self.done_tail]:
            slot, result = struct.unpack_from(
                "<Qi", self.map, self.done + 16 * (head & self.done_mask)
            )
            head = (head + 1) & 0xFFFFFFFF
            words[self.done_head] = head
            future, _ = self.waiting[slot]
            self.waiting[slot] = None
            self.free.append(slot)
            if result < 0:
                future.set_exception(OSError(-result, os.strerror(-result)))
            else:
                future.set_result(result)

    def close(self) -> None:
        self.loop.remove_reader(self.wake)
        self.words.release()
        for each in (self.map, self.requests):
            each.close()
        os.close(self.wake)
        os.close(self.fd)


# ---- 4 KiB from random places, 32 at a time -----------------------------------------------------


async def everywhere(reads: int, read: Callable[[int, int], Any]) -> None:
    places = iter([random.randrange(FILE // BLOCK) * BLOCK for _ in range(reads)])

    async def worker(index: int) -> None:
        for place in places:
            assert len(await read(index, place)) == BLOCK

    await asyncio.gather(*(worker(index) for index in range(DEPTH)))


async def with_files(reads: int, path: Path, opened: Any, close: str) -> None:
    files = [await opened(path, "rb", buffering=0) for _ in range(DEPTH)]

    async def read(index: int, place: int) -> bytes:
        await files[index].seek(place)
        return cast(bytes, await files[index].read(BLOCK))

    await everywhere(reads, read)
    for file in files:
        await getattr(file, close)()


async def with_threads(reads: int, path: Path) -> None:
    loop = asyncio.get_running_loop()
    with path.open("rb") as file:
        fd = file.fileno()
        await everywhere(
            reads, lambda _, place: loop.run_in_executor(None, os.pread, fd, BLOCK, place)
        )


async def with_a_ring(reads: int, path: Path) -> None:
    ring = Ring()
    with path.open("rb") as file:

        async def read(_: int, place: int) -> bytes:
            data = bytearray(BLOCK)
            return bytes(data[: await ring.ask(READ, file.fileno(), data, place)])

        await everywhere(reads, read)
    ring.close()


# ---- a gigabyte from one file to another --------------------------------------------------------


async def copy_by_files(source: Path, target: Path, chunk: int, opened: Any, close: str) -> None:
    reading = await opened(source, "rb", buffering=0)
    writing = await opened(target, "wb", buffering=0)
    while data := await reading.read(chunk):
        await writing.write(data)
    for file in (reading, writing):
        await getattr(file, close)()


async def copy_by_a_ring(source: Path, target: Path, chunk: int) -> None:
    ring = Ring()
    with source.open("rb") as reading, target.open("wb") as writing:
        places = iter(range(0, COPY, chunk))

        async def worker() -> None:
            data = bytearray(chunk)
            for place in places:
                assert await ring.ask(READ, reading.fileno(), data, place) == chunk
                assert await ring.ask(WRITE, writing.fileno(), data, place) == chunk

        await asyncio.gather(*(worker() for _ in range(4)))
    ring.close()


async def copy_by_a_thread(source: Path, target: Path) -> None:
    await asyncio.to_thread(shutil.copyfile, source, target)


# ---- measurement --------------------------------------------------------------------------------


def measured(main: Callable[[], Coroutine[Any, Any, None]]) -> list[float]:
    def used() -> tuple[float, float]:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return usage.ru_utime + usage.ru_stime, time.perf_counter()

    before = used()
    goloop.run(main())
    return [now - then for now, then in zip(used(), before, strict=True)]


def shown(ratios: list[float]) -> str:
    found = stats.interval(ratios)
    low_high = f" ({found[0]:.2f} to {found[1]:.2f})" if found else ""
    return f"{statistics.median(ratios):.2f}{low_high}"


def compare(
    title: str,
    kinds: Kinds,
    prepare: Callable[[], object],
    rounds: int,
) -> None:
    print(f"\n{title}; {rounds} rounds")
    found: dict[str, list[list[float]]] = {name: [] for name in kinds}
    for _ in range(rounds):
        for name, main in kinds.items():
            prepare()
            found[name].append(measured(main))
    for name, times in found.items():
        line = f"{name:9} {statistics.median(cpu for cpu, _ in times):6.3f} s of CPU"
        for base in ("aiofiles", "anyio"):
            if name not in ("aiofiles", "anyio"):
                for what, column in (("CPU", 0), ("time", 1)):
                    pairs = zip(times, found[base], strict=True)
                    line += (
                        f" | {what} of {base} {shown([a[column] / b[column] for a, b in pairs])}"
                    )
        print(line, flush=True)


def forget(path: Path) -> None:
    """Drop the file from the page cache."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)


def fill(path: Path, size: int) -> None:
    with path.open("wb") as file:
        for _ in range(size >> 20):
            file.write(os.urandom(1 << 20))


def copies(source: Path, target: Path, chunk: int) -> Kinds:
    return {
        "aiofiles": lambda: copy_by_files(source, target, chunk, aiofiles.open, "close"),
        "anyio": lambda: copy_by_files(source, target, chunk, anyio.open_file, "aclose"),
        "ring": lambda: copy_by_a_ring(source, target, chunk),
        "thread": lambda: copy_by_a_thread(source, target),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--reads", type=int, default=5000)
    parser.add_argument("--directory", help="a directory on a disk, for files of 2.3 GiB")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        path, source, target = (Path(directory, name) for name in ("file", "source", "target"))
        fill(path, FILE)
        reads = options.reads
        kinds = {
            "aiofiles": lambda: with_files(reads, path, aiofiles.open, "close"),
            "anyio": lambda: with_files(reads, path, anyio.open_file, "aclose"),
            "thread": lambda: with_threads(reads, path),
            "ring": lambda: with_a_ring(reads, path),
        }
        what = f"{reads} reads of 4 KiB, {DEPTH} at a time"
        compare(f"{what}, from the page cache", kinds, path.read_bytes, options.rounds)
        compare(f"{what}, from the disk", kinds, lambda: forget(path), options.rounds)
        fill(source, COPY)

        def prepare() -> None:
            target.unlink(missing_ok=True)
            os.sync()

        for chunk in (64 << 10, 1 << 20):
            kinds = copies(source, target, chunk)
            compare(f"a copy of 1 GiB, {chunk >> 10} KiB at a time", kinds, prepare, options.rounds)


if __name__ == "__main__":
    main()
