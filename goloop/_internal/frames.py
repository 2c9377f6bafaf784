"""One call on a Python stack, as the watchdog, the profile and the slow iterations show it.

Each program on goloop imports this module, so its class is not made by exec(), as
typing.NamedTuple would.
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
    """One call on a Python stack.  Since 0.3.0."""

    __slots__ = ()
    __module__ = "goloop.watchdog"

    function: str
    """Its qualified name."""
    file: str
    """The file of its code, as Python names it."""
    line: int
    """The line that runs; 0 where it is not known."""


def read_frames(text: str) -> list[tuple[str, str, int]]:
    """Frames as C and Go tell them: a line each, of function, file and line."""
    frames = []
    for each in text.split("\n")[:-1]:
        function, file, line = each.split("\t")
        frames.append((function, file, int(line)))
    return frames


def read_stack(read: Callable[[int], str], ident: int) -> list[tuple[str, str, int]]:
    """A thread's stack, innermost last, by _core._thread_stack(): none while it changes."""
    for _ in range(5):
        if text := read(ident):
            return read_frames(text)
    return []
