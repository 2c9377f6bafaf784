"""sock_recv and its siblings: results, checks, errors, and many at once."""

from __future__ import annotations

import array
import asyncio
import contextlib
import errno
import os
import socket
import ssl
from pathlib import Path
from typing import Any

import ended
import pytest
from conftest import tcp_pair
from protocols import Iterations, close_each, receive_all, receive_exactly, reset, turns, until
from receiving import receivers

SCENARIOS = Path(__file__).with_name("sock_methods_scenarios.py")

Loop = asyncio.AbstractEventLoop
Pair = tuple[socket.socket, socket.socket]


def udp_socket() -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind(("127.0.0.1", 0))
    sock.setblocking(False)
    return sock


async def test_sock_recv_returns_available_bytes_or_waits(loop: Loop, pair: Pair) -> None:
    first, second = pair
    second.send(b"there at once")
    assert await loop.sock_recv(first, 5) == b"there"
    assert await loop.sock_recv(first, 100) == b" at once"
    waiting = asyncio.ensure_future(loop.sock_recv(first, 100))
    await turns(5)
    assert not waiting.done()
    second.send(b"later")
    later = await waiting
    second.send(b"own bytes")
    assert await loop.sock_recv(first, 100) == b"own bytes"
    assert (type(later), later) == (bytes, b"later")
    second.close()
    assert await loop.sock_recv(first, 100) == b""


async def test_sock_recv_into_fills_the_buffer(loop: Loop, pair: Pair) -> None:
    first, second = pair
    buffer = bytearray(10)
    second.send(b"abc")
    assert await loop.sock_recv_into(first, buffer) == 3
    assert buffer == b"abc" + bytes(7)
    waiting = asyncio.ensure_future(loop.sock_recv_into(first, memoryview(buffer)[5:]))
    await turns(5)
    second.send(b"defghijkl")
    assert await waiting == 5
    assert buffer == b"abc\0\0defgh"
    assert await loop.sock_recv(first, 10) == b"ijkl"
    second.close()
    assert await loop.sock_recv_into(first, buffer) == 0


@pytest.mark.parametrize("kind", [socket.SOCK_SEQPACKET, socket.SOCK_DGRAM])
async def test_message_of_any_length_is_received_completely(
    loop: Loop, kind: socket.SocketKind
) -> None:
    """The rest of a datagram is lost; only the rest of a stream arrives later."""
    near, far = socket.socketpair(socket.AF_UNIX, kind)
    far.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 212_992)  # the kernel doubles it
    near.setblocking(False)
    message = os.urandom(400_000)
    buffer = bytearray(1_000_000)
    for waits in (False, True):
        for receive in (
            lambda: loop.sock_recv(near, 1_000_000),
            lambda: loop.sock_recv_into(near, buffer),
            lambda: loop.sock_recvfrom(near, 1_000_000),
            lambda: loop.sock_recvfrom_into(near, buffer),
        ):
            receiving = asyncio.ensure_future(receive())
            if waits:
                await turns(5)
            assert far.send(message) == len(message)
            got = await receiving
            got = got[0] if isinstance(got, tuple) else got
            assert (got if isinstance(got, bytes) else bytes(buffer[:got])) == message
    close_each(near, far)


async def test_sock_recvfrom_gives_a_datagram_and_its_sender(loop: Loop) -> None:
    with udp_socket() as first, udp_socket() as second:
        assert await loop.sock_sendto(first, b"hello", second.getsockname()) == 5
        assert await loop.sock_recvfrom(second, 100) == (b"hello", first.getsockname())
        waiting = asyncio.ensure_future(loop.sock_recvfrom(second, 3))
        await turns(5)
        assert await loop.sock_sendto(first, bytearray(b"truncated"), second.getsockname()) == 9
        assert await waiting == (b"tru", first.getsockname())
        assert await loop.sock_sendto(first, b"", second.getsockname()) == 0
        assert await loop.sock_recvfrom(second, 100) == (b"", first.getsockname())


async def test_sock_recvfrom_into_fills_the_buffer(loop: Loop) -> None:
    with udp_socket() as first, udp_socket() as second:
        buffer = bytearray(10)
        await loop.sock_sendto(first, b"hello", second.getsockname())
        assert await loop.sock_recvfrom_into(second, buffer) == (5, first.getsockname())
        assert buffer[:5] == b"hello"
        waiting = asyncio.ensure_future(loop.sock_recvfrom_into(second, buffer, 2))
        await turns(5)
        await loop.sock_sendto(first, b"xyz", second.getsockname())
        assert await waiting == (2, first.getsockname())
        assert buffer[:5] == b"xyllo"


@pytest.mark.goloop_only("asyncio's single call is as long as its reader keeps pace")
async def test_a_reader_that_keeps_pace_does_not_hold_the_loop(loop: Loop) -> None:
    """No step sends more than 256 KiB and a call's 4 MiB."""
    near, far = socket.socketpair()
    near.setblocking(False)
    size = 64 << 20

    def reads() -> int:
        buffer = bytearray(1 << 20)
        count = 0
        while count < size:
            count += far.recv_into(buffer)
        return count

    reading = asyncio.ensure_future(asyncio.to_thread(reads))
    iterations = Iterations(loop)
    await loop.sock_sendall(near, bytes(size))
    iterations.stop()
    assert iterations.now >= size // ((4 << 20) + (256 << 10))
    assert await reading == size
    close_each(near, far)


async def test_a_message_is_never_sent_in_parts(loop: Loop) -> None:
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    near.setblocking(False)
    with near, far, pytest.raises(OSError, match=os.strerror(errno.EMSGSIZE)):
        await loop.sock_sendall(near, bytes(64 << 20))


async def test_sock_sendall_sends_everything(loop: Loop, pair: Pair) -> None:
    first, second = pair
    payload = os.urandom(8 << 20)

    reader = asyncio.ensure_future(receive_exactly(second, len(payload)))
    assert await loop.sock_sendall(first, payload) is None  # type: ignore[func-returns-value]
    assert await reader == payload
    await loop.sock_sendall(first, b"")
    await loop.sock_sendall(first, bytearray(b"ab"))
    await loop.sock_sendall(first, memoryview(b"cd"))
    first.shutdown(socket.SHUT_WR)
    assert await receive_all(second) == b"abcd"


async def test_sock_connect_and_sock_accept_make_a_connection(
    loop: Loop, listener: socket.socket
) -> None:
    listener.setblocking(False)
    accepting = asyncio.ensure_future(loop.sock_accept(listener))
    await turns(5)
    assert not accepting.done()
    with socket.socket() as client:
        client.setblocking(False)
        assert await loop.sock_connect(client, listener.getsockname()) is None  # type: ignore[func-returns-value]
        served, address = await accepting
        with served:
            assert isinstance(served, socket.socket)
            assert address == client.getsockname()
            assert served.gettimeout() == 0
            await loop.sock_sendall(client, b"x")
            assert await loop.sock_recv(served, 1) == b"x"


async def test_sock_connect_resolves_a_name(loop: Loop, listener: socket.socket) -> None:
    with socket.socket() as client:
        client.setblocking(False)
        await loop.sock_connect(client, ("localhost", listener.getsockname()[1]))
        assert client.getpeername() == listener.getsockname()


async def test_sock_connect_connects_over_ipv6(loop: Loop) -> None:
    with (
        socket.create_server(("::1", 0), family=socket.AF_INET6) as listener,
        socket.socket(socket.AF_INET6) as client,
    ):
        client.setblocking(False)
        await loop.sock_connect(client, listener.getsockname()[:2])
        assert client.getpeername()[:2] == listener.getsockname()[:2]


async def test_a_reset_is_raised_by_receiving_and_by_sending(loop: Loop) -> None:
    first, second = tcp_pair()
    waiting = asyncio.ensure_future(loop.sock_recv(first, 10))
    await turns(3)
    reset(second)
    with pytest.raises(ConnectionResetError):
        await waiting
    with pytest.raises((BrokenPipeError, ConnectionResetError)):
        await loop.sock_sendall(first, b"x" * 10_000_000)
    first.close()


@pytest.mark.goloop_only("asyncio has no such method")
@pytest.mark.parametrize("name", ["sock_recvmsg", "sock_sendmsg"])
async def test_sockets_that_are_blocking_tls_or_closed_are_refused(loop: Any, name: str) -> None:
    """By the calls of goloop's own; loop/wrong_calls.py has the others."""
    argument: Any = 1 if name == "sock_recvmsg" else [b"x"]
    loop.set_debug(True)
    with socket.socket() as sock:
        for timeout in (None, 1.0):
            sock.settimeout(timeout)
            with pytest.raises(ValueError, match=r"^the socket must be non-blocking$"):
                await getattr(loop, name)(sock, argument)
    with pytest.raises((OSError, ValueError)):
        await getattr(loop, name)(sock, argument)
    loop.set_debug(False)
    context = ssl.create_default_context()
    context.check_hostname = False
    first, second = socket.socketpair()
    with context.wrap_socket(first, do_handshake_on_connect=False) as tls, second:
        tls.setblocking(False)
        with pytest.raises(TypeError, match=r"^Socket cannot be of type SSLSocket$"):
            await getattr(loop, name)(tls, argument)


async def test_read_and_write_of_a_socket_run_in_parallel(loop: Loop, pair: Pair) -> None:
    first, second = pair
    reading = asyncio.ensure_future(loop.sock_recv(first, 10))
    payload = b"x" * (32 << 20)  # more than the kernel takes by itself
    writing = asyncio.ensure_future(loop.sock_sendall(first, payload))
    await turns(3)
    assert not reading.done()
    assert not writing.done()
    second.send(b"answer")
    assert await reading == b"answer"
    assert await receive_exactly(second, len(payload)) == payload
    await writing


async def test_parallel_echoes_are_not_mixed_up(loop: Loop) -> None:
    async def echo(sock: socket.socket) -> None:
        while data := await loop.sock_recv(sock, 4096):
            await loop.sock_sendall(sock, data)

    async def ask(sock: socket.socket, number: int) -> None:
        for step in range(20):
            message = b"%d:%d" % (number, step)
            await loop.sock_sendall(sock, message)
            assert await loop.sock_recv(sock, 4096) == message
        sock.shutdown(socket.SHUT_WR)

    pairs = [tcp_pair() for _ in range(50)]
    await asyncio.gather(
        *(echo(second) for _, second in pairs),
        *(ask(first, number) for number, (first, _) in enumerate(pairs)),
    )
    for first, second in pairs:
        close_each(first, second)


async def test_a_step_before_the_future_is_done_is_an_error(loop: Loop, pair: Pair) -> None:
    """As of any coroutine that is driven by hand: else it would yield for ever."""
    near, far = pair
    steps = loop.sock_recv(near, 10).__await__()
    next(steps)
    with pytest.raises(RuntimeError, match="await wasn't used with future"):
        next(steps)
    far.send(b"still there")
    assert await loop.sock_recv(near, 20) == b"still there"


# ---- messages with descriptors -------------------------------------------------------------------


def rights(*numbers: int) -> list[tuple[int, int, bytes]]:
    return [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", numbers).tobytes())]


def descriptors(ancillary: list[tuple[int, int, bytes]]) -> list[int]:
    found = array.array("i")
    for level, kind, data in ancillary:
        assert (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS)
        found.frombytes(data[: len(data) - len(data) % found.itemsize])
    return list(found)


def unix_pair(kind: int = socket.SOCK_STREAM) -> tuple[socket.socket, socket.socket]:
    near, far = socket.socketpair(socket.AF_UNIX, kind)
    near.setblocking(False)
    far.setblocking(False)
    return near, far


only_ours = pytest.mark.goloop_only("asyncio has no such method")


@only_ours
@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET])
async def test_descriptors_go_with_a_message(loop: Any, kind: int, waits: bool) -> None:
    near, far = unix_pair(kind)
    reading, writing = os.pipe()
    receiving = asyncio.ensure_future(loop.sock_recvmsg(far, 100, socket.CMSG_SPACE(8)))
    if waits:
        await turns(5)
        assert not receiving.done()
    assert await loop.sock_sendmsg(near, iter([b"he", b"llo"]), iter(rights(writing))) == 5
    os.close(writing)
    data, ancillary, flags, _ = await receiving
    assert data == b"hello"
    (copy,) = descriptors(ancillary)
    assert not os.get_inheritable(copy)
    assert flags & ~socket.MSG_EOR == 0
    os.write(copy, b"through the pipe")
    os.close(copy)
    assert os.read(reading, 100) == b"through the pipe"
    assert os.read(reading, 100) == b""  # no other code has the writing end
    os.close(reading)
    close_each(near, far)


@only_ours
async def test_descriptors_for_which_there_is_no_room_are_closed(loop: Any) -> None:
    near, far = unix_pair()
    reading, writing = os.pipe()
    await loop.sock_sendmsg(near, [b"x"], rights(*[writing] * 8))
    os.close(writing)
    _, ancillary, flags, _ = await loop.sock_recvmsg(far, 1, socket.CMSG_LEN(8))
    assert flags & socket.MSG_CTRUNC
    got = descriptors(ancillary)
    assert len(got) == 2
    for each in got:
        os.close(each)
    assert os.read(reading, 1) == b""
    # If no descriptors were requested, none are kept.
    os.close(reading)
    reading, writing = os.pipe()
    await loop.sock_sendmsg(near, [b"x"], rights(writing))
    os.close(writing)
    assert (await loop.sock_recvmsg(far, 1))[1] == []
    assert os.read(reading, 1) == b""
    os.close(reading)
    close_each(near, far)


@only_ours
async def test_a_cancelled_recvmsg_leaves_message_and_descriptors_to_the_next(loop: Any) -> None:
    near, far = unix_pair()
    reading, writing = os.pipe()
    receiving = asyncio.ensure_future(loop.sock_recvmsg(far, 10, socket.CMSG_SPACE(4)))
    await turns(3)
    near.sendmsg([b"kept"], rights(writing))
    receiving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await receiving
    data, ancillary, _, _ = await loop.sock_recvmsg(far, 10, socket.CMSG_SPACE(4))
    assert data == b"kept"
    for each in [*descriptors(ancillary), reading, writing]:
        os.close(each)
    close_each(near, far)


@only_ours
async def test_sendmsg_waits_for_room_and_may_send_partially(loop: Any) -> None:
    near, far = unix_pair()
    payload = b"x" * (8 << 20)
    sent = await loop.sock_sendmsg(near, [payload])
    assert 0 < sent < len(payload)
    with contextlib.suppress(BlockingIOError):
        while True:
            sent += near.send(payload)
    waiting = asyncio.ensure_future(loop.sock_sendmsg(near, [b"tail"]))
    await turns(5)
    assert not waiting.done()
    await receive_exactly(far, sent)
    assert await waiting == 4
    assert await loop.sock_recv(far, 10) == b"tail"
    close_each(near, far)


@only_ours
async def test_messages_have_addresses_and_flags(loop: Any) -> None:
    with udp_socket() as first, udp_socket() as second:
        to = second.getsockname()
        assert await loop.sock_sendmsg(first, [b"hel", b"lo"], [], 0, to) == 5
        data, ancillary, flags, address = await loop.sock_recvmsg(second, 3, 0, socket.MSG_PEEK)
        assert (data, ancillary, address) == (b"hel", [], first.getsockname())
        assert flags == socket.MSG_TRUNC
        assert (await loop.sock_recvmsg(second, 100))[0] == b"hello"
        wanted = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
        await loop.sock_sendmsg(first, [b"x"], address=to)
        assert (await loop.sock_recvmsg(second, 1, 0, wanted))[2] == wanted


@only_ours
async def test_wrong_arguments_of_messages_are_refused(loop: Any) -> None:
    near, far = unix_pair()
    for call in (
        lambda: loop.sock_recvmsg(near, "x"),
        lambda: loop.sock_recvmsg(near, 1, "x"),
        lambda: loop.sock_sendmsg(near, ["x"]),
        lambda: loop.sock_sendmsg(near, 1),
        lambda: loop.sock_sendmsg(near, [b"x"], [1]),
    ):
        with pytest.raises(TypeError):
            await call()
    with pytest.raises(ValueError, match="negative"):
        await loop.sock_recvmsg(near, -1)
    with pytest.raises(OSError, match="Bad file descriptor"):
        await loop.sock_sendmsg(near, [b"x"], rights(99_999))
    close_each(near, far)


@pytest.mark.parametrize(
    "waits",
    [
        lambda loop, sock: loop.sock_recvfrom(sock, 10),
        lambda loop, sock: loop.sock_recvfrom_into(sock, bytearray(10)),
        lambda loop, sock: loop.sock_recv(sock, 10),
        lambda loop, sock: loop.sock_recv_into(sock, bytearray(10)),
        lambda loop, sock: loop.sock_accept(sock),
    ],
    ids=["recvfrom", "recvfrom_into", "recv", "recv_into", "accept"],
)
@pytest.mark.parametrize("debug", [False, True])
async def test_cancelled_wait_does_not_affect_the_earlier_call(
    loop: Loop, waits: Any, debug: bool
) -> None:
    loop.set_debug(debug)
    with socket.socket() as listener, udp_socket() as datagrams:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listener.setblocking(False)
        sock = listener if "accept" in waits.__code__.co_names[0] else datagrams
        waiting = asyncio.ensure_future(waits(loop, sock))
        await turns(5)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError) as raised:
            await waiting
        assert raised.value.__context__ is None


# ---- several tasks wait for one socket -----------------------------------------------------------

together = pytest.mark.goloop_only("the last one is woken, the others wait for ever")


@together
async def test_several_tasks_accept_on_one_listener(loop: Loop) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        tasks = [asyncio.ensure_future(loop.sock_accept(listening)) for _ in range(5)]
        await asyncio.sleep(0)
        for _ in tasks:
            with socket.create_connection(listening.getsockname()):
                await asyncio.sleep(0)
        for connection, _ in await asyncio.gather(*tasks):
            connection.close()


@together
@pytest.mark.parametrize("debug", [False, True])
@pytest.mark.parametrize("names", [("sock_recv",), ("sock_recv", "sock_recvfrom", "sock_recvmsg")])
async def test_several_tasks_receive_from_one_socket(
    loop: Loop, debug: bool, names: tuple[str, ...]
) -> None:
    loop.set_debug(debug)
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    near.setblocking(False)
    calls = [receivers(10)[names[n % len(names)]] for n in range(6)]
    tasks = [asyncio.ensure_future(call(loop, near)) for call in calls]
    await asyncio.sleep(0)
    tasks.pop(3).cancel()  # a task in the middle, and the last
    tasks.pop().cancel()
    await asyncio.sleep(0)
    for n in range(len(tasks)):
        far.send(b"%d" % n)
        await asyncio.sleep(0)
    answers = await asyncio.gather(*tasks)
    got = [each if isinstance(each, bytes) else each[0] for each in answers]
    assert sorted(got) == [b"0", b"1", b"2", b"3"]
    close_each(near, far)


@together
async def test_several_tasks_send_on_one_socket(loop: Loop) -> None:
    near, far = socket.socketpair()
    near.setblocking(False)
    far.setblocking(False)
    tasks = [asyncio.ensure_future(loop.sock_sendall(near, b"%d" % n * 500_000)) for n in range(3)]
    got = await receive_exactly(far, 1_500_000)
    await asyncio.gather(*tasks)
    assert sorted(set(got)) == [*b"012"]
    close_each(near, far)


@pytest.mark.goloop_only("the last one is woken, the others wait for ever")
def test_a_wait_without_memory_fails_and_earlier_waits_go_on() -> None:
    pytest.importorskip("_testcapi")
    assert (
        ended.passes(SCENARIOS, "a_wait_without_memory_fails_and_earlier_waits_go_on")
        == "True True\n"
    )


@together
async def test_a_close_ends_all_tasks_that_wait_for_the_socket(loop: Loop) -> None:
    near, far = socket.socketpair()
    near.setblocking(False)
    tasks = [asyncio.ensure_future(loop.sock_recv(near, 10)) for _ in range(4)]
    await asyncio.sleep(0)
    near.close()
    for each in await asyncio.gather(*tasks, return_exceptions=True):
        assert isinstance(each, OSError)
        assert each.errno == errno.EBADF
    far.close()


@together
async def test_a_reader_takes_the_place_of_all_that_wait(loop: Loop) -> None:
    near, far = socket.socketpair()
    near.setblocking(False)
    tasks = [asyncio.ensure_future(loop.sock_recv(near, 10)) for _ in range(3)]
    await asyncio.sleep(0)
    called: list[int] = []
    loop.add_reader(near, called.append, 1)
    far.send(b"x")
    await until(lambda: called)
    assert not any(task.done() for task in tasks)
    assert loop.remove_reader(near) is True
    assert loop.remove_reader(near) is False
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    close_each(near, far)
