"""grpc.aio: unary calls, streams, errors, many at once."""

from __future__ import annotations

import pytest

from real_programs.programs import APPS, Programs, free_port, needs

needs("grpc")

pytestmark = pytest.mark.real


def test_grpc_answers_its_client(programs: Programs) -> None:
    port = free_port()
    server = programs.python(APPS / "grpc_server.py", str(port), port=port)
    assert "done" in programs.ends_well(APPS / "grpc_client.py", str(port))
    server.end()
