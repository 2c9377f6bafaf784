"""debugpy: an editor attaches to a program on goloop and stops it in coroutines and callbacks."""

from __future__ import annotations

from typing import Any

import pytest

from real_programs.debug_client import DebugClient
from real_programs.programs import APPS, LOOP, Programs, free_port, needs

needs("debugpy")

pytestmark = pytest.mark.real

APP = APPS / "debugged_app.py"


def line_of(comment: str) -> int:
    """The number of the line with that comment."""
    lines = APP.read_text().splitlines()
    (number,) = [at for at, line in enumerate(lines, 1) if line.endswith(f"  # {comment}")]
    return number


def top(client: DebugClient, thread: int) -> tuple[dict[str, Any], list[str]]:
    """The innermost frame of a thread that is stopped, and the names of all."""
    frames = client.ask("stackTrace", threadId=thread)["stackFrames"]
    return frames[0], [frame["name"] for frame in frames]


def value(client: DebugClient, frame: dict[str, Any], expression: str) -> str:
    """Return the value of an expression in a frame."""
    answer: str = client.ask("evaluate", expression=expression, frameId=frame["id"])["result"]
    return answer


def test_breakpoints_in_coroutines_and_callbacks_stop_the_loop(programs: Programs) -> None:
    port = free_port()
    program = programs.python(
        *("-Xfrozen_modules=off", "-m", "debugpy"),
        *("--listen", f"127.0.0.1:{port}", "--wait-for-client", APP),
        # The loop stands still while the program is stopped.
        GOLOOP_WATCHDOG="0",
    )
    with DebugClient(port) as client:
        client.ask("initialize", adapterID="debugpy", clientID="test", pathFormat="path")
        # Answered when the configuration is done.
        attached = client.send("attach", justMyCode=True)
        client.event("initialized")
        lines = [line_of("in a callback"), line_of("in a coroutine")]
        told = client.ask(
            "setBreakpoints",
            source={"path": str(APP)},
            breakpoints=[{"line": line} for line in lines],
        )
        assert [each["verified"] for each in told["breakpoints"]] == [True, True]
        client.ask("configurationDone")
        client.answer(attached)

        stopped = client.event("stopped")
        assert stopped["reason"] == "breakpoint"
        thread = stopped["threadId"]
        frame, names = top(client, thread)
        assert (names[0], frame["line"]) == ("called", line_of("in a callback"))
        assert value(client, frame, "doubled") == "42"
        client.ask("continue", threadId=thread)

        assert client.event("stopped")["reason"] == "breakpoint"
        frame, names = top(client, thread)
        assert (names[0], frame["line"]) == ("inner", line_of("in a coroutine"))
        assert value(client, frame, "longer") == "'hello!'"
        kind = value(client, frame, "type(asyncio.get_running_loop())")
        assert kind == f"<class '{LOOP}'>"
        assert "inner" in value(client, frame, "asyncio.current_task().get_coro().__name__")

        # Over the line, and over an `await`, which other callbacks may come between.
        for expected in (line_of("in a coroutine") + 1, line_of("after an await")):
            client.ask("next", threadId=thread)
            assert client.event("stopped")["reason"] == "step"
            frame, names = top(client, thread)
            assert (names[0], frame["line"]) == ("inner", expected)
        assert value(client, frame, "shown") == "'HELLO!'"
        client.ask("continue", threadId=thread)
        client.event("terminated")
    program.wait()
    assert program.process.returncode == 0, program.output
    assert f"HELLO! from {LOOP}\n" in program.output
