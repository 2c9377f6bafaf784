"""In which order callbacks run: call_soon, timers, I/O and stop beside each other."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from typing import Any

from conftest import LoopFactory, tcp_pair
from protocols import Recorder, close_each, hang_up, one_turn, turns, until

Loop = asyncio.AbstractEventLoop


async def test_call_soon_is_first_in_first_out(loop: Loop) -> None:
    order: list[int] = []
    for number in range(1000):
        loop.call_soon(order.append, number)
    await asyncio.sleep(0)
    assert order == list(range(1000))


async def test_a_callback_of_a_callback_runs_one_turn_later(loop: Loop) -> None:
    order: list[str] = []

    def first() -> None:
        order.append("first")
        loop.call_soon(order.append, "child of first")

    loop.call_soon(first)
    loop.call_soon(order.append, "second")
    await asyncio.sleep(0)
    assert order == ["first", "second"]
    await asyncio.sleep(0)
    assert order == ["first", "second", "child of first"]


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


async def test_timers_that_are_due_together_run_by_deadline(loop: Loop) -> None:
    order: list[int] = []
    now = loop.time()
    for number in (5, 3, 9, 1, 7, 2, 8):
        loop.call_at(now + number * 1e-6, order.append, number)
    await until(lambda: len(order) == 7)
    assert order == sorted(order)


async def test_timers_run_after_the_io_of_their_turn(loop: Loop) -> None:
    first, second = tcp_pair()
    order: list[str] = []

    def readable() -> None:
        order.append("reader")
        loop.remove_reader(first)

    loop.add_reader(first, readable)
    second.send(b"x")
    due = loop.time()
    loop.call_at(due, order.append, "timer")
    await until(lambda: len(order) == 2)
    assert order == ["reader", "timer"]
    close_each(first, second)


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


async def test_connection_made_comes_before_data_and_create_connections_return(
    loop: Loop,
) -> None:
    near, far = tcp_pair()
    far.send(b"already there")
    _, protocol = await loop.create_connection(Recorder, sock=near)
    assert protocol.names()[0] == "made"
    await until(lambda: protocol.data)
    assert protocol.names() == ["made", "data"]
    await hang_up(protocol, far=far)


async def test_nothing_is_received_before_connection_made_returns(loop: Loop) -> None:
    near, far = tcp_pair()
    far.send(b"x")

    class Busy(Recorder):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            loop.call_soon(self.calls.append, ("one turn later",))

    _, protocol = await loop.create_connection(Busy, sock=near)
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
    stopped = False
    rounds = 0

    def again() -> None:
        nonlocal rounds
        rounds += 1
        if not stopped:
            loop.call_soon(again)

    again()
    far.send(b"x")
    while not protocol.data:
        assert rounds < 1_000_000
        await asyncio.sleep(0)
    stopped = True
    await turns(2)
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


def test_threadsafe_calls_of_one_thread_stay_in_order(loop_factory: LoopFactory) -> None:
    loop = loop_factory()
    order: list[int] = []

    def work() -> None:
        for number in range(10_000):
            loop.call_soon_threadsafe(order.append, number)
        loop.call_soon_threadsafe(loop.stop)

    thread = threading.Thread(target=work)
    thread.start()
    loop.run_forever()
    thread.join()
    loop.close()
    assert order == list(range(10_000))


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


async def test_closing_inside_the_loop_delivers_nothing_afterwards(loop: Loop) -> None:
    """Two connections are readable in one turn; the first one's callback aborts the second."""
    protocols: list[Any] = []

    class Killer(Recorder):
        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            for other in protocols:
                if other is not self:
                    other.transport.abort()

    peers: list[socket.socket] = []
    for _ in range(2):
        near, far = tcp_pair()
        _, protocol = await loop.create_connection(Killer, sock=near)
        protocols.append(protocol)
        peers.append(far)
    for peer in peers:
        peer.send(b"x")
    await until(lambda: any(protocol.lost.done() for protocol in protocols))
    assert sum(bool(protocol.data) for protocol in protocols) == 1
    close_each(*peers)
    await hang_up(*protocols)


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
