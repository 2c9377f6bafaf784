"""Web servers on several loops of one process, which share a listener."""

from __future__ import annotations

import http.client
import json
import signal
import sysconfig
from collections import Counter

import pytest

from real_programs.programs import APPS, LOOP, TIME_LIMIT, Programs, free_port, needs

pytestmark = pytest.mark.real

needs("aiohttp", "uvicorn")

SAYS_GIL = f"GIL: {not sysconfig.get_config_var('Py_GIL_DISABLED')}"


def answers_evenly(port: int) -> None:
    """Connections that are open at a time are shared out among the three threads."""
    asked = [http.client.HTTPConnection("127.0.0.1", port, timeout=TIME_LIMIT) for _ in range(9)]
    try:
        for connection in asked:
            connection.connect()
        found = Counter[str]()
        for connection in asked:
            connection.request("GET", "/")
            told = json.loads(connection.getresponse().read())
            assert told["loop"] == LOOP
            found[told["thread"]] += 1
        assert found == {"goloop-0": 3, "goloop-1": 3, "goloop-2": 3}
    finally:
        for connection in asked:
            connection.close()


def test_aiohttp_serves_with_a_runner_in_each_thread(programs: Programs) -> None:
    port = free_port()
    server = programs.python(APPS / "aiohttp_threads.py", str(port))
    server.until_says("serves", 3)
    answers_evenly(port)
    output = server.end(signal.SIGTERM, status=143)
    assert {f"cleaned up {index}" in output for index in range(3)} == {True}
    assert SAYS_GIL in output  # aiohttp and its imports don't turn it on


def test_uvicorn_serves_with_a_server_in_each_thread(programs: Programs) -> None:
    port = free_port()
    server = programs.python(APPS / "uvicorn_threads.py", str(port))
    server.until_says("serves", 3)
    answers_evenly(port)
    output = server.end(signal.SIGTERM)
    assert {f"shut down goloop-{index}" in output for index in range(3)} == {True}
    assert SAYS_GIL in output  # uvicorn and its imports don't turn it on
