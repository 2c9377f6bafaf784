"""Makes the drawings of docs/img: `python tools/pictures.py [FOLDER]`.

One turn of the loop, the life of a connection, what happens at a fork, and the monitor.  They are
narrow enough for a phone.  Each brings its own background and two sets of colours; the reader's
scheme, light or dark, chooses.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path

TARGET = Path(__file__).resolve().parents[1] / "docs" / "img"

WIDE = 380
# How large the picture is on a page with room.
SHOWN = 460
LINE = 16

# On a light page, and on a dark one: the paper, lines and text, then the fillings of boxes.
COLOURS = {
    "paper": ("#ffffff", "#1e2129"),
    "ink": ("#24292f", "#e6e9ee"),
    "soft": ("#57606a", "#a9b1bd"),
    "python": ("#fff3bf", "#574a12"),
    "c": ("#d0ebff", "#16405f"),
    "go": ("#c3fae8", "#0d4a42"),
    "memory": ("#eceff3", "#343a46"),
    "alarm": ("#ffe3e3", "#612a2c"),
}


def _style() -> str:
    sets = ["".join(f"--{name}:{both[i]};" for name, both in COLOURS.items()) for i in (0, 1)]
    rules = [
        f":root{{{sets[0]}}}",
        f"@media (prefers-color-scheme:dark){{:root{{{sets[1]}}}}}",
        "text{font:13px system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif;"
        "fill:var(--ink)}",
        ".code{font:11.5px ui-monospace,'SF Mono','DejaVu Sans Mono',Consolas,monospace}",
        ".soft{fill:var(--soft)}.strong{font-weight:600}",
        ".line{fill:none;stroke:var(--ink);stroke-width:1.4}",
        ".dim{stroke:var(--soft);stroke-dasharray:3 3}.head{fill:var(--ink)}",
        ".box{stroke:var(--ink);stroke-width:1}.lane{stroke:none}.paper{fill:var(--paper)}",
        *(f".{name}{{fill:var(--{name})}}" for name in list(COLOURS)[3:]),
    ]
    return "".join(rules)


class Picture:
    """A drawing that grows downwards; coordinates are those of its view box."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._parts: list[str] = []
        self._high = 0.0

    def text(self, x: float, y: float, words: str, kind: str = "", *, anchor: str = "") -> None:
        """A line of text; what stands in backquotes is code."""
        where = f' text-anchor="{anchor}"' if anchor else ""
        pieces = [
            f'<tspan class="code">{escape(piece)}</tspan>' if i % 2 else escape(piece)
            for i, piece in enumerate(words.split("`"))
        ]
        named = f' class="{kind}"' if kind else ""
        self._parts.append(f'<text x="{x:g}" y="{y:g}"{where}{named}>{"".join(pieces)}</text>')
        self._high = max(self._high, y + 5)

    def middle(self, x: float, y: float, words: str, kind: str = "") -> None:
        """A line of text with its middle at x."""
        self.text(x, y, words, kind, anchor="middle")

    def box(
        self, x: float, y: float, wide: float, high: float, kind: str, lines: Sequence[str] = ()
    ) -> None:
        """A box with lines in its middle, the first of them strong."""
        self._rect(x, y, wide, high, f"box {kind}", 5)
        top = y + high / 2 - (len(lines) - 1) * LINE / 2 + 4.5
        for row, words in enumerate(lines):
            self.middle(x + wide / 2, top + row * LINE, words, "" if row else "strong")

    def lane(self, y: float, high: float, kind: str, name: str) -> None:
        """A field across the picture, with its name above."""
        self._rect(8, y, WIDE - 16, high, f"lane {kind}", 9)
        self.middle(WIDE / 2, y + 20, name, "strong")

    def arrow(self, *points: tuple[float, float], dim: bool = False) -> None:
        """A line through points, whose end is an arrow's head."""
        (fx, fy), (x, y) = points[-2:]
        dx, dy = (x > fx) - (x < fx), (y > fy) - (y < fy)
        path = " ".join(f"{px:g},{py:g}" for px, py in (*points[:-1], (x - 5 * dx, y - 5 * dy)))
        kind = "line dim" if dim else "line"
        self._parts.append(f'<polyline class="{kind}" points="{path}"/>')
        base = (x - 8 * dx, y - 8 * dy)
        head = [(x, y), (base[0] + 4 * dy, base[1] + 4 * dx), (base[0] - 4 * dy, base[1] - 4 * dx)]
        corners = " ".join(f"{px:g},{py:g}" for px, py in head)
        self._parts.append(f'<polygon class="head" points="{corners}"/>')

    def line(self, x: float, y: float, x2: float, y2: float, *, dim: bool = True) -> None:
        """A straight line."""
        kind = "line dim" if dim else "line"
        self._parts.append(f'<path class="{kind}" d="M{x:g} {y:g}L{x2:g} {y2:g}"/>')

    def dot(self, x: float, y: float) -> None:
        """A small mark."""
        self._parts.append(f'<circle class="head" cx="{x:g}" cy="{y:g}" r="3"/>')

    def _rect(self, x: float, y: float, wide: float, high: float, kind: str, radius: float) -> None:
        self._parts.append(
            f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{wide:g}" height="{high:g}" '
            f'rx="{radius:g}"/>'
        )
        self._high = max(self._high, y + high)

    def svg(self) -> str:
        """The file."""
        high = self._high + 10
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDE} {high:g}" '
                f'width="{SHOWN}" height="{high * SHOWN / WIDE:.0f}" role="img">',
                f"<title>{escape(self._title)}</title>",
                f"<style>{_style()}</style>",
                f'<rect class="paper" width="{WIDE}" height="{high:g}" rx="9"/>',
                *self._parts,
                "</svg>",
                "",
            ]
        )


# ---- the four -------------------------------------------------------------------

LEFT, RIGHT, COLUMN = 20, 204, 156  # two columns of boxes within a lane


def turn() -> str:
    """One turn: callbacks in C and Python, I/O in Go, shared memory between."""
    it = Picture("One turn of the loop")
    mid_left, mid_right = LEFT + COLUMN / 2, RIGHT + COLUMN / 2

    it.lane(8, 112, "c", "C and Python, with the GIL")
    it.box(LEFT, 40, COLUMN, 66, "paper", ["Run what is ready", "callbacks,", "steps of tasks"])
    it.box(RIGHT, 40, COLUMN, 66, "paper", ["Hand out results", "I/O first,", "then timers"])
    it.arrow((RIGHT, 73), (LEFT + COLUMN, 73))

    it.lane(156, 96, "memory", "Shared memory")
    it.box(LEFT, 186, COLUMN, 54, "paper", ["Notes", "writes, timers, reads"])
    it.box(RIGHT, 186, COLUMN, 54, "paper", ["Results", "events, bytes, timers"])
    it.arrow((mid_left, 106), (mid_left, 186))
    it.arrow((mid_right, 186), (mid_right, 106))
    it.text(mid_left + 8, 142, "leave notes", "soft")
    it.text(mid_right - 8, 142, "take results", "soft", anchor="end")

    it.lane(288, 190, "go", "Go, without the GIL")
    it.box(LEFT, 318, COLUMN, 54, "paper", ["Read the notes", "one call a turn"])
    it.box(LEFT, 412, COLUMN, 54, "paper", ["Send", "what was written"])
    it.box(RIGHT, 412, COLUMN, 54, "paper", ["Poll", "what has happened?"])
    it.box(RIGHT, 318, COLUMN, 54, "paper", ["Accept, receive", "expire timers"])
    it.arrow((mid_left, 240), (mid_left, 318))
    it.arrow((mid_left, 372), (mid_left, 412))
    it.arrow((LEFT + COLUMN, 439), (RIGHT, 439))
    it.arrow((mid_right, 412), (mid_right, 372))
    it.arrow((mid_right, 318), (mid_right, 240))
    it.text(mid_left + 8, 275, "Go is called", "soft")
    it.text(mid_right - 8, 275, "Go returns", "soft", anchor="end")
    return it.svg()


def connection() -> str:
    """What Go, C and a protocol tell each other, from accept to the end."""
    it = Picture("The life of a connection")
    lanes = {"Go": 50, "C": 184, "P": 318}
    steps: list[tuple[str, str, str, str]] = [
        ("", "", "", "Opened"),
        ("Go", "C", "accepted", ""),
        ("C", "P", "`protocol_factory()`", ""),
        ("C", "P", "`connection_made()`", ""),
        ("C", "Go", "may receive", ""),
        ("", "", "", "Each turn"),
        ("Go", "C", "received bytes", ""),
        ("C", "P", "`data_received()`", ""),
        ("P", "C", "`write()`", ""),
        ("C", "Go", "pieces to send", ""),
        ("Go", "C", "so much is sent", ""),
        ("C", "P", "`resume_writing()`", "if it was paused"),
        ("", "", "", "The end"),
        ("Go", "C", "the peer has ended", ""),
        ("C", "P", "`eof_received()`", ""),
        ("P", "C", "`close()`", ""),
        ("C", "Go", "send the rest", ""),
        ("Go", "C", "sent; not polled", "any more"),
        ("C", "P", "`connection_lost()`", ""),
    ]
    heads = {"Go": ("go", "Go"), "C": ("c", "C"), "P": ("python", "Your protocol")}
    y = 56.0
    places: list[tuple[float, tuple[str, str, str, str]]] = []
    for step in steps:
        y += 36 if not step[0] else 44 if step[3] else 30
        places.append((y, step))
    for x in lanes.values():
        it.line(x, 42, x, y + 50)
    for name, x in lanes.items():
        wide = {"Go": 84, "C": 84, "P": 108}[name]
        it.box(x - wide / 2, 10, wide, 32, heads[name][0], [heads[name][1]])
    for at, (source, target, words, more) in places:
        if not source:
            it.box(8, at - 16, WIDE - 16, 22, "memory", [more])
            continue
        start, end = lanes[source], lanes[target]
        it.arrow((start, at), (end, at))
        middle = (start + end) / 2
        it.middle(middle, at - 6 - (15 if more else 0), words)
        if more:
            it.middle(middle, at - 6, more, "soft")
    it.box(lanes["C"] - 92, y + 18, 184, 32, "c", ["the socket is closed"])
    return it.svg()


def fork() -> str:
    """A parent's Go runtime, and how its child gets one of its own."""
    it = Picture("What happens at a fork")
    left, right, wide = 9, 199, 172
    parent, child = left + wide / 2, right + wide / 2
    it.middle(parent, 26, "Parent", "strong")
    it.middle(child, 26, "Child", "strong")
    it.box(left, 38, wide, 54, "memory", ["`import goloop`", "starts no Go"])
    it.box(left, 116, wide, 54, "go", ["First loop", "Go runtime 1 starts"])
    it.box(
        left,
        194,
        wide,
        70,
        "memory",
        ["Before the first fork", "a copy of the library is", "mapped, and not started"],
    )
    it.box(left, 288, wide, 40, "python", ["`fork()`"])
    it.box(
        left,
        352,
        wide,
        214,
        "go",
        ["Goes on", "with Go runtime 1,", "its loops and", "its connections"],
    )
    for top, bottom in ((92, 116), (170, 194), (264, 288), (328, 352)):
        it.arrow((parent, top), (parent, bottom))
    it.box(right, 280, wide, 56, "memory", ["One thread is left;", "the kernel clears a page"])
    it.arrow((left + wide, 308), (right, 308))
    it.box(
        right,
        360,
        wide,
        70,
        "alarm",
        ["Go runtime 1 is dead", "its threads are missing:", "it is never called"],
    )
    it.box(right, 454, wide, 54, "go", ["First loop", "the copy starts"])
    it.box(right, 532, wide, 34, "go", ["Go runtime 2"])
    for top, bottom in ((336, 360), (430, 454), (508, 532)):
        it.arrow((child, top), (child, bottom))
    return it.svg()


def monitor() -> str:
    """A callback that goes on for long, and what the monitor does meanwhile."""
    it = Picture("The monitor")
    bar, beat = 58, 128  # the middle of the loop's thread, and the monitor's line
    it.middle(bar, 24, "The loop", "strong")
    it.text(beat - 8, 24, "Monitor: looks every few ms", "strong")
    it.box(bar - 40, 36, 80, 30, "go", ["turn"])
    it.box(bar - 40, 74, 80, 370, "python", [])
    it.middle(bar, 96, "a callback")
    it.middle(bar, 122, "`write()`")
    it.middle(bar, 250, "goes on", "soft")
    it.box(bar - 40, 452, 80, 30, "go", ["turn"])
    it.line(beat, 36, beat, 482)
    for y in (52, 80, 108, 164, 192):
        it.dot(beat, y)
    sends = ["Go sends what was written", "it has waited for 0.2 ms or more"]
    stack = [
        "After 1 s: takes the stack",
        "without the GIL; as soon as it",
        "is free: log and subscribers",
    ]
    held = ["After 1.5 s, the GIL still held:", "the stack goes to stderr"]
    abort = ["After `abort_after`, if set:", "stack to stderr, SIGABRT"]
    rows = ((136, "go", sends), (232, "alarm", stack), (318, "alarm", held), (396, "alarm", abort))
    for y, kind, lines in rows:
        high = 22 + LINE * len(lines)
        it.dot(beat, y)
        it.arrow((beat, y), (beat + 20, y))
        it.box(beat + 20, y - high / 2, WIDE - beat - 28, high, kind, lines)
    it.dot(beat, 467)
    it.text(beat + 20, 463, "The end is logged too. When all")
    it.text(beat + 20, 479, "loops sleep, the monitor sleeps.")
    return it.svg()


PICTURES: dict[str, Callable[[], str]] = {
    "turn": turn,
    "connection": connection,
    "fork": fork,
    "monitor": monitor,
}


def main(folder: Path) -> None:
    """Draws all."""
    for name, draw in PICTURES.items():
        (folder / f"{name}.svg").write_text(draw())


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else TARGET)
