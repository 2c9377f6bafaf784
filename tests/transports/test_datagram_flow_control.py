"""Datagrams without room in the kernel are queued, counted, and sent or dropped."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from datagram_tools import close, endpoint, unix_datagrams
from failing_calls import fail_call
from protocols import turns, until

Loop = asyncio.AbstractEventLoop
HEADER = 8 if sys.version_info >= (3, 13) else 0


class Blocked:
    """A connected Unix endpoint whose peer reads only when the test does."""

    def __init__(self, path: Path) -> None:
        self.peer = unix_datagrams(path / "peer")
        self.peer.setblocking(False)
        self.address = str(path / "peer")
        self.sent = 0

    async def open(self, loop: Loop) -> None:
        self.transport, self.protocol = await endpoint(
            loop, remote_addr=self.address, family=socket.AF_UNIX
        )

    def send(self, size: int = 100) -> None:
        self.transport.sendto(b"%06d" % self.sent + b"." * (size - 6))
        self.sent += 1

    def fill(self) -> None:
        """Sends until the kernel has no room."""
        while self.transport.get_write_buffer_size() == 0:
            self.send()

    def read(self) -> list[int]:
        """Return the received datagrams, by number."""
        came = []
        with contextlib.suppress(BlockingIOError):
            while True:
                came.append(int(self.peer.recv(1 << 17)[:6]))
        return came

    async def read_all(self) -> None:
        came: list[int] = []

        def everything() -> bool:
            came.extend(self.read())
            return len(came) >= self.sent

        await until(everything)
        assert came == list(range(self.sent))


@pytest.fixture
def blocked(tmp_path: Path) -> Iterator[Blocked]:
    made = Blocked(tmp_path)
    with made.peer:
        yield made


async def test_datagrams_without_room_are_queued(loop: Loop, blocked: Blocked) -> None:
    await blocked.open(loop)
    transport = blocked.transport
    assert "write=<idle, bufsize=0>" in repr(transport)
    blocked.fill()
    assert transport.get_write_buffer_size() == 100 + HEADER
    assert f"write=<polling, bufsize={100 + HEADER}>" in repr(transport)
    for _ in range(9):
        blocked.send()
    assert transport.get_write_buffer_size() == 10 * (100 + HEADER)
    await turns(5)
    assert transport.get_write_buffer_size() == 10 * (100 + HEADER)
    await blocked.read_all()
    if HEADER == 0 or hasattr(asyncio.selector_events._SelectorDatagramTransport, "_header_size"):  # type: ignore[attr-defined]
        # 3.13.0 forgets to take the header off again.
        assert transport.get_write_buffer_size() == 0
        assert "write=<idle, bufsize=0>" in repr(transport)
    await close(transport)
    assert blocked.protocol.calls == ["made", "lost"]


async def test_the_protocol_is_paused_and_resumed(loop: Loop, blocked: Blocked) -> None:
    await blocked.open(loop)
    transport, protocol = blocked.transport, blocked.protocol
    assert transport.get_write_buffer_limits() == (16384, 65536)
    transport.set_write_buffer_limits(high=1000)
    assert transport.get_write_buffer_limits() == (250, 1000)
    blocked.fill()
    while transport.get_write_buffer_size() <= 1000:
        assert protocol.calls == ["made"]
        blocked.send()
    assert protocol.calls == ["made", "pause"]
    blocked.send()
    assert protocol.calls == ["made", "pause"]
    if HEADER:
        # 3.13.0 counts the headers for ever.
        transport.set_write_buffer_limits(high=1000, low=900)
    await blocked.read_all()
    await until(lambda: protocol.calls == ["made", "pause", "resume"])
    await close(transport)


async def test_lower_limits_pause_and_invalid_ones_are_refused(
    loop: Loop, blocked: Blocked
) -> None:
    await blocked.open(loop)
    transport = blocked.transport
    for arguments in ({"high": 1, "low": 2}, {"high": -1}):
        with pytest.raises(ValueError, match="must be >="):
            transport.set_write_buffer_limits(**arguments)
    blocked.fill()
    assert blocked.protocol.calls == ["made"]
    transport.set_write_buffer_limits(high=0)
    assert blocked.protocol.calls == ["made", "pause"]
    transport.abort()
    assert transport.get_write_buffer_size() in (0, 100 + HEADER)
    await blocked.protocol.lost


async def test_resume_writing_sends_more(loop: Loop, blocked: Blocked) -> None:
    await blocked.open(loop)
    transport, protocol = blocked.transport, blocked.protocol

    def resume() -> None:
        protocol.calls.append("resume")
        blocked.send()

    protocol.resume_writing = resume  # type: ignore[method-assign]
    transport.set_write_buffer_limits(high=1, low=1 if not HEADER else 0)
    transport.set_write_buffer_limits(high=500, low=500)
    blocked.fill()
    while protocol.calls[-1] != "pause":
        blocked.send()
    await blocked.read_all()
    assert protocol.calls.count("resume") >= 1
    await close(transport)


async def test_close_sends_queued_datagrams(loop: Loop, blocked: Blocked) -> None:
    await blocked.open(loop)
    blocked.fill()
    for _ in range(30):
        blocked.send()
    blocked.transport.close()
    assert blocked.transport.is_closing()
    assert not blocked.transport.is_reading()
    blocked.send()  # asyncio takes it still
    await turns(5)
    assert not blocked.protocol.lost.done()
    await blocked.read_all()
    assert await blocked.protocol.lost is None
    assert blocked.protocol.calls == ["made", "lost"]


async def test_nothing_is_received_while_the_closing_queue_is_sent(
    loop: Loop, blocked: Blocked, tmp_path: Path
) -> None:
    blocked.transport, blocked.protocol = await endpoint(
        loop,
        local_addr=str(tmp_path / "here"),
        remote_addr=blocked.address,
        family=socket.AF_UNIX,
    )
    blocked.fill()
    blocked.protocol.on_datagram = lambda data, addr: blocked.transport.close()
    for number in range(3):
        blocked.peer.sendto(b"%d" % number, str(tmp_path / "here"))
    await until(blocked.transport.is_closing)
    await turns(5)
    assert not blocked.protocol.lost.done()
    await blocked.read_all()
    assert await blocked.protocol.lost is None
    assert blocked.protocol.calls == ["made", "datagram", "lost"]


async def test_abort_drops_queued_datagrams(loop: Loop, blocked: Blocked) -> None:
    await blocked.open(loop)
    blocked.fill()
    for _ in range(5):
        blocked.send()
    blocked.transport.abort()
    assert await blocked.protocol.lost is None
    assert len(blocked.read()) == blocked.sent - 6


async def test_peer_lost_while_sending_waits_calls_error_received(
    loop: Loop, blocked: Blocked
) -> None:
    await blocked.open(loop)
    blocked.fill()
    for _ in range(3):
        blocked.send()
    blocked.peer.close()
    await until(lambda: len(blocked.protocol.errors) >= 3)
    assert isinstance(blocked.protocol.errors[0], ConnectionError)
    await until(lambda: "write=<idle" in repr(blocked.transport))
    assert not blocked.transport.is_closing()
    await close(blocked.transport)


async def test_a_change_of_mutable_data_is_not_seen(loop: Loop, blocked: Blocked) -> None:
    await blocked.open(loop)
    blocked.fill()
    data = bytearray(b"%06d" % blocked.sent)
    blocked.transport.sendto(data)
    blocked.transport.sendto(memoryview(data))
    blocked.sent += 1
    data[:] = b"999999"
    came: list[int] = []
    await until(lambda: came.extend(blocked.read()) or len(came) == blocked.sent + 1)
    assert came == [*range(blocked.sent), blocked.sent - 1]
    await close(blocked.transport)


async def test_unconnected_endpoint_queues_datagrams_without_room(
    loop: Loop, blocked: Blocked, tmp_path: Path
) -> None:
    blocked.transport, blocked.protocol = await endpoint(
        loop, local_addr=str(tmp_path / "here"), family=socket.AF_UNIX
    )
    sendto = blocked.transport.sendto
    for number in range(1000):
        sendto(b"%06d" % number, blocked.address)
        blocked.sent += 1
        if blocked.transport.get_write_buffer_size() > 1000:
            break
    await blocked.read_all()
    await close(blocked.transport)


@pytest.mark.goloop_only("asyncio sends all that the kernel takes in one iteration")
async def test_queued_datagrams_are_sent_in_shares(loop: Loop) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
        peer.bind(("127.0.0.1", 0))
        peer.setblocking(False)
        transport, _ = await endpoint(loop, remote_addr=peer.getsockname())
        fail_call("sendto", errno.EAGAIN)
        for number in range(200):
            transport.sendto(b"%d" % number)
        came: list[bytes] = []
        while len(came) < 200:
            before = len(came)
            await asyncio.sleep(0)
            with contextlib.suppress(BlockingIOError):
                while True:
                    came.append(peer.recv(100))
            assert len(came) - before <= 64
        assert came == [b"%d" % number for number in range(200)]
        await close(transport)
