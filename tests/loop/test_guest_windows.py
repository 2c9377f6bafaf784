"""Guest mode in windows: the examples, and windows that are closed early."""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import ended
import pytest

import goloop

SCENARIOS = Path(__file__).with_name("guest_windows_scenarios.py")
EXAMPLES = Path(__file__).resolve().parent.parent.parent / "examples"
pytestmark = pytest.mark.skipif(not goloop.native, reason="asyncio's loops have no guest mode")


@functools.cache
def missing(binding: str) -> str:
    """Why the binding can't be used here."""
    name = {"tk": "tkinter"}.get(binding, binding)
    program = f"import {name}" if binding == "tk" else f"from {name} import QtWidgets"
    if importlib.util.find_spec(name) is None:
        return f"{name} is not installed"
    result = ended.python("-c", program)
    if result.returncode != 0:
        return f"{name} does not work here: {result.stdout.splitlines()[-1]}"
    if binding == "tk" and not os.environ.get("DISPLAY") and shutil.which("xvfb-run") is None:
        return "Tk needs a display, and there is no xvfb-run"
    return ""


def run(binding: str, *arguments: str, screen: Path | None = None) -> str:
    """Return the output of a program with a window, run in `screen` with the files of Xvfb."""
    if reason := missing(binding):
        pytest.skip(reason)
    if binding != "tk":
        result = ended.python(*arguments, QT_QPA_PLATFORM="offscreen", apart=True)
    elif os.environ.get("DISPLAY") and screen is None:
        result = ended.python(*arguments, apart=True)
    elif shutil.which("xvfb-run") is None:
        pytest.skip("there is no xvfb-run")
    else:
        memory = ["-s", f"-screen 0 800x600x24 -fbdir {screen}"] if screen else []
        command = ["xvfb-run", "-a", *memory, sys.executable, *arguments]
        result = subprocess.run(command, cwd=screen, capture_output=True, text=True, timeout=100)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


BINDINGS = pytest.mark.parametrize("binding", ["PyQt6", "PySide6", "tk"])


@pytest.mark.parametrize("binding", ["tk", "PySide6"])
def test_the_examples_window_draws_while_a_thousand_requests_run(binding: str) -> None:
    example = EXAMPLES / ("guest_tk.py" if binding == "tk" else "guest_qt.py")
    words = run(binding, str(example), "--once").split()
    assert words[:2] == ["1,000", "answers,"]
    assert int(words[-2]) > 1


@pytest.mark.parametrize("binding", ["PySide6", "tk"])
def test_the_screen_changes_while_a_thousand_requests_run(binding: str, tmp_path: Path) -> None:
    name = "pictures_while_a_thousand_requests_run"
    words = run(binding, str(SCENARIOS), name, binding, screen=tmp_path).split()
    taken, different = map(int, words[-2:])
    assert different >= 5, taken


OUTPUTS = {
    "run_returns_the_result_of_main": "result\n",
    "the_windows_callbacks_may_use_the_loop": "result\n",
    "handlers_of_the_window_start_tasks_by_current": "a task's result\n",
    "a_window_that_is_closed_cancels_main_which_runs_to_its_end": "cleaned up\ncancelled\n",
    "exception_of_main_leaves_run": "raised\n",
}


@BINDINGS
@pytest.mark.parametrize("name", OUTPUTS)
def test_a_window_and_its_guest(name: str, binding: str) -> None:
    assert run(binding, str(SCENARIOS), name, binding) == OUTPUTS[name]


@pytest.mark.parametrize("binding", ["PySide6", "PyQt6"])
def test_ctrl_c_reaches_a_window_that_sleeps(binding: str) -> None:
    """Qt's loop runs no handlers of Python's by itself."""
    words = (str(SCENARIOS), "ctrl_c_reaches_a_window_that_sleeps", binding)
    assert run(binding, *words) == "interrupted\n"


def test_qt_without_a_binding_names_the_needed_packages() -> None:
    said = ended.passes(SCENARIOS, "qt_without_a_binding_names_the_needed_packages", "PySide6")
    assert said == "goloop.guest.qt needs PySide6 or PyQt6\n"
