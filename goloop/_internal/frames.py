"""A frame of a Python stack, as shown by the watchdog, the profile and the slow iterations.

Every program that uses goloop imports this module, so the class is not created by exec(), as
typing.NamedTuple would do.
"""

from __future__ import annotations

import collections

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NamedTuple

    class _Frame(NamedTuple):
        function: str
        file: str
        line: int
else:
    _Frame = collections.namedtuple("_Frame", "function file line")


class Frame(_Frame):
    """A frame of a Python stack. Since 0.3.0."""

    __slots__ = ()
    __module__ = "goloop.watchdog"

    function: str
    """The function's qualified name."""
    file: str
    """The file name of its code object."""
    line: int
    """The current line; 0 if it is unknown."""


def read_frames(text: str) -> list[tuple[str, str, int]]:
    """Return the frames of a text in the format of C and Go, in the same order.

    Each frame is a line with function, file and line number, separated by tabs.
    """
    frames = []
    for each in text.split("\n")[:-1]:
        function, file, line = each.split("\t")
        frames.append((function, file, int(line)))
    return frames


def read_stack(read: Callable[[int], str], ident: int) -> list[tuple[str, str, int]]:
    """Return the stack of the thread with Python's id `ident`, innermost last.

    `read` is _core._thread_stack, which returns "" if the stack changed while it was read. It is
    called up to five times; if all calls return "", the result is [].
    """
    for _ in range(5):
        if text := read(ident):
            return read_frames(text)
    return []
