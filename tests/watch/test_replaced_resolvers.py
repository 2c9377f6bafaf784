"""A program's replacement of socket.getaddrinfo, or of the executor, is called.

As asyncio does it: in a thread, with the arguments as they were given.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import socket
import threading
from pathlib import Path
from typing import Any

import ended
import pytest
from conftest import LOOP_NAMES

import goloop

SCENARIOS = Path(__file__).with_name("replaced_resolvers_scenarios.py")

Loop = asyncio.AbstractEventLoop

ANSWER = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.1", 80))]
LIST_OF_ARGUMENTS = [("name.invalid", 80), ("127.0.0.1", 80), ("::1", "http"), (None, 0)]


class Asked:
    """Replaces a function; records the arguments and threads of its calls."""

    def __init__(self, answer: Any) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.threads: list[int] = []
        self._answer = answer

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        assert not kwargs
        self.calls.append(args)
        self.threads.append(threading.get_ident())
        return self._answer


def as_a_wrapper(asked: Asked, original: Any) -> Any:
    @functools.wraps(original)
    def getaddrinfo(*args: Any) -> Any:
        return asked(*args)

    return getaddrinfo


@pytest.mark.parametrize("as_function", [lambda asked, _: asked, as_a_wrapper])
@pytest.mark.parametrize(("host", "port"), LIST_OF_ARGUMENTS)
async def test_a_replaced_getaddrinfo_is_asked_in_a_thread(
    loop: Loop, monkeypatch: pytest.MonkeyPatch, as_function: Any, host: Any, port: Any
) -> None:
    asked = Asked(ANSWER)
    monkeypatch.setattr(socket, "getaddrinfo", as_function(asked, socket.getaddrinfo))
    assert await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM) is ANSWER
    assert asked.calls == [(host, port, 0, socket.SOCK_STREAM, 0, 0)]
    assert threading.get_ident() not in asked.threads


async def test_a_replaced_getaddrinfo_is_asked_for_a_connection(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
        asked = Asked([(socket.AF_INET, socket.SOCK_STREAM, 6, "", address)])
        monkeypatch.setattr(socket, "getaddrinfo", asked)
        transport, _ = await loop.create_connection(asyncio.Protocol, "name.invalid", 1)
        assert transport.get_extra_info("peername") == address
        transport.close()
    assert [call[:2] for call in asked.calls] == [("name.invalid", 1)]


@pytest.mark.parametrize("flags", [0, socket.NI_NUMERICHOST | socket.NI_NUMERICSERV])
async def test_a_replaced_getnameinfo_is_asked_in_a_thread(
    loop: Loop, monkeypatch: pytest.MonkeyPatch, flags: int
) -> None:
    asked = Asked(("name", "service"))
    monkeypatch.setattr(socket, "getnameinfo", asked)
    assert await loop.getnameinfo(("127.0.0.1", 80), flags) == ("name", "service")
    assert asked.calls == [(("127.0.0.1", 80), flags)]
    assert threading.get_ident() not in asked.threads


@pytest.mark.parametrize("loop_name", LOOP_NAMES)
def test_getaddrinfo_replaced_before_the_import_is_called(loop_name: str) -> None:
    ended.passes(SCENARIOS, "getaddrinfo_replaced_before_the_import_is_called", loop_name)


@pytest.mark.parametrize("loop_name", LOOP_NAMES)
@pytest.mark.parametrize("of_the_class", [True, False])
def test_a_run_in_executor_of_the_programs_own_is_asked(loop_name: str, of_the_class: bool) -> None:
    kind: Any = asyncio.SelectorEventLoop if loop_name == "asyncio" else goloop.Loop
    seen: list[Any] = []

    def run_in_executor(self: Any, executor: Any, function: Any, *args: Any) -> Any:
        seen.append((executor, function, *args))
        return kind.run_in_executor(self, executor, function, *args)

    own = type("Own", (kind,), {"run_in_executor": run_in_executor} if of_the_class else {})
    loop = own()
    if not of_the_class:
        loop.run_in_executor = functools.partial(run_in_executor, loop)

    async def main() -> None:
        await loop.getaddrinfo("127.0.0.1", 80)
        await loop.getaddrinfo("localhost", 80)
        await loop.getnameinfo(("127.0.0.1", 80), socket.NI_NUMERICHOST | socket.NI_NUMERICSERV)
        await loop.shutdown_default_executor()

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(main())
    asked = socket.getaddrinfo
    assert seen[:2] == [(None, asked, host, 80, 0, 0, 0, 0) for host in ("127.0.0.1", "localhost")]
    assert seen[2][:2] == (None, socket.getnameinfo)


@pytest.mark.goloop_only("asyncio looks names up in the default executor")
async def test_lookups_do_not_wait_for_a_full_executor(loop: Loop) -> None:
    go_on = threading.Event()
    busy = [loop.run_in_executor(None, go_on.wait) for _ in range(100)]
    assert await loop.getaddrinfo("localhost", 80)
    assert await loop.getnameinfo(("127.0.0.1", 80))
    go_on.set()
    await asyncio.gather(*busy)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
async def test_debug_mode_logs_lookups(
    loop: Loop, caplog: pytest.LogCaptureFixture, host: str
) -> None:
    loop.set_debug(True)
    loop.slow_callback_duration = 100.0
    with caplog.at_level(logging.DEBUG, "asyncio"):
        answer = await loop.getaddrinfo(host, 80, type=socket.SOCK_STREAM)
    question = f"{host}:80, type={socket.SOCK_STREAM!r}"
    told = [record.getMessage() for record in caplog.records]
    assert f"Get address info {question}" in told
    (end,) = [text for text in told if text.startswith(f"Getting address info {question} took ")]
    assert end.endswith(f"ms: {answer!r}")
