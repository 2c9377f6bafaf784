"""Text output for terminals, and the full-screen mode of `top`.

Texts of an observed program may contain any characters.  `printable()` escapes all control
characters, so that the name of a task cannot move the cursor or change the window's title.

A stream's encoding may lack characters, in the C locale for example.  Those of the commands' own
have a substitute in ASCII; all others are escaped.
"""

from __future__ import annotations

import codecs
import contextlib
import os
import re
import sys
import unicodedata

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    # Texts, each with its style: the parameters of SGR (ECMA-48), "" for none.
    Line = list[tuple[str, str]]

# Unicode categories that are escaped: controls, formats (bidirectional ones too), surrogates,
# unassigned and private characters, separators of lines and paragraphs.
_ESCAPED = frozenset({"Cc", "Cf", "Cs", "Cn", "Co", "Zl", "Zp"})


# Substitutes of the same width.
_SUBSTITUTES = {"─": "-", "└": "`", "├": "|", "│": "|", "–": "-", "÷": "/", "µ": "u"}
_SUBSTITUTE = "goloop-substitute"  # the name for codecs


def _substitute(error: UnicodeError) -> tuple[str | bytes, int]:
    """Return substitutes or escapes for characters that cannot be encoded; an error handler."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    first, end = error.object[error.start], error.start + 1
    if first in _SUBSTITUTES:
        return _SUBSTITUTES[first], end
    return first.encode("ascii", "backslashreplace").decode(), end


codecs.register_error(_SUBSTITUTE, _substitute)


def substitute_unencodable() -> None:
    """Make stdout and stderr substitute characters that their encodings lack."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError):  # none, or not a text file of Python's
            stream.reconfigure(errors=_SUBSTITUTE)  # type: ignore[union-attr]


def printable(text: object) -> str:
    """Return the text with backslash escapes for all characters that may affect a terminal."""
    string = str(text)
    if string.isascii() and string.isprintable():
        return string
    return "".join(
        each.encode("unicode_escape").decode() if unicodedata.category(each) in _ESCAPED else each
        for each in string
    )


def width(text: str) -> int:
    """Return the number of terminal columns of a text."""
    return len(text) if text.isascii() else sum(map(_columns, text))


def _columns(each: str) -> int:
    """Return the number of terminal columns of a character: 0, 1 or 2."""
    if unicodedata.category(each) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(each) in "WF" else 1


def cut(text: str, columns: int, ellipsis: str = "…") -> str:
    """Return the text, shortened to `columns` columns with an ellipsis if it is longer."""
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
    """Return the text with exactly `columns` columns: shortened, or padded with spaces."""
    text = cut(text, columns, ellipsis)
    return text + " " * (columns - width(text))


# Escape sequences of arrows and other keys; one read may return several keys.
_SEQUENCE = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]?|O.?|.?)", re.DOTALL)


# The character with the same function as each scrolling key.
_KEYS = {
    f"\x1b{introducer}{end}": key
    for introducer in "[O"
    for end, key in {"A": "k", "B": "j", "H": "g", "F": "G", "5~": "b", "6~": " ", "1~": "g",
                     "4~": "G"}.items()
}  # fmt: skip


class Terminal:
    """The output stream: its capabilities, and the conversion of lines to text."""

    def __init__(self, file: Any = None) -> None:
        """Determine the capabilities of `file`, by default standard output."""
        self._file = sys.stdout if file is None else file
        self._encoding = self._file.encoding or "utf-8"
        # False for a pager, a file, and for a dumb terminal, which has no cursor control.
        self.is_screen = self._file.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        self._coloured = self.is_screen and not os.environ.get("NO_COLOR")
        self.ellipsis = "…" if self.encodes("…") else "~"
        # Characters of the full and of the empty part of a bar.
        self.bar = ("█", "░") if self.encodes("█░") else ("#", "-")

    def encodes(self, text: str) -> bool:
        """Return true if the stream's encoding has these characters."""
        with contextlib.suppress(UnicodeError, LookupError):
            text.encode(self._encoding)
            return True
        return False

    @property
    def fd(self) -> int:
        """The descriptor of the output stream."""
        number: int = self._file.fileno()
        return number

    def size(self) -> tuple[int, int]:
        """Return the terminal's columns and rows; 80 and 24 if they are unknown."""
        columns, rows = 0, 0
        with contextlib.suppress(OSError):
            columns, rows = os.get_terminal_size(self.fd)
        return columns or 80, rows or 24

    def render(self, line: Line, columns: int | None = None) -> str:
        """Return the line as text for the terminal, escaped, and shortened to `columns` columns."""
        parts = [(self._encodable(text), style) for text, style in line]
        if columns is not None and sum(width(text) for text, _ in parts) > columns:
            parts = self._shorten(parts, columns)
        return "".join(
            f"\x1b[{style}m{text}\x1b[m" if style and self._coloured else text
            for text, style in parts
        )

    def _shorten(self, parts: Line, columns: int) -> Line:
        """Return the parts cut to `columns` columns, the ellipsis included."""
        left = columns - width(self.ellipsis)
        kept: Line = []
        for text, style in parts:
            kept.append((cut(text, max(0, left), ""), style))
            left -= width(text)
            if left < 0:
                break
        return [*kept, (self.ellipsis, "")]

    def _encodable(self, text: str) -> str:
        """Return the text with substitutes for characters that the stream can't encode."""
        text = printable(text)
        if text.isascii():
            return text
        return text.encode(self._encoding, _SUBSTITUTE).decode(self._encoding)

    def write(self, text: str) -> None:
        """Write and flush the text; raises OSError if the reader has gone."""
        self._file.write(text)
        self._file.flush()


class Screen:
    """The alternate screen, with unbuffered keyboard input; a context manager.

    The exit restores the previous screen and terminal modes.
    """

    _ENTER = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[H\x1b[2J"
    _LEAVE = "\x1b[?7h\x1b[?25h\x1b[?1049l"

    def __init__(self, terminal: Terminal) -> None:
        """Find the keyboard; the terminal does not change before enter()."""
        self._terminal = terminal
        self._keyboard: int | None = None
        self._modes: list[Any] | None = None
        with contextlib.suppress(OSError, ValueError, AttributeError):
            fd = sys.stdin.fileno()
            self._keyboard = fd if os.isatty(fd) else None

    @property
    def keyboard(self) -> int | None:
        """The descriptor of the keyboard; None if standard input is not a terminal."""
        return self._keyboard

    def __enter__(self) -> Screen:
        """Switch to the alternate screen."""
        self.enter()
        return self

    def __exit__(self, *error: object) -> None:
        """Restore the previous screen and terminal modes."""
        self.leave()

    def enter(self) -> None:
        """Switch to the alternate screen and to unbuffered input.

        Raises OSError or termios.error if the terminal was closed.
        """
        if self._keyboard is not None:
            import termios
            import tty

            self._modes = termios.tcgetattr(self._keyboard)
            tty.setcbreak(self._keyboard)
        self._terminal.write(self._ENTER)

    def leave(self) -> None:
        """Restore the previous screen and the terminal modes."""
        with contextlib.suppress(OSError):  # the terminal may be closed
            self._terminal.write(self._LEAVE)
        if self._keyboard is not None and self._modes is not None:
            import termios

            with contextlib.suppress(termios.error):
                termios.tcsetattr(self._keyboard, termios.TCSADRAIN, self._modes)
            self._modes = None

    def draw(self, lines: list[Line]) -> None:
        """Redraw the screen with these lines, one a row."""
        columns, rows = self._terminal.size()
        # Each row is erased before it is written.  After a full row the cursor may still be on its
        # last character, which erasing would remove.
        shown = ["\x1b[K" + self._terminal.render(line, columns) for line in lines[:rows]]
        self._terminal.write("\x1b[H" + "\r\n".join(shown))

    def keys(self) -> str:
        """Wait for keys and return their characters, for a scrolling key the one in _KEYS.

        Other special keys are dropped.  "" is also the result if there is no keyboard or it was
        closed; `keyboard` is None from then on.
        """
        if self._keyboard is None:
            return ""
        try:
            typed = os.read(self._keyboard, 64).decode(errors="replace")
        except OSError:
            typed = ""
        if not typed:
            self._keyboard = None
        return _SEQUENCE.sub(lambda found: _KEYS.get(found[0], ""), typed)
