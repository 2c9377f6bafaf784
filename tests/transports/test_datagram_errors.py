"""Errors that a datagram endpoint reports, and callbacks that raise."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest
from conftest import Errors
from datagram_tools import LONGEST, close, endpoint
from protocols import DatagramRecorder, turns, until

Loop = asyncio.AbstractEventLoop


async def test_datagram_to_a_closed_port_calls_error_received(loop: Loop) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as gone:
        gone.bind(("127.0.0.1", 0))
        address = gone.getsockname()
    transport, protocol = await endpoint(loop, remote_addr=address)
    transport.sendto(b"x")
    await until(lambda: protocol.errors)
    assert isinstance(protocol.errors[0], ConnectionRefusedError)
    # Nothing has ended.
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as back:
        back.bind(address)
        back.settimeout(10)
        transport.sendto(b"again")
        assert back.recv(10) == b"again"
        back.sendto(b"answer", transport.get_extra_info("sockname"))
        await until(lambda: protocol.got)
    assert protocol.got == [(b"answer", address)]
    transport.abort()
    assert await protocol.lost is None
    assert len(protocol.errors) == 1


async def test_send_errors_call_error_received(loop: Loop) -> None:
    transport, protocol = await endpoint(loop, local_addr=("127.0.0.1", 0))
    transport.sendto(b"x" * (LONGEST + 1), ("127.0.0.1", 9))
    assert [type(exc) for exc in protocol.errors] == [OSError]
    transport.sendto(b"x", ("::1", 9))  # of another family
    assert isinstance(protocol.errors[1], socket.gaierror)
    transport.sendto(b"x", ("255.255.255.255", 9))
    assert isinstance(protocol.errors[2], PermissionError)
    assert not transport.is_closing()

    def fail(exc: Exception) -> None:
        raise ZeroDivisionError

    protocol.error_received = fail  # type: ignore[method-assign]
    with pytest.raises(ZeroDivisionError):
        transport.sendto(b"x" * (LONGEST + 1), ("127.0.0.1", 9))
    await close(transport)


async def test_datagram_to_a_missing_path_calls_error_received(loop: Loop, tmp_path: Path) -> None:
    transport, protocol = await endpoint(
        loop, local_addr=str(tmp_path / "here"), family=socket.AF_UNIX
    )
    transport.sendto(b"x", str(tmp_path / "nowhere"))
    assert isinstance(protocol.errors[0], FileNotFoundError)
    transport.sendto(b"x", "y" * 200)
    assert type(protocol.errors[1]) is OSError
    await close(transport)


async def test_an_exception_of_error_received_is_reported(loop: Loop, errors: Errors) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as gone:
        gone.bind(("127.0.0.1", 0))
        address = gone.getsockname()
    transport, protocol = await endpoint(loop, remote_addr=address)

    def fail(exc: Exception) -> None:
        raise ZeroDivisionError

    protocol.error_received = fail  # type: ignore[method-assign]
    transport.sendto(b"x")
    await until(lambda: errors.contexts)
    errors.expect(ZeroDivisionError, "Exception in callback")
    assert not transport.is_closing()
    await close(transport)


async def test_exceptions_of_connection_made_and_connection_lost_are_reported(
    loop: Loop, errors: Errors
) -> None:
    class Failing(DatagramRecorder):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            raise ZeroDivisionError

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            raise ValueError

    transport, protocol = await loop.create_datagram_endpoint(Failing, local_addr=("127.0.0.1", 0))
    errors.expect(ZeroDivisionError)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.sendto(b"x", transport.get_extra_info("sockname"))
        await until(lambda: protocol.got)
    transport.close()
    await protocol.lost
    await turns()
    errors.expect(ValueError)
    assert transport.get_extra_info("socket").fileno() == -1
