"""goloop.systemd: the messages that systemd gets from a loop, at a real socket in its place."""

from __future__ import annotations

import asyncio
import os
import re
import select
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import goloop
import goloop.systemd

PROGRAMS = Path(__file__).with_name("programs")

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 60
# Of the loop's messages, in tests that wait for them and for none.
PERIOD = 0.02


class Systemd:
    """The socket that NOTIFY_SOCKET names."""

    def __init__(self, address: str, environ: Callable[[str, str], None]) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(address.replace("@", "\0") if address[0] == "@" else address)
        self._socket.settimeout(SECONDS)
        environ("NOTIFY_SOCKET", address)
        environ("WATCHDOG_USEC", str(int(PERIOD * 4e6)))

    def next(self) -> str:
        """The next message, which is waited for."""
        return self.next_bytes().decode()

    def next_bytes(self) -> bytes:
        """Return the next message as bytes."""
        return self._socket.recv(100)

    def drain(self) -> list[str]:
        """Return the received messages."""
        found = []
        while select.select([self._socket], [], [], 0)[0]:
            found.append(self.next())
        return found

    def is_silent(self) -> bool:
        """Whether for the time of ten messages none comes."""
        return not select.select([self._socket], [], [], 10 * PERIOD)[0]

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Systemd]:
    monkeypatch.delenv("WATCHDOG_PID", raising=False)
    # A path is shorter than tmp_path may be.
    monkeypatch.chdir(tmp_path)
    found = Systemd("./notify", monkeypatch.setenv)
    yield found
    found.close()


async def test_the_loop_sends_messages_until_the_end(loop: Any, systemd: Systemd) -> None:
    async with goloop.systemd.watchdog():
        assert await asyncio.to_thread(systemd.next) == "READY=1"
        for _ in range(3):
            assert await asyncio.to_thread(systemd.next) == "WATCHDOG=1"
    assert [each for each in systemd.drain() if each != "WATCHDOG=1"] == ["STOPPING=1"]
    await asyncio.sleep(2 * PERIOD)
    assert systemd.drain() == []


async def test_blocked_loop_sends_no_watchdog_messages_until_it_continues(
    loop: Any, systemd: Systemd
) -> None:
    async with goloop.systemd.watchdog(ready=False):
        assert await asyncio.to_thread(systemd.next) == "WATCHDOG=1"
        systemd.drain()
        assert systemd.is_silent()  # and blocks this loop
        for _ in range(2):
            assert await asyncio.to_thread(systemd.next) == "WATCHDOG=1"


def test_one_blocked_loop_stops_the_watchdog_messages(systemd: Systemd) -> None:
    both, blocked, go_on, done = (threading.Event() for _ in range(4))

    async def other() -> None:
        async with goloop.systemd.watchdog(ready=False):
            both.set()
            while not blocked.is_set():
                await asyncio.sleep(0)
            assert go_on.wait(SECONDS)
            while not done.is_set():
                await asyncio.sleep(PERIOD)

    async def main() -> None:
        thread = threading.Thread(target=goloop.run, args=(other(),))
        async with goloop.systemd.watchdog(ready=False):
            thread.start()
            await asyncio.to_thread(both.wait)
            await asyncio.to_thread(systemd.next)
            blocked.set()
            # A message may have come from the other loop's last step.
            while not await asyncio.to_thread(systemd.is_silent):
                systemd.drain()
            go_on.set()
            for _ in range(3):
                assert await asyncio.to_thread(systemd.next) == "WATCHDOG=1"
            done.set()
            await asyncio.to_thread(thread.join)
            # The one that has ended need not go on, and has not stopped the service.
            assert "STOPPING=1" not in systemd.drain()
            for _ in range(3):
                assert await asyncio.to_thread(systemd.next) == "WATCHDOG=1"
        assert systemd.drain()[-1] == "STOPPING=1"

    goloop.run(main())


@pytest.mark.skipif(sys.platform != "linux", reason="names without a file are Linux's")
async def test_an_abstract_address(loop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    systemd = Systemd(f"@goloop-test-{os.getpid()}", monkeypatch.setenv)
    assert goloop.systemd.notify("STATUS=here")
    assert systemd.next() == "STATUS=here"
    systemd.close()


async def test_watchdog_without_systemd_has_no_effect(
    loop: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"):
        monkeypatch.delenv(name, raising=False)
    async with goloop.systemd.watchdog():
        await asyncio.sleep(0)
    assert not goloop.systemd.notify("READY=1")


async def test_service_without_watchdog_sends_ready_and_stopping(
    loop: Any, systemd: Systemd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WATCHDOG_USEC")
    async with goloop.systemd.watchdog():
        await asyncio.sleep(2 * PERIOD)
    assert systemd.drain() == ["READY=1", "STOPPING=1"]


async def test_only_the_process_that_is_watched_sends(
    loop: Any, systemd: Systemd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHDOG_PID", str(os.getpid() + 1))
    async with goloop.systemd.watchdog():
        await asyncio.sleep(2 * PERIOD)
    assert systemd.drain() == []
    monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()))
    async with goloop.systemd.watchdog():
        assert await asyncio.to_thread(systemd.next) == "READY=1"
        assert await asyncio.to_thread(systemd.next) == "WATCHDOG=1"


@pytest.mark.forks
def test_a_forked_child_does_not_send_for_its_parent(systemd: Systemd) -> None:
    subprocess.run(
        [sys.executable, "-W", "ignore", PROGRAMS / "forks_with_a_notifier.py"], check=True
    )
    found = systemd.drain()
    assert [each for each in found if each != "WATCHDOG=1"] == [
        *("STATUS=parent", "READY=1", "STOPPING=1", "STATUS=over")
    ]
    assert found[-2:] == ["STOPPING=1", "STATUS=over"]


async def test_missing_notify_socket_is_logged_and_a_full_one_is_not(
    loop: Any, systemd: Systemd, caplog: pytest.LogCaptureFixture
) -> None:
    while goloop.systemd._send("WATCHDOG=1", 0):
        pass
    assert not caplog.records
    systemd.close()
    assert not goloop.systemd.notify("READY=1")
    [record] = caplog.records
    assert record.getMessage().startswith("cannot send 'READY=1' to systemd: ")


async def test_surrogate_escapes_are_sent_and_other_surrogates_are_logged(
    loop: Any, systemd: Systemd, caplog: pytest.LogCaptureFixture
) -> None:
    name = os.fsdecode(b"\xff.txt")
    assert goloop.systemd.notify(f"STATUS=reads {name}")
    assert systemd.next_bytes() == b"STATUS=reads \xff.txt"
    assert not caplog.records
    assert not goloop.systemd.notify("STATUS=\ud800")
    [record] = caplog.records
    assert record.getMessage().startswith("cannot send 'STATUS=\\ud800' to systemd: ")


@pytest.mark.parametrize("told", ["soon", "9" * 320])
async def test_invalid_time_is_logged(
    loop: Any,
    systemd: Systemd,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    told: str,
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", told)
    async with goloop.systemd.watchdog():
        pass
    said = [record.getMessage() for record in caplog.records]
    assert said == [f"WATCHDOG_USEC={told} is not a number"]
    assert systemd.drain() == ["READY=1", "STOPPING=1"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_documented_unit_is_valid(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "deployment.md").read_text()
    [unit] = re.findall(r"^```ini\n(\[Unit\]\n.*?)^```$", page, re.MULTILINE | re.DOTALL)
    for name, value in re.findall(r"^(WatchdogSec|Type)=(.*)$", unit, re.MULTILINE):
        assert value == {"WatchdogSec": "30", "Type": "notify"}[name]
    file = tmp_path / "app.service"
    # The unit's command must exist.
    file.write_text(re.sub(r"^ExecStart=\S+", f"ExecStart={sys.executable}", unit, flags=re.M))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", file], capture_output=True, text=True, check=False
    )
    complaints = [line for line in done.stderr.splitlines() if "app.service" in line]
    assert not complaints
