"""Makes docs/img/top.svg: `python tools/top_picture.py [FILE]`.

An aiohttp application under load, `python -m goloop top` in a terminal of tmux, and what is on that
screen as SVG.  Needs tmux, and aiohttp in this Python.

The picture brings its own background, so that it reads alike on light and dark pages.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path

COLUMNS, ROWS = 110, 30
SECONDS = 8.0
TARGET = Path(__file__).parents[1] / "docs" / "img" / "top.svg"

# ---- from a screen to SVG --------------------------------------------------------------

CELL, LINE, SIZE, MARGIN = 7.8, 17, 13, 14
BACKGROUND, FOREGROUND, DIM, EDGE = "#1d2230", "#d7dce8", "#8a93a8", "#3b4358"
COLOURS = {31: "#ff7b85", 32: "#8fd694", 33: "#f0c674"}


@dataclass(frozen=True)
class Style:
    """The graphic rendition of some characters."""

    colour: str = FOREGROUND
    bold: bool = False
    dim: bool = False
    reverse: bool = False

    def then(self, number: int) -> Style:
        """After one parameter of SGR (ECMA-48)."""
        if number == 0:
            return Style()
        if number in (1, 2, 7):
            return Style(
                self.colour, self.bold or number == 1, self.dim or number == 2,
                self.reverse or number == 7,
            )  # fmt: skip
        if number in COLOURS or number == 39:
            return Style(COLOURS.get(number, FOREGROUND), self.bold, self.dim, self.reverse)
        return self


def runs(screen: str) -> Iterator[tuple[int, int, str, Style]]:
    """Row, column, text and style of each run on a screen as tmux captures it."""
    style = Style()
    for row, line in enumerate(screen.splitlines()):
        column = 0
        for part in re.split(r"(\x1b\[[0-9;]*m)", line):
            if part.startswith("\x1b["):
                for word in part[2:-1].split(";"):
                    style = style.then(int(word or 0))
            elif part:
                yield row, column, part, style
                column += len(part)


def svg(screen: str) -> str:
    """The screen as a picture; all its characters are one column wide."""
    wide, high = 2 * MARGIN + COLUMNS * CELL, 2 * MARGIN + ROWS * LINE
    made = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide:g} {high:g}" '
        f'width="{wide:g}" height="{high:g}" font-size="{SIZE}" font-family="ui-monospace, '
        "'SF Mono', 'Cascadia Mono', 'DejaVu Sans Mono', Menlo, Consolas, monospace\">",
        "<title>goloop top, watching an aiohttp application</title>",
        f'<rect x=".5" y=".5" width="{wide - 1:g}" height="{high - 1:g}" rx="9" '
        f'fill="{BACKGROUND}" stroke="{EDGE}"/>',
    ]
    for row, column, text, style in runs(screen):
        top = MARGIN + row * LINE
        colour = DIM if style.dim and style.colour == FOREGROUND else style.colour
        if style.reverse:
            made.append(_box(column, top, COLUMNS - column, colour))
            colour = BACKGROUND
        # Blocks are drawn, for fonts leave gaps between theirs; words apart stand by themselves,
        # for a font may be wider.
        for found in re.finditer(r"█+|░+|[^█░ ]+( [^█░ ]+)*", text):
            start, piece = column + found.start(), found[0]
            if piece[0] in "█░":
                fill = colour if piece[0] == "█" else EDGE
                made.append(_box(start, top, len(piece), fill, 3))
                continue
            weight = ' font-weight="bold"' if style.bold or style.reverse else ""
            made.append(
                f'<text x="{MARGIN + start * CELL:.1f}" y="{top + LINE - 4.5:g}" fill="{colour}"'
                f'{weight} textLength="{len(piece) * CELL:.1f}">{escape(piece)}</text>'
            )
    return "\n".join([*made, "</svg>"]) + "\n"


def _box(column: int, top: float, columns: int, fill: str, inset: float = 0) -> str:
    return (
        f'<rect x="{MARGIN + column * CELL:.1f}" y="{top + inset:g}" '
        f'width="{columns * CELL:.1f}" height="{LINE - 2 * inset:g}" fill="{fill}"/>'
    )


# ---- what is watched ---------------------------------------------------------------------

SHOP = '''
"""A shop: short requests, long ones, slow readers, and work in the background."""

import asyncio

from aiohttp import web

import goloop

database = asyncio.Semaphore(12)
one_report = asyncio.Lock()


@web.middleware
async def named(request, handler):
    task = asyncio.current_task()
    task.set_name(f"{request.method} {request.path}")
    request.task.set_name(f"client {request.transport.get_extra_info('peername')[1]}")
    try:
        return await handler(request)
    finally:
        task.set_name("keep-alive")


async def query(seconds):
    async with database:
        await asyncio.sleep(seconds)


async def item(request):
    await query(0.002)
    return web.json_response({"item": request.path, "stock": list(range(200))})


async def report(request):
    async with one_report:
        await query(60)
    return web.Response(text="done")


async def export(request):
    response = web.StreamResponse()
    await response.prepare(request)
    while True:
        await response.write(bytes(1 << 18))


async def refresh_prices():
    while True:
        await asyncio.sleep(0.2)
        sum(range(300_000))


async def watch_broker():
    await asyncio.Event().wait()


async def main():
    app = web.Application(middlewares=[named])
    app.router.add_get("/item/{number}", item)
    app.router.add_get("/report/{year}", report)
    app.router.add_get("/export.csv", export)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    async with asyncio.TaskGroup() as group:
        group.create_task(refresh_prices(), name="refresh prices")
        group.create_task(watch_broker(), name="watch broker")
        print(runner.addresses[0][1], flush=True)


goloop.run(main())
'''

LOAD = '''
"""The shop's clients."""

import asyncio
import sys

import aiohttp

BASE = f"http://127.0.0.1:{sys.argv[1]}"


async def buy(session, number):
    while True:
        async with session.get(f"{BASE}/item/{number}") as answer:
            await answer.read()
        await asyncio.sleep(0.05)


async def wait_for_report(session, year):
    await asyncio.sleep((year - 2020) / 3)
    async with session.get(f"{BASE}/report/{year}") as answer:
        await answer.read()


async def read_slowly(session):
    async with session.get(f"{BASE}/export.csv") as answer:
        while True:
            await answer.content.read(1 << 16)
            await asyncio.sleep(0.3)


async def main():
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session, asyncio.TaskGroup() as group:
        for number in range(100, 140):
            group.create_task(buy(session, number))
        for year in range(2021, 2026):
            group.create_task(wait_for_report(session, year))
        for _ in range(2):
            group.create_task(read_slowly(session))


asyncio.run(main())
'''


@contextlib.contextmanager
def started(folder: Path, name: str, program: str, *words: str) -> Iterator[subprocess.Popen[str]]:
    """A program of that name, as a process in that folder."""
    (folder / name).write_text(program)
    env = {**os.environ, "GOLOOP_INTROSPECT": "1"}
    with subprocess.Popen(
        [sys.executable, name, *words],
        cwd=folder,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # the shop complains when its clients are killed
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


# ---- the screen --------------------------------------------------------------------------


def captured(folder: Path, pid: int) -> str:
    """What top shows of a process after a while."""

    def tmux(*words: str) -> str:
        command = ["tmux", "-u", "-S", str(folder / "tmux"), "-f", "/dev/null", *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    size = ["-x", str(COLUMNS), "-y", str(ROWS)]
    tmux("new-session", "-d", *size, sys.executable, "-m", "goloop", "top", str(pid))
    try:
        time.sleep(SECONDS)
        return tmux("capture-pane", "-e", "-p")
    finally:
        tmux("kill-server")


def main(target: Path) -> None:
    """Draws."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "shop"
        folder.mkdir()
        with started(folder, "shop.py", SHOP) as shop:
            assert shop.stdout is not None
            port = shop.stdout.readline().strip()
            with started(folder, "load.py", LOAD, port):
                target.write_text(svg(captured(folder, shop.pid)))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else TARGET)
