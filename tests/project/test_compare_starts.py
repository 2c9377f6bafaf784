"""Starts, bursts and ends of the programs of `goloop compare`, with a clock and ends of the test."""

from __future__ import annotations

from typing import Any

import pytest

from goloop.operations.compare import arguments, loops, rounds

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
