"""Guest mode in Tk programs."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import os
import tkinter
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from . import Guest
from . import start as _start

__all__ = ("run", "start")

_T = TypeVar("_T")


def start(main: Coroutine[Any, Any, _T], root: tkinter.Misc, **options: Any) -> Guest[_T]:
    """Begin to run a coroutine within Tk's loop, in this thread.

    Call it in the thread that has created the window. When `mainloop()` has returned, call
    `Guest.finish()`. Since 0.3.0.

    Args:
        main: The coroutine.
        root: The window, or any widget of it.
        options: `done_callback`, `debug`, `context` and `time_share`, see `goloop.guest.start`.

    Returns:
        The run.

    Raises:
        OSError: The process has no descriptors left.
    """
    try:
        poster = _Poster(root)
    except BaseException:
        if asyncio.iscoroutine(main):
            main.close()
        raise
    done = options.pop("done_callback", None)

    def ended(outcome: concurrent.futures.Future[_T]) -> None:
        """Close the pipe at the end of the run, then call the caller's own callback."""
        poster.close()
        if done is not None:
            done(outcome)

    return _start(main, run_sync_soon_threadsafe=poster.post, done_callback=ended, **options)


def run(main: Coroutine[Any, Any, _T], root: tkinter.Tk, **options: Any) -> _T:
    """Run a window until a coroutine has ended.

    The window is destroyed when `main` has ended. If it is closed first, `main` is cancelled and
    runs to its end without the window. The window's handlers get the run
    by `goloop.guest.current()`. Since 0.3.0.

    Args:
        main: The coroutine.
        root: The window.
        options: `debug`, `context` and `time_share`, see `goloop.guest.start`.

    Returns:
        The result of `main`.

    Raises:
        CancelledError: The window was closed first; or any other exception of `main`.
    """
    guest = start(main, root, done_callback=lambda outcome: root.quit(), **options)
    try:
        return guest._finish_after(root.mainloop)
    finally:
        with contextlib.suppress(tkinter.TclError):  # the window was closed
            root.destroy()


class _Poster:
    """Posts calls to the thread of Tk's loop, which watches a pipe.

    A call of Tk's own functions from another thread would wait for Tk's loop, and fail if that does
    not run.
    """

    def __init__(self, root: tkinter.Misc) -> None:
        """Open the pipe, and let Tk's loop watch its reading end."""
        self._calls: deque[Callable[[], object]] = deque()
        self._tk = root.tk
        self._reading, self._writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._tk.createfilehandler(self._reading, tkinter.READABLE, self._call)

    def post(self, function: Callable[[], object]) -> None:
        """Post a function to Tk's loop; may be called in any thread."""
        self._calls.append(function)
        os.write(self._writing, b"\0")

    def _call(self, file: object, mask: int) -> None:
        """Run the next posted function; Tk calls this when the pipe is readable."""
        os.read(self._reading, 1)
        self._calls.popleft()()

    def close(self) -> None:
        """Deregister the pipe from Tk and close both ends."""
        self._tk.deletefilehandler(self._reading)
        os.close(self._reading)
        os.close(self._writing)
