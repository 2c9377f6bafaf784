"""add_reader, add_writer and their removal, on every kind of file descriptor."""

from __future__ import annotations

import asyncio
import gc
import os
import pty
import socket
import tempfile
import weakref
from pathlib import Path
from typing import Any

import pytest
from conftest import LoopFactory, tcp_pair
from protocols import Recorder, close_each, hang_up, one_turn, turns, until

Loop = asyncio.AbstractEventLoop


async def test_a_reader_is_called_until_it_is_removed(
    loop: Loop, pair: tuple[socket.socket, socket.socket]
) -> None:
    first, second = pair
    seen: list[Any] = []

    def readable(*args: Any) -> None:
        seen.append((args, first.recv(100)))

    assert loop.add_reader(first, readable, 1, "two") is None  # type: ignore[func-returns-value]
    await turns(5)
    assert seen == []
    second.send(b"abc")
    await until(lambda: seen)
    assert seen == [((1, "two"), b"abc")]
    assert loop.remove_reader(first) is True
    assert loop.remove_reader(first) is False
    second.send(b"def")
    await turns(5)
    assert len(seen) == 1


async def test_a_writer_is_called_in_each_turn_until_it_is_removed(
    loop: Loop, pair: tuple[socket.socket, socket.socket]
) -> None:
    first, _ = pair
    seen: list[int] = []
    loop.add_writer(first, seen.append, 1)
    # Level-triggered: it comes again in each turn while it is so.
    await until(lambda: len(seen) >= 3)
    assert loop.remove_writer(first) is True
    assert loop.remove_writer(first) is False
    count = len(seen)
    await turns(5)
    assert len(seen) == count


async def test_a_reader_and_a_writer_of_one_fd_are_separate(
    loop: Loop, pair: tuple[socket.socket, socket.socket]
) -> None:
    first, second = pair
    seen: list[str] = []

    def writable() -> None:
        seen.append("w")
        loop.remove_writer(first)

    def readable() -> None:
        seen.append("r" + first.recv(10).decode())

    loop.add_reader(first, readable)
    loop.add_writer(first, writable)
    await until(lambda: seen == ["w"])
    second.send(b"x")
    await until(lambda: seen == ["w", "rx"])
    assert loop.remove_writer(first) is False
    assert loop.remove_reader(first) is True


async def test_a_second_add_replaces_the_first(
    loop: Loop, pair: tuple[socket.socket, socket.socket]
) -> None:
    first, second = pair
    seen: list[str] = []
    loop.add_reader(first, seen.append, "old")
    loop.add_reader(first, seen.append, "new")
    second.send(b"x")
    await until(lambda: seen)
    loop.remove_reader(first)
    assert set(seen) == {"new"}


async def test_number_and_object_share_one_watch(loop: Loop) -> None:
    read_end, write_end = os.pipe()
    seen: list[str] = []
    loop.add_reader(read_end, seen.append, "number")
    os.write(write_end, b"x")
    await until(lambda: seen)
    with open(read_end, "rb", buffering=0) as stream:
        assert loop.remove_reader(stream) is True
        seen.clear()
        loop.add_reader(stream, seen.append, "object")
        await until(lambda: seen)
        assert loop.remove_reader(stream.fileno()) is True
    assert set(seen) == {"object"}
    os.close(write_end)


async def test_terminals_are_watched(loop: Loop) -> None:
    master, slave = pty.openpty()
    seen: list[bytes] = []
    loop.add_reader(master, lambda: seen.append(os.read(master, 100)))
    os.write(slave, b"typed")
    await until(lambda: seen == [b"typed"])
    loop.remove_reader(master)
    os.close(master)
    os.close(slave)


async def test_hang_up_counts_as_readable_and_writable(loop: Loop) -> None:
    read_end, write_end = os.pipe()
    seen: list[str] = []
    loop.add_reader(read_end, seen.append, "r")
    os.close(write_end)
    await until(lambda: seen)
    loop.remove_reader(read_end)
    os.close(read_end)
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    while True:
        try:
            os.write(write_end, b"x" * 65536)
        except BlockingIOError:
            break
    loop.add_writer(write_end, seen.append, "w")
    await turns(5)
    assert "w" not in seen
    os.close(read_end)
    await until(lambda: "w" in seen)
    loop.remove_writer(write_end)
    os.close(write_end)


async def test_regular_files_are_refused(loop: Loop) -> None:
    with tempfile.TemporaryFile() as stream:
        with pytest.raises(PermissionError):
            loop.add_reader(stream, print)
        with pytest.raises(PermissionError):
            loop.add_writer(stream, print)
        # The failure leaves no registration.
        assert loop.remove_reader(stream) is False
        assert loop.remove_writer(stream) is False


async def test_the_number_is_free_again_once_the_transport_is_closed(loop: Loop) -> None:
    near, far = tcp_pair()
    _, protocol = await loop.create_connection(Recorder, sock=near)
    fd = near.fileno()
    await hang_up(protocol)
    read_end, write_end = os.pipe()
    # The kernel gives the lowest free numbers, so it may be one of the two already.
    if write_end == fd:
        write_end = os.dup(write_end)
    if read_end != fd:
        os.dup2(read_end, fd)
        os.close(read_end)
    seen: list[int] = []
    loop.add_reader(fd, seen.append, 1)
    os.write(write_end, b"x")
    await until(lambda: seen)
    assert loop.remove_reader(fd) is True
    os.close(fd)
    os.close(write_end)
    far.close()


async def test_an_exception_in_a_reader_is_reported_and_the_reader_stays(
    loop: Loop, errors: Any
) -> None:
    first, second = tcp_pair()

    def fail() -> None:
        first.recv(10)
        raise ZeroDivisionError

    loop.add_reader(first, fail)
    second.send(b"x")
    await until(lambda: errors.contexts)
    context = errors.expect(ZeroDivisionError, "Exception in callback ")
    assert isinstance(context["handle"], asyncio.Handle)
    # The registration remains.
    second.send(b"y")
    await until(lambda: errors.contexts)
    errors.expect(ZeroDivisionError)
    assert loop.remove_reader(first) is True
    close_each(first, second)


async def test_a_reader_removed_in_its_turn_is_not_called(loop: Loop) -> None:
    pairs = [tcp_pair() for _ in range(2)]
    seen: list[int] = []

    def readable(number: int) -> None:
        seen.append(number)
        for first, _ in pairs:
            loop.remove_reader(first)

    for number, (first, second) in enumerate(pairs):
        loop.add_reader(first, readable, number)
        second.send(b"x")
    await until(lambda: seen)
    await turns(5)
    assert len(seen) == 1
    for first, second in pairs:
        close_each(first, second)


async def test_a_number_closed_without_removal_can_be_watched_by_its_next_owner(loop: Loop) -> None:
    """A stranger that gets the number is not watched, and can be."""
    first, second = tcp_pair()
    fd = first.fileno()
    seen: list[str] = []
    loop.add_reader(fd, seen.append, "old")
    await turns(3)
    first.close()
    stranger, peer = tcp_pair()
    if stranger.fileno() != fd:
        os.dup2(stranger.fileno(), fd)
        stranger.close()
        stranger = socket.socket(fileno=fd)
    peer.send(b"x")
    await turns(10)
    assert loop.remove_reader(fd) is True
    assert "old" not in seen
    loop.add_reader(fd, seen.append, "new")
    await until(lambda: seen)
    assert set(seen) == {"new"}
    loop.remove_reader(fd)
    close_each(second, stranger, peer)


async def test_duplicates_of_one_file_are_two_descriptors(loop: Loop) -> None:
    first, second = tcp_pair()
    copy = first.dup()
    seen: list[str] = []
    loop.add_reader(first, seen.append, "original")
    loop.add_reader(copy, seen.append, "copy")
    second.send(b"x")
    await until(lambda: {"original", "copy"} <= set(seen))
    loop.remove_reader(first)
    seen.clear()
    await until(lambda: seen)
    assert set(seen) == {"copy"}
    loop.remove_reader(copy)
    close_each(first, second, copy)


async def test_each_of_many_descriptors_has_its_own_reader(loop: Loop) -> None:
    pairs = [socket.socketpair() for _ in range(300)]
    seen: list[int] = []

    def readable(number: int) -> None:
        pairs[number][0].recv(1)
        seen.append(number)

    for number, (first, _) in enumerate(pairs):
        first.setblocking(False)
        loop.add_reader(first, readable, number)
    for _, second in pairs:
        second.send(b"x")
    await until(lambda: len(seen) == len(pairs))
    assert sorted(seen) == list(range(len(pairs)))
    for first, second in pairs:
        loop.remove_reader(first)
        close_each(first, second)


def test_watches_survive_between_runs(loop: Loop) -> None:
    first, second = tcp_pair()
    seen: list[int] = []
    loop.add_reader(first, seen.append, 1)
    one_turn(loop)
    second.send(b"x")
    loop.run_until_complete(until(lambda: seen))
    loop.remove_reader(first)
    close_each(first, second)


def test_closing_the_loop_leaves_watched_descriptors_open(loop_factory: LoopFactory) -> None:
    loop = loop_factory()
    first, second = tcp_pair()
    loop.add_reader(first, print)
    loop.add_writer(second, print)
    loop.close()
    first.send(b"x")
    second.setblocking(True)
    assert second.recv(1) == b"x"
    close_each(first, second)


async def test_a_fifo_is_watched(loop: Loop, tmp_path: Path) -> None:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    writer = os.open(path, os.O_WRONLY)
    seen: list[bytes] = []
    loop.add_reader(reader, lambda: seen.append(os.read(reader, 10)))
    os.write(writer, b"x")
    await until(lambda: seen == [b"x"])
    loop.remove_reader(reader)
    os.close(reader)
    os.close(writer)


@pytest.mark.parametrize("direction", ["reader", "writer"])
async def test_a_socket_that_was_closed_while_it_was_watched_can_be_removed(
    loop: Loop, pair: tuple[socket.socket, socket.socket], direction: str
) -> None:
    """The closed object has no number, and is found by identity; anyio needs this."""
    first, _ = pair
    getattr(loop, f"add_{direction}")(first, print)
    first.close()
    assert getattr(loop, f"remove_{direction}")(first) is True
    for remove in (loop.remove_reader, loop.remove_writer):
        with pytest.raises(ValueError, match="Invalid file descriptor: -1"):
            remove(first)
    with pytest.raises(ValueError, match="Invalid file descriptor: -1"):
        loop.remove_reader(-1)


async def test_a_watched_object_is_kept_alive(loop: Loop) -> None:
    first, second = tcp_pair()
    alive = weakref.ref(first)
    loop.add_reader(first, print)
    loop.add_writer(first, list)
    number = first.fileno()
    del first
    gc.collect()
    assert alive() is not None
    assert loop.remove_reader(number) is True
    assert alive() is not None
    alive().close()  # type: ignore[union-attr]
    assert loop.remove_writer(alive()) is True  # type: ignore[arg-type]
    gc.collect()
    assert alive() is None
    second.close()


async def test_the_next_owner_of_a_closed_sockets_number_is_watched_for_itself(loop: Loop) -> None:
    first, second = tcp_pair()
    third, fourth = tcp_pair()
    loop.add_reader(first, print)
    number = first.fileno()
    first.close()
    os.dup2(third.fileno(), number)
    another = socket.socket(fileno=number)
    assert loop.remove_reader(first) is True
    seen: list[bytes] = []
    loop.add_reader(another, lambda: seen.append(another.recv(10)))
    fourth.send(b"x")
    await until(lambda: seen == [b"x"])
    assert loop.remove_reader(another) is True
    close_each(second, third, fourth, another)
