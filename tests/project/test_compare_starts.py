"""Starts and bursts of the programs of `goloop compare`, without real servers."""

from __future__ import annotations

import io
import itertools
import signal
from pathlib import Path
from typing import Any

import pytest

from goloop.operations import server_ports
from goloop.operations.compare import arguments, loops, rounds, servers
from goloop.operations.compare.measuring import machine
from goloop.operations.compare.measuring.turns import Failure

FULL = rounds.Scenario(4)

pytestmark = pytest.mark.goloop_only("asyncio has no such command")


def test_a_burst_without_an_answer_is_stored_with_its_real_disturbance() -> None:
    class Silent:
        def run(self, order: object) -> dict[str, Any]:
            return {
                "requests": 0, "seconds": 0.3, "p50": None, "p99": None, "server_cpu": 0.1,
                "client_cpu": 0.1, "disturbance": "", "statuses": {}, "errors": {}, "wrong": "",
                "measured_errors": 0,
            }  # fmt: skip

    class Running:
        loop = loops.ASYNCIO

        def pids(self) -> list[int]:
            return []

        def check_running(self, when: str) -> None:
            pass

        def uses_loop(self) -> bool:
            return True

    plan = arguments.Plan(["server.py"], [loops.ASYNCIO], "http")
    found = rounds.Measurement(plan, [FULL], [], [])
    client: Any = Silent()
    program: Any = Running()
    rounds._burst(found, client, program, (FULL, 1, 0.0))
    (sample,) = found.samples
    assert (sample.requests, sample.disturbance) == (0, "")


# ---- starts --------------------------------------------------------------------------------------


class Clock:
    """The module time of a program that waits for its server: a sleep takes no real time."""

    now = 100.0

    def perf_counter(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of servers, and a server that listens on port 9000 at once."""
    made = Clock()
    monkeypatch.setattr(servers, "time", made)
    others = [("127.0.0.1", 9000)]
    monkeypatch.setattr(server_ports, "listening_addresses", lambda pids: others)
    return made


def started(clock: Clock) -> servers.Program:
    """A program that runs, has made its loop, and was started a second ago."""

    class Running:
        def poll(self) -> None:
            return None

    program = servers.Program.__new__(servers.Program)
    running: Any = Running()
    program.process = running
    program.started = clock.now - 1
    program._record = io.StringIO("process 7\nchosen a.Loop 0.25 10.5\n")
    output: Any = io.BytesIO()
    program._output = output
    program.pids = lambda: [7]  # type: ignore[method-assign]
    return program


def test_a_server_may_listen_on_another_port_before_its_own(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = clock.now

    def accepting(host: str, port: int) -> tuple[str, int] | None:
        return (host, port) if clock.now > begin + 25 else None

    monkeypatch.setattr(server_ports, "accepting_address", accepting)
    monkeypatch.setattr(server_ports, "is_listener", lambda address, pids: True)
    started(clock).wait_until_ready("127.0.0.1", 8000, 30)
    assert begin + 25 < clock.now < begin + 26


def test_another_port_is_the_reason_at_the_limit_of_the_start(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_ports, "accepting_address", lambda host, port: None)
    begin = clock.now
    program = started(clock)
    clock.now += 20  # another loop's server was waited for
    words = "the server listens on port 9000, not on 8000, after 30 s: pass --port 9000"
    with pytest.raises(Failure, match=words) as failed:
        program.wait_until_ready("127.0.0.1", 8000, 30)
    assert str(failed.value).endswith("pass a larger --start-limit if it listens on 8000 later")
    assert begin + 29 < clock.now < begin + 30


def test_a_server_without_an_event_loop_is_no_server_of_another_port(clock: Clock) -> None:
    program = started(clock)
    program._record = io.StringIO("process 7\n")
    with pytest.raises(Failure, match="has run no asyncio event loop after 30 s"):
        program.wait_until_ready("127.0.0.1", 8000, 30)


def test_a_signal_while_a_start_fails_is_not_lost() -> None:
    def start() -> None:
        with servers.uninterrupted():
            signal.raise_signal(signal.SIGINT)
            raise OSError("no such program")

    with pytest.raises(KeyboardInterrupt) as ended:
        start()
    assert isinstance(ended.value.__context__, OSError)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


# ---- programs that end ---------------------------------------------------------------------------

# A program that listens on a port, waits, and ends.
WAITING = """
import asyncio

async def main():
    server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    await asyncio.sleep(0.6)
    server.close()

asyncio.run(main())
"""


def run_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str) -> dict[str, Failure]:
    """Run the waiting program once on each loop, looking often; return the failures."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "waits.py").write_text(WAITING)
    monkeypatch.setattr(rounds, "_LOOK_SECONDS", 0.01)
    words = ["--run", "waits.py", "--loops", "goloop,asyncio", "--rounds", "1"]
    plan = arguments.parse([*words, "--start-limit", limit])
    return rounds.measure(plan, lambda progress: None).failures


def test_a_program_that_listens_and_waits_is_run_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run_waiting(tmp_path, monkeypatch, "30") == {}


def test_a_program_whose_child_has_ended_is_not_idle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The CPU time of a program is less after one of its processes has ended."""
    less = itertools.count(1000.0, -1.0)
    monkeypatch.setattr(server_ports, "family_of", lambda pid: [pid])
    monkeypatch.setattr(machine, "cpu_seconds", lambda pid: next(less))
    assert run_waiting(tmp_path, monkeypatch, "0.1") == {}
