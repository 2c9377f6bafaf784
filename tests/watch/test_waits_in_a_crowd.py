"""Waits of sock_recv and sock_sendall when many sockets are busy.

goloop then does not report a wait to the kernel if it follows another one on the same descriptor
(netloop/watches.go, assumedArmed). So these tests are about numbers that name another file
meanwhile, and about sockets without waiters.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from protocols import close_each, turns

import goloop

CROWD = 16
Loop = asyncio.AbstractEventLoop
Pair = tuple[socket.socket, socket.socket]


def pair() -> Pair:
    first, second = socket.socketpair()
    first.setblocking(False)
    second.setblocking(False)
    return first, second


@pytest.fixture
def crowd() -> Iterator[list[Pair]]:
    pairs = [pair() for _ in range(CROWD)]
    yield pairs
    for each in pairs:
        close_each(*each)


Between = Callable[[list[Pair], int], None]


async def exchange(
    loop: Loop, crowd: list[Pair], rounds: int = 6, between: Between | None = None
) -> None:
    """Every socket receives, and waits again in the same iteration; the last one of a round has the
    next round sent. `between` is called for each before it waits again."""
    received = 0

    def send() -> None:
        for _, second in crowd:
            second.send(b"%d" % (received // CROWD))

    async def receive(index: int) -> None:
        nonlocal received
        for count in range(rounds):
            assert await loop.sock_recv(crowd[index][0], 100) == b"%d" % count
            if between is not None:
                between(crowd, index)
            received += 1
            if received % CROWD == 0 and count + 1 < rounds:
                loop.call_soon(send)

    waiting = [asyncio.ensure_future(receive(index)) for index in range(CROWD)]
    await turns(3)
    send()
    await asyncio.wait_for(asyncio.gather(*waiting), 30)


def reopen(crowd: list[Pair], index: int) -> None:
    first, second = crowd[index]
    if index % 2:
        # The number is free when the loop releases it, and then a neighbour's.
        close_each(first, second)
        crowd[index] = pair()


def replace(crowd: list[Pair], index: int) -> None:
    first, second = crowd[index]
    if index % 4 == 0:
        other, peer = pair()
        os.dup2(other.fileno(), first.fileno())
        close_each(other, second)
        crowd[index] = first, peer


@pytest.mark.parametrize("change", [reopen, replace], ids=["closed", "replaced"])
async def test_number_is_reused_before_the_next_wait(
    change: Between, loop: Loop, crowd: list[Pair]
) -> None:
    for _ in range(5):
        await exchange(loop, crowd, between=change)


async def test_number_is_reused_while_the_loop_never_sleeps(loop: Loop, crowd: list[Pair]) -> None:
    busy = True

    def spin() -> None:
        if busy:
            loop.call_soon(spin)

    spin()
    await exchange(loop, crowd, between=replace)
    busy = False


async def test_sends_wait_in_a_crowd(loop: Loop, crowd: list[Pair]) -> None:
    data = bytes(300_000)

    async def receive(sock: socket.socket) -> int:
        received = 0
        while received < 2 * len(data):
            received += len(await loop.sock_recv(sock, 65536))
        return received

    async def send(sock: socket.socket) -> None:
        await loop.sock_sendall(sock, data)
        await loop.sock_sendall(sock, data)

    sending = [asyncio.ensure_future(send(first)) for first, _ in crowd]
    receiving = [asyncio.ensure_future(receive(second)) for _, second in crowd]
    await turns(3)
    # The other way at the same time: both directions of a number.
    await exchange(loop, crowd)
    assert await asyncio.gather(*receiving) == [2 * len(data)] * CROWD
    await asyncio.gather(*sending)


async def test_cancelled_waits_lose_nothing_in_a_crowd(loop: Loop, crowd: list[Pair]) -> None:
    await exchange(loop, crowd)
    for count in range(10):
        waiting = [asyncio.ensure_future(loop.sock_recv(first, 100)) for first, _ in crowd]
        await turns(3)
        for _, second in crowd:
            second.send(b"%d" % count)
        for task in waiting[::2]:
            task.cancel()
        done = await asyncio.gather(*waiting, return_exceptions=True)
        for task, result, (first, _) in zip(waiting, done, crowd, strict=True):
            if task.cancelled():
                result = await loop.sock_recv(first, 100)
            assert result == b"%d" % count


async def wakeups(loop: Any, crowd: list[Pair], heard: list[socket.socket]) -> int:
    """How often the loop polls while copies of sockets hear something, by another thread."""

    def talk() -> None:
        for _ in range(50):
            for (_, second), copy in zip(crowd, heard, strict=True):
                second.send(b"x")
                while True:
                    try:
                        copy.recv(100)
                        break
                    except BlockingIOError:
                        continue

    before = goloop.diagnostics(loop)["loop"]["polls"]
    await loop.run_in_executor(None, talk)
    return int(goloop.diagnostics(loop)["loop"]["polls"]) - before


@pytest.mark.goloop_only("it counts goloop's polls")
async def test_copies_of_closed_sockets_do_not_wake_the_loop(loop: Loop, crowd: list[Pair]) -> None:
    await exchange(loop, crowd)
    heard = [first.dup() for first, _ in crowd]
    for first, _ in crowd:
        first.close()
    try:
        assert await wakeups(loop, crowd, heard) < 20
    finally:
        close_each(*heard)


@pytest.mark.goloop_only("it counts goloop's polls")
async def test_sockets_without_waiters_soon_stop_waking_the_loop(
    loop: Loop, crowd: list[Pair]
) -> None:
    await exchange(loop, crowd)
    # 800 messages arrive; of each socket a few events have no waiter.
    assert await wakeups(loop, crowd, [first for first, _ in crowd]) < 20 * CROWD
    await exchange(loop, crowd)
