"""Faust: an agent with its test context, and the application's command line, without a broker."""

from __future__ import annotations

import pytest

from real_programs.programs import APPS, LOOP, Programs, needs

needs("faust")

pytestmark = pytest.mark.real


def test_an_agent_works_on_goloop(programs: Programs) -> None:
    output = programs.ends_well(APPS / "faust_app.py")
    expected = [f"result: {LOOP} {2 * number}" for number in range(20)]
    assert [line for line in output.splitlines() if line.startswith("result:")] == expected


def test_the_command_line_has_goloop(programs: Programs) -> None:
    output = programs.ends_well("-m", "goloop", "-m", "faust", "-A", "faust_app", "which-loop")
    assert f"loop: {LOOP}" in output
