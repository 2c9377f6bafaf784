"""Text for a terminal, and the screen that `top` takes for itself.

What a program tells of itself may hold anything.  `printable()` stands between that and the
terminal: no control character passes, so that no name of a task can move the cursor or rename a
window.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import unicodedata

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    # Texts, each with its graphic rendition: the parameters of SGR (ECMA-48), "" for none.
    Line = list[tuple[str, str]]

# Controls, formats (the bidirectional ones among them), surrogates, unassigned and private ones,
# separators of lines and paragraphs.
_REFUSED = frozenset({"Cc", "Cf", "Cs", "Cn", "Co", "Zl", "Zp"})


def printable(text: object) -> str:
    """The text with backslash escapes for what is not to reach a terminal."""
    string = str(text)
    if string.isascii() and string.isprintable():
        return string
    return "".join(
        each.encode("unicode_escape").decode() if unicodedata.category(each) in _REFUSED else each
        for each in string
    )


def width(text: str) -> int:
    """The columns that a text takes."""
    return len(text) if text.isascii() else sum(map(_columns, text))


def _columns(each: str) -> int:
    if unicodedata.category(each) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(each) in "WF" else 1


def cut(text: str, columns: int, ellipsis: str = "…") -> str:
    """As much of the text as fits into so many columns; an ellipsis says that there was more."""
    if width(text) <= columns:
        return text
    kept, used = [], 0
    for each in text:
        used += _columns(each)
        if used > columns - width(ellipsis):
            break
        kept.append(each)
    return "".join(kept) + ellipsis[: max(0, columns)]


def pad(text: str, columns: int, ellipsis: str = "…") -> str:
    """The text in exactly so many columns."""
    text = cut(text, columns, ellipsis)
    return text + " " * (columns - width(text))


# What arrows and other keys without a character send; it may come together with other keys.
_SEQUENCE = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]?|O.?|.?)", re.DOTALL)


# What scrolls has a character, too.
_KEYS = {
    f"\x1b{introducer}{end}": key
    for introducer in "[O"
    for end, key in {"A": "k", "B": "j", "H": "g", "F": "G", "5~": "b", "6~": " ", "1~": "g",
                     "4~": "G"}.items()
}  # fmt: skip


class Terminal:
    """Where the text goes: what it can show, and how lines become bytes."""

    def __init__(self, file: Any = None) -> None:
        self._file = sys.stdout if file is None else file
        self._encoding = self._file.encoding or "utf-8"
        # A pager or a file is none; a dumb one has no cursor.
        self.is_screen = self._file.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        self._coloured = self.is_screen and not os.environ.get("NO_COLOR")
        self.ellipsis = "…" if self.encodes("…") else "~"
        # What is full, and what is empty.
        self.bar = ("█", "░") if self.encodes("█░") else ("#", "-")

    def encodes(self, text: str) -> bool:
        """Whether its encoding has these characters."""
        with contextlib.suppress(UnicodeError, LookupError):
            text.encode(self._encoding)
            return True
        return False

    @property
    def fd(self) -> int:
        """The descriptor that is written to."""
        number: int = self._file.fileno()
        return number

    def size(self) -> tuple[int, int]:
        """Columns and rows."""
        columns, rows = 0, 0
        with contextlib.suppress(OSError):
            columns, rows = os.get_terminal_size(self.fd)
        return columns or 80, rows or 24

    def render(self, line: Line, columns: int | None = None) -> str:
        """The line as it is written, cut at so many columns; nothing in its texts escapes."""
        parts = [(self._shown(text), rendition) for text, rendition in line]
        if columns is not None and sum(width(text) for text, _ in parts) > columns:
            parts = self._cut(parts, columns)
        return "".join(
            f"\x1b[{rendition}m{text}\x1b[m" if rendition and self._coloured else text
            for text, rendition in parts
        )

    def _cut(self, parts: Line, columns: int) -> Line:
        left = columns - width(self.ellipsis)
        kept: Line = []
        for text, rendition in parts:
            kept.append((cut(text, max(0, left), ""), rendition))
            left -= width(text)
            if left < 0:
                break
        return [*kept, (self.ellipsis, "")]

    def _shown(self, text: str) -> str:
        text = printable(text)
        if text.isascii():
            return text
        if not self.encodes("µ"):
            text = text.replace("µ", "u")
        return text.encode(self._encoding, "backslashreplace").decode(self._encoding)

    def write(self, text: str) -> None:
        """Write and flush; raises OSError where nobody reads any more."""
        self._file.write(text)
        self._file.flush()


class Screen:
    """The alternate screen, with the keyboard's keys as they are pressed; a context manager.

    Leaving restores what was there before.
    """

    _ENTER = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[H\x1b[2J"
    _LEAVE = "\x1b[?7h\x1b[?25h\x1b[?1049l"

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._keyboard: int | None = None
        self._modes: list[Any] | None = None
        with contextlib.suppress(OSError, ValueError, AttributeError):
            fd = sys.stdin.fileno()
            self._keyboard = fd if os.isatty(fd) else None

    @property
    def keyboard(self) -> int | None:
        """The descriptor that keys are read from; None where there is no keyboard."""
        return self._keyboard

    def __enter__(self) -> Screen:
        self.enter()
        return self

    def __exit__(self, *error: object) -> None:
        self.leave()

    def enter(self) -> None:
        """Take the terminal."""
        if self._keyboard is not None:
            import termios
            import tty

            self._modes = termios.tcgetattr(self._keyboard)
            tty.setcbreak(self._keyboard)
        self._terminal.write(self._ENTER)

    def leave(self) -> None:
        """Give it back."""
        with contextlib.suppress(OSError):  # it may be gone
            self._terminal.write(self._LEAVE)
        if self._keyboard is not None and self._modes is not None:
            import termios

            with contextlib.suppress(termios.error):
                termios.tcsetattr(self._keyboard, termios.TCSADRAIN, self._modes)
            self._modes = None

    def draw(self, lines: list[Line]) -> None:
        """Show these lines, one for each row, in place of what was there."""
        columns, rows = self._terminal.size()
        # Each line is erased before it is written: after it the cursor may still stand on its
        # last character.
        shown = ["\x1b[K" + self._terminal.render(line, columns) for line in lines[:rows]]
        self._terminal.write("\x1b[H" + "\r\n".join(shown))

    def keys(self) -> str:
        """The characters that were typed; "" when the keyboard has gone."""
        if self._keyboard is None:
            return ""
        try:
            typed = os.read(self._keyboard, 64).decode(errors="replace")
        except OSError:
            typed = ""
        if not typed:
            self._keyboard = None
        return _SEQUENCE.sub(lambda found: _KEYS.get(found[0], ""), typed)
