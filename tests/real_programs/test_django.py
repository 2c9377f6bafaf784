"""Django: under an ASGI server, and in its own server, which reloads itself."""

from __future__ import annotations

import json

import pytest

from real_programs.programs import APPS, LOOP, Program, Programs, free_port, get, needs

needs("django", "uvicorn")

pytestmark = pytest.mark.real


def asgi(programs: Programs, port: int) -> Program:
    return programs.python(
        *("-m", "uvicorn", "django_app:application", "--loop", "goloop:new_event_loop"),
        *("--port", str(port), "--lifespan", "off"),
        port=port,
    )


def runserver(programs: Programs, port: int) -> Program:
    """In a process of its own, below the one that watches the files."""
    return programs.python(APPS / "django_app.py", "runserver", str(port), port=port, INSTALL="1")


def switched(programs: Programs, port: int) -> Program:
    """In a process of its own, too, on goloop by the command that starts the program."""
    program = APPS / "django_app.py"
    return programs.python("-m", "goloop", program, "runserver", str(port), port=port)


@pytest.mark.parametrize("server", [asgi, runserver, switched])
def test_django_runs_coroutines_on_goloop(programs: Programs, server) -> None:
    port = free_port()
    running = server(programs, port)
    url = f"http://127.0.0.1:{port}"
    told = json.loads(get(url))
    assert told["loop"] == LOOP
    assert (told["pid"] == running.process.pid) is (server is asgi)
    for view in ("sync", "there-and-back"):
        assert json.loads(get(f"{url}/{view}")) == {"loop": LOOP}
    assert get(f"{url}/stream") == "".join(f"{LOOP} {number}\n" for number in range(3))
    assert "Traceback" not in running.output
    running.end(status=None)
