"""Guest mode in Qt programs: PySide6 or PyQt6.

The binding that the program has imported is used; if it has imported none, an installed one.
"""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from . import Guest
from . import start as _start

__all__ = ("run", "start")

_T = TypeVar("_T")


def start(main: Coroutine[Any, Any, _T], **options: Any) -> Guest[_T]:
    """Begin to run a coroutine within Qt's loop, in this thread.

    Call it in the thread that has the QApplication, before `exec()` or during it. When `exec()` has
    returned, call `Guest.finish()`. Since 0.3.0.

    Args:
        main: The coroutine.
        options: `done_callback`, `debug`, `context` and `time_share`, see `goloop.guest.start`.

    Returns:
        The run.

    Raises:
        ImportError: Neither PySide6 nor PyQt6 is installed.
    """
    try:
        post = _poster(_binding("QtCore"))
    except ImportError:
        if asyncio.iscoroutine(main):
            main.close()
        raise
    return _start(main, run_sync_soon_threadsafe=post, **options)


def run(main: Coroutine[Any, Any, _T], app: Any, **options: Any) -> _T:
    """Run a Qt application until a coroutine has ended.

    The application quits when `main` has ended. If it quits first, as it does when its last window
    is closed, `main` is cancelled and runs to its end. The application's handlers get the run by
    `goloop.guest.current()`. Since 0.3.0.

    Args:
        main: The coroutine.
        app: The QApplication.
        options: `debug`, `context` and `time_share`, see `goloop.guest.start`.

    Returns:
        The result of `main`.

    Raises:
        CancelledError: The application has quit first; or any other exception of `main`.
        ImportError: Neither PySide6 nor PyQt6 is installed.
    """
    guest = start(main, done_callback=lambda outcome: app.quit(), **options)
    return guest._finish_after(app.exec)


def _binding(module: str) -> Any:
    """Return a module of the Qt binding that the program has imported, else of an installed one.

    Raises ImportError if there is none.
    """
    names = ("PySide6", "PyQt6")
    for name in [name for name in names if name in sys.modules] or names:
        try:
            return importlib.import_module(f"{name}.{module}")
        except ImportError as exc:
            failed = exc
    raise ImportError("goloop.guest.qt needs PySide6 or PyQt6") from failed


def _poster(core: Any) -> Callable[[Callable[[], object]], object]:
    """Return a function that posts calls to this thread's loop, by a queued Qt signal."""
    signal = getattr(core, "Signal", None) or core.pyqtSignal

    class Poster(core.QObject):  # type: ignore[misc]
        """The Qt object of this thread whose signal carries the posted calls."""

        posted = signal(object)

        def run_posted(self, function: Callable[[], object]) -> None:
            """Run a posted function; connected to the signal, so it runs in this thread's loop."""
            function()

    poster = Poster()
    poster.posted.connect(poster.run_posted, core.Qt.ConnectionType.QueuedConnection)

    def post(function: Callable[[], object]) -> None:
        """Post a function to Qt's loop; may be called in any thread."""
        poster.posted.emit(function)

    return post
