"""In which order callbacks run: call_soon, timers, I/O and stop beside each other."""

from __future__ import annotations

import asyncio
import os
import socket

from conftest import tcp_pair
from protocols import Iterations, Recorder, close_each, hang_up, one_turn, turns, until

Loop = asyncio.AbstractEventLoop


async def test_call_soon_is_first_in_first_out(loop: Loop) -> None:
    order: list[int] = []
    for number in range(1000):
        loop.call_soon(order.append, number)
    await asyncio.sleep(0)
    assert order == list(range(1000))


def test_exactly_the_callbacks_ready_at_the_start_of_a_turn_run_in_it(loop: Loop) -> None:
    order: list[str] = []

    def first() -> None:
        order.append("first")
        loop.stop()
        loop.call_soon(order.append, "next turn")

    loop.call_soon(first)
    loop.call_soon(order.append, "same turn")
    loop.run_forever()
    assert order == ["first", "same turn"]
    one_turn(loop)
    assert order == ["first", "same turn", "next turn"]


def test_stop_before_run_forever_runs_one_turn(loop: Loop) -> None:
    order: list[int] = []
    loop.call_soon(order.append, 1)
    loop.call_soon(loop.call_soon, order.append, 2)
    loop.stop()
    loop.run_forever()
    assert order == [1]
    loop.stop()
    loop.run_forever()
    assert order == [1, 2]


def test_stop_lets_io_that_is_ready_in_the_same_turn_run(loop: Loop) -> None:
    first, second = tcp_pair()
    order: list[str] = []
    second.send(b"x")
    loop.add_reader(first, order.append, "readable")
    loop.stop()
    loop.run_forever()
    assert order == ["readable"]
    loop.remove_reader(first)
    close_each(first, second)


async def test_call_later_zero_runs_after_ready_callbacks(loop: Loop) -> None:
    order: list[str] = []
    loop.call_later(0, order.append, "timer")
    loop.call_soon(order.append, "soon 1")
    loop.call_soon(order.append, "soon 2")
    await until(lambda: len(order) == 3)
    assert order == ["soon 1", "soon 2", "timer"]


async def test_a_ready_handle_that_its_neighbour_cancels_does_not_run(loop: Loop) -> None:
    order: list[str] = []
    handles: list[asyncio.Handle] = []
    handles.append(loop.call_soon(lambda: handles[1].cancel()))
    handles.append(loop.call_soon(order.append, "cancelled"))
    loop.call_soon(order.append, "last")
    await asyncio.sleep(0)
    assert order == ["last"]


async def test_a_due_timer_can_be_cancelled_by_an_earlier_one(loop: Loop) -> None:
    order: list[str] = []
    handles: list[asyncio.TimerHandle] = []
    now = loop.time()
    loop.call_at(now, lambda: handles[0].cancel())
    handles.append(loop.call_at(now + 1e-7, order.append, "cancelled"))
    loop.call_at(now + 2e-7, order.append, "last")
    await until(lambda: order)
    assert order == ["last"]


async def test_nothing_is_received_before_connection_made_returns(loop: Loop) -> None:
    near, far = tcp_pair()
    far.send(b"x")

    class Busy(Recorder):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            loop.call_soon(self.calls.append, ("one turn later",))

    _, protocol = await loop.create_connection(Busy, sock=near)
    assert protocol.names()[0] == "made"
    await until(lambda: protocol.data)
    assert protocol.names() == ["made", "one turn later", "data"]
    await hang_up(protocol, far=far)


async def test_data_of_one_connection_stays_in_order(loop: Loop) -> None:
    near, far = tcp_pair()
    _, sender = await loop.create_connection(Recorder, sock=near)
    _, receiver = await loop.create_connection(Recorder, sock=far)
    expected = bytearray()
    for number in range(5000):
        piece = b"%d," % number
        expected += piece
        if number % 7 == 0:
            sender.transport.writelines([piece[:1], piece[1:]])
        else:
            sender.transport.write(piece)
        if number % 100 == 0:
            await turns(1)
    await until(lambda: len(receiver.data) == len(expected))
    assert receiver.data == expected
    await hang_up(sender, receiver)


async def test_busy_callbacks_do_not_starve_io(loop: Loop) -> None:
    near, far = tcp_pair()
    _, protocol = await loop.create_connection(Recorder, sock=near)
    iterations = Iterations(loop)
    far.send(b"x")
    while not protocol.data:
        assert iterations.now < 1_000_000
        await asyncio.sleep(0)
    iterations.stop()
    await hang_up(protocol, far=far)


async def test_busy_callbacks_do_not_starve_timers(loop: Loop) -> None:
    fired: list[int] = []
    loop.call_later(0.001, fired.append, 1)
    deadline = loop.time() + 5
    while not fired:
        assert loop.time() < deadline
        await asyncio.sleep(0)


async def test_done_callbacks_run_in_the_order_in_which_they_were_added(loop: Loop) -> None:
    order: list[int] = []
    future = loop.create_future()
    for number in range(5):
        future.add_done_callback(lambda _, number=number: order.append(number))  # type: ignore[misc]
    future.set_result(None)
    assert order == []
    await asyncio.sleep(0)
    assert order == list(range(5))


async def test_tasks_start_in_the_order_of_creation(loop: Loop) -> None:
    order: list[int] = []

    async def step(number: int) -> None:
        order.append(number)
        await asyncio.sleep(0)
        order.append(number + 10)

    await asyncio.gather(*(step(number) for number in range(5)))
    assert order == [0, 1, 2, 3, 4, 10, 11, 12, 13, 14]


async def test_readers_see_each_readiness_once_per_turn(loop: Loop) -> None:
    first, second = tcp_pair()
    seen: list[bytes] = []

    def readable() -> None:
        seen.append(first.recv(1))

    loop.add_reader(first, readable)
    second.send(b"abc")
    await until(lambda: len(seen) == 3)
    assert seen == [b"a", b"b", b"c"]
    loop.remove_reader(first)
    close_each(first, second)


async def test_arrived_data_is_delivered_before_due_timers(
    loop: Loop, pair: tuple[socket.socket, socket.socket]
) -> None:
    """After a long callback, and where there is more than one poll finds."""
    first, second = pair
    second.send(b"x")
    watched = [os.dup(first.fileno()) for _ in range(600)]
    calls: list[str] = []

    def readable(fd: int) -> None:
        loop.remove_reader(fd)
        calls.append("data")

    try:
        await asyncio.sleep(0)
        timer = loop.create_future()
        for fd in watched:
            loop.add_reader(fd, readable, fd)
        loop.call_later(0, lambda: (calls.append("timer"), timer.set_result(None)))
        await timer
        assert calls == ["data"] * len(watched) + ["timer"]
    finally:
        for fd in watched:
            loop.remove_reader(fd)
            os.close(fd)
