"""asyncio in a program of Qt: PySide6 or PyQt6.

It takes the one that the program has imported, else the one that is installed.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from . import Guest
from . import start as _start

__all__ = ("run", "start")

_T = TypeVar("_T")


def start(main: Coroutine[Any, Any, _T], **options: Any) -> Guest[_T]:
    """Begin to run a coroutine inside Qt's loop, in this thread.

    It is called in the thread that has the QApplication, before `exec()` or in it.  When `exec()`
    has returned, call `Guest.finish()`.  Since 0.3.0.

    Args:
        main: The coroutine.
        options: `done_callback`, `debug`, `context` and `time_share`, see `goloop.guest.start`.

    Returns:
        The run.

    Raises:
        ImportError: There is neither PySide6 nor PyQt6.
    """
    try:
        post = _poster(_binding("QtCore"))
    except ImportError:
        main.close()
        raise
    return _start(main, run_sync_soon_threadsafe=post, **options)


def run(main: Coroutine[Any, Any, _T], app: Any, **options: Any) -> _T:
    """Run a Qt application until a coroutine has ended.

    The application quits when `main` has ended.  If it quits before, as it does when its last
    window is closed, `main` is cancelled and runs to its end.  Since 0.3.0.

    Args:
        main: The coroutine.
        app: The QApplication.
        options: `debug`, `context` and `time_share`, see `goloop.guest.start`.

    Returns:
        What `main` returns.

    Raises:
        CancelledError: The application has quit before; or what else `main` raises.
        ImportError: There is neither PySide6 nor PyQt6.
    """
    guest = start(main, done_callback=lambda outcome: app.quit(), **options)
    return guest._finish_after(app.exec)


def _binding(module: str) -> Any:
    names = ("PySide6", "PyQt6")
    for name in [name for name in names if name in sys.modules] or names:
        try:
            return importlib.import_module(f"{name}.{module}")
        except ImportError as exc:
            failed = exc
    raise ImportError("goloop.guest.qt needs PySide6 or PyQt6") from failed


def _poster(core: Any) -> Callable[[Callable[[], object]], object]:
    """A function that posts calls to this thread's loop: a signal, which waits in Qt's queue."""
    signal = getattr(core, "Signal", None) or core.pyqtSignal

    class Poster(core.QObject):  # type: ignore[misc]
        posted = signal(object)

        def call(self, function: Callable[[], object]) -> None:
            function()

    poster = Poster()
    poster.posted.connect(poster.call, core.Qt.ConnectionType.QueuedConnection)

    def post(function: Callable[[], object]) -> None:
        poster.posted.emit(function)

    return post
