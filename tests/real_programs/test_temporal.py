"""Temporal's activities and client on goloop; a workflow keeps the loop of its sandbox."""

from __future__ import annotations

import pytest

from real_programs.programs import APPS, LOOP, Programs, needs

needs("temporalio", "grpc")

pytestmark = pytest.mark.real


def test_activities_and_the_client_run_on_goloop_and_workflows_on_their_own(
    programs: Programs,
) -> None:
    """Without Temporal's server, which has to be downloaded: see apps/temporal_app.py."""
    output = programs.ends_well(APPS / "temporal_app.py")
    found = dict(line.split(": ") for line in output.splitlines() if ": " in line)
    own = found.pop("workflow")
    assert own.startswith("temporalio.worker")
    assert found == dict.fromkeys(("main", "activity", "client", "replayed"), LOOP)
