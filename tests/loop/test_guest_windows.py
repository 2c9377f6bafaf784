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


QT = {
    "make": "app = {binding}.QtWidgets.QApplication([]); window = {binding}.QtWidgets.QWidget()",
    "show": "window.show()",
    "later": "{binding}.QtCore.QTimer.singleShot(ms, call)",
    "close": "window.close()",
    "run": "goloop.guest.qt.run(main(), app)",
}
TK = {
    "make": "window = tkinter.Tk()",
    "show": "window.update()",
    "later": "window.after(ms, call)",
    "close": "window.destroy()",
    "run": "goloop.guest.tk.run(main(), window)",
}
IMPORTS = {
    "tk": "import tkinter, goloop.guest.tk",
    "PySide6": "import PySide6.QtWidgets, PySide6.QtCore, goloop.guest.qt",
    "PyQt6": "import PyQt6.QtWidgets, PyQt6.QtCore, goloop.guest.qt",
}
PROGRAM = """
import asyncio
{imports}

{make}
{show}

def later(ms, call):
    {later}

def close():
    {close}
"""


def program(binding: str, rest: str) -> str:
    words = TK if binding == "tk" else QT
    text = PROGRAM.format(imports=IMPORTS[binding], **words) + rest.replace("RUN", words["run"])
    return text.replace("{binding}", binding)


BINDINGS = pytest.mark.parametrize("binding", sorted(IMPORTS))


@pytest.mark.parametrize("binding", ["tk", "PySide6"])
def test_the_examples_window_draws_while_a_thousand_requests_run(binding: str) -> None:
    example = EXAMPLES / ("guest_tk.py" if binding == "tk" else "guest_qt.py")
    words = run(binding, str(example), "--once").split()
    assert words[:2] == ["1,000", "answers,"]
    assert int(words[-2]) > 1


# Pictures of the screen while the example's requests run: of the offscreen screen of Qt, and of the
# X server's own memory, which Xvfb has in a file.
SHOTS = {
    "PySide6": """
from PySide6 import QtCore, QtWidgets
app = QtWidgets.QApplication([])
window = guest_qt.Window()
window.show()

def shot():
    image = app.primaryScreen().grabWindow(window.winId()).toImage()
    shots.append(hash(bytes(image.constBits())))

timer = QtCore.QTimer(window)
timer.timeout.connect(shot)
timer.start(20)
window.button.click()
guest_qt.goloop.guest.qt.run(window.main(True), app)
""",
    "tk": """
import pathlib, tkinter
root = tkinter.Tk()
window = guest_tk.Window(root)

def shot():
    shots.append(hash(pathlib.Path("Xvfb_screen0").read_bytes()))
    root.after(20, shot)

root.after(20, shot)
window.clicked()
guest_tk.goloop.guest.tk.run(window.main(True), root)
""",
}


@pytest.mark.parametrize("binding", sorted(SHOTS))
def test_the_screen_changes_while_a_thousand_requests_run(binding: str, tmp_path: Path) -> None:
    name = "guest_tk" if binding == "tk" else "guest_qt"
    head = f"import sys; sys.path.insert(0, {str(EXAMPLES)!r}); import {name}; shots = []"
    rest = "print(len(shots), len(set(shots)))"
    words = run(binding, "-c", head + SHOTS[binding] + rest, screen=tmp_path).split()
    taken, different = map(int, words[-2:])
    assert different >= 5, taken


@BINDINGS
def test_run_returns_the_result_of_main(binding: str) -> None:
    rest = """
async def main():
    for _ in range(3):
        await asyncio.sleep(0.001)
    await asyncio.to_thread(int)
    return "result"

print(RUN)
"""
    assert run(binding, "-c", program(binding, rest)) == "result\n"


@BINDINGS
def test_the_windows_callbacks_may_use_the_loop(binding: str) -> None:
    rest = """
async def main():
    asked = asyncio.Event()
    for _ in range(3):
        later(1, asked.set)
        await asked.wait()
        asked.clear()
    return "result"

print(RUN)
"""
    assert run(binding, "-c", program(binding, rest)) == "result\n"


@BINDINGS
def test_handlers_of_the_window_start_tasks_by_current(binding: str) -> None:
    rest = """
import goloop.guest

def clicked():
    loop = goloop.guest.current().loop
    answer.set_result(loop.create_task(asyncio.sleep(0.001, "a task's result")))

async def main():
    global answer
    answer = asyncio.get_running_loop().create_future()
    later(1, clicked)
    return await (await answer)

print(RUN)
"""
    assert run(binding, "-c", program(binding, rest)) == "a task's result\n"


@BINDINGS
def test_a_window_that_is_closed_cancels_main_which_runs_to_its_end(binding: str) -> None:
    rest = """
async def main():
    later(1, close)
    try:
        await asyncio.get_running_loop().create_future()
    finally:
        await asyncio.sleep(0.001)
        print("cleaned up")

try:
    RUN
except asyncio.CancelledError:
    print("cancelled")
"""
    assert run(binding, "-c", program(binding, rest)) == "cleaned up\ncancelled\n"


@BINDINGS
def test_exception_of_main_leaves_run(binding: str) -> None:
    rest = """
async def main():
    await asyncio.sleep(0)
    1 / 0

try:
    RUN
except ZeroDivisionError:
    print("raised")
"""
    assert run(binding, "-c", program(binding, rest)) == "raised\n"


@pytest.mark.parametrize("binding", ["PySide6", "PyQt6"])
def test_ctrl_c_reaches_a_window_that_sleeps(binding: str) -> None:
    """Qt's loop runs no handlers of Python's by itself."""
    rest = """
import os, signal, threading
signal.signal(signal.SIGINT, signal.default_int_handler)

async def main():
    interrupt = threading.Thread(target=os.kill, args=(os.getpid(), signal.SIGINT))
    asyncio.get_running_loop().call_soon(interrupt.start)
    await asyncio.get_running_loop().create_future()

try:
    RUN
except KeyboardInterrupt:
    print("interrupted")
"""
    assert run(binding, "-c", program(binding, rest)) == "interrupted\n"


def test_qt_without_a_binding_names_the_needed_packages() -> None:
    rest = """
import asyncio, sys
sys.modules["PySide6"] = sys.modules["PyQt6"] = None
import goloop.guest.qt
try:
    goloop.guest.qt.start(asyncio.sleep(0))
except ImportError as exc:
    print(exc)
"""
    assert ended.python("-c", rest).stdout == "goloop.guest.qt needs PySide6 or PyQt6\n"
