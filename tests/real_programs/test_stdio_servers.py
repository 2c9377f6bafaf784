"""Servers of tools over stdin and stdout: MCP's SDK, and pygls for the Language Server Protocol."""

from __future__ import annotations

import pytest

from real_programs.programs import APPS, LOOP, Programs, needs

pytestmark = pytest.mark.real


@pytest.mark.parametrize("package", ["mcp", "pygls"])
def test_server_and_client_run_on_goloop(programs: Programs, package: str) -> None:
    needs(package)
    said = programs.ends_well("-m", "goloop", APPS / f"{package}_client.py")
    assert f"server <{LOOP} running=True" in said
    assert f"client <{LOOP} running=True" in said
