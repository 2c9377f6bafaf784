"""The scenarios of test_guest_windows.py: `python FILE NAME tk|PySide6|PyQt6` runs one."""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import os
import pathlib
import signal
import sys
import threading
from collections.abc import Callable, Coroutine
from typing import Any

# The package of the windows.
BINDING = sys.argv[2]


class TkWindow:
    """An empty window, with the calls that the scenarios need."""

    def __init__(self) -> None:
        import tkinter

        import goloop.guest.tk

        self._window = tkinter.Tk()
        self._window.update()
        self._guest = goloop.guest.tk

    def later(self, ms: int, call: Callable[[], Any]) -> None:
        self._window.after(ms, call)

    def close(self) -> None:
        self._window.destroy()

    def run(self, main: Coroutine[Any, Any, Any]) -> Any:
        return self._guest.run(main, self._window)


class QtWindow:
    """An empty window of Qt, by either binding."""

    def __init__(self) -> None:
        import goloop.guest.qt

        widgets = importlib.import_module(f"{BINDING}.QtWidgets")
        self._timer = importlib.import_module(f"{BINDING}.QtCore").QTimer
        self._app = widgets.QApplication([])
        self._window = widgets.QWidget()
        self._window.show()
        self._guest = goloop.guest.qt

    def later(self, ms: int, call: Callable[[], Any]) -> None:
        self._timer.singleShot(ms, call)

    def close(self) -> None:
        self._window.close()

    def run(self, main: Coroutine[Any, Any, Any]) -> Any:
        return self._guest.run(main, self._app)


def new_window() -> TkWindow | QtWindow:
    return TkWindow() if BINDING == "tk" else QtWindow()


def run_returns_the_result_of_main() -> None:
    window = new_window()

    async def main():
        for _ in range(3):
            await asyncio.sleep(0.001)
        await asyncio.to_thread(int)
        return "result"

    print(window.run(main()))


def the_windows_callbacks_may_use_the_loop() -> None:
    window = new_window()

    async def main():
        asked = asyncio.Event()
        for _ in range(3):
            window.later(1, asked.set)
            await asked.wait()
            asked.clear()
        return "result"

    print(window.run(main()))


def handlers_of_the_window_start_tasks_by_current() -> None:
    import goloop.guest

    window = new_window()

    async def main():
        answer = asyncio.get_running_loop().create_future()

        def clicked():
            loop = goloop.guest.current().loop
            answer.set_result(loop.create_task(asyncio.sleep(0.001, "a task's result")))

        window.later(1, clicked)
        return await (await answer)

    print(window.run(main()))


def a_window_that_is_closed_cancels_main_which_runs_to_its_end() -> None:
    window = new_window()

    async def main():
        window.later(1, window.close)
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            await asyncio.sleep(0.001)
            print("cleaned up")

    try:
        window.run(main())
    except asyncio.CancelledError:
        print("cancelled")


def exception_of_main_leaves_run() -> None:
    window = new_window()

    async def main():
        await asyncio.sleep(0)
        raise ZeroDivisionError

    try:
        window.run(main())
    except ZeroDivisionError:
        print("raised")


def ctrl_c_reaches_a_window_that_sleeps() -> None:
    window = new_window()
    signal.signal(signal.SIGINT, signal.default_int_handler)

    async def main():
        interrupt = threading.Thread(target=os.kill, args=(os.getpid(), signal.SIGINT))
        asyncio.get_running_loop().call_soon(interrupt.start)
        await asyncio.get_running_loop().create_future()

    try:
        window.run(main())
    except KeyboardInterrupt:
        print("interrupted")


def qt_without_a_binding_names_the_needed_packages() -> None:
    sys.modules["PySide6"] = sys.modules["PyQt6"] = None
    import goloop.guest.qt

    try:
        goloop.guest.qt.start(asyncio.sleep(0))
    except ImportError as exc:
        print(exc)


def pictures_while_a_thousand_requests_run() -> None:
    """Prints how many pictures were taken, and how many differ.

    They are of the offscreen screen of Qt, or of the X server's own memory, which Xvfb has in a
    file, while the example's requests run.
    """
    sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "examples"))
    shots = []
    if BINDING == "tk":
        import tkinter

        import guest_tk

        root = tkinter.Tk()
        window = guest_tk.Window(root)

        def shot():
            shots.append(hashlib.sha1(pathlib.Path("Xvfb_screen0").read_bytes()).digest())
            root.after(20, shot)

        root.after(20, shot)
        window.clicked()
        guest_tk.goloop.guest.tk.run(window.main(True), root)
    else:
        import guest_qt
        from PySide6 import QtCore, QtWidgets

        app = QtWidgets.QApplication([])
        window = guest_qt.Window()
        window.show()

        def shot():
            image = app.primaryScreen().grabWindow(window.winId()).toImage()
            shots.append(hashlib.sha1(bytes(image.constBits())).digest())

        timer = QtCore.QTimer(window)
        timer.timeout.connect(shot)
        timer.start(20)
        window.button.click()
        guest_qt.goloop.guest.qt.run(window.main(True), app)
    print(len(shots), len(set(shots)))


if __name__ == "__main__":
    globals()[sys.argv[1]]()
