"""Objects of a TLS connection that are replaced while in use never cause a crash."""

from __future__ import annotations

from pathlib import Path

import ended
import pytest
from tls_tools import identity

SCENARIOS = Path(__file__).with_name("tls_safety_scenarios.py")


ACTIONS = ["inner", "inner, fake", "inner, other", "sslobj", "bios", "no bios", "backlog", "app",
           "buffer", "transport"]  # fmt: skip


@pytest.mark.parametrize("buffered", [False, True])
@pytest.mark.parametrize("moment", ["data", "after", "pause", "idle", "callback"])
@pytest.mark.parametrize("action", ACTIONS)
def test_replacing_a_connections_objects_does_not_crash(
    action: str, moment: str, buffered: bool
) -> None:
    made = identity()
    told = ended.passes(
        SCENARIOS, "a_struck_connection", made.certificate, made.key, action, moment, str(buffered)
    )
    assert told == "alive 1\n"
