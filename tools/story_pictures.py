"""Makes docs/img/story-*.svg, of top, a flame graph and a trace: `python tools/story_pictures.py
[FOLDER]`.

A shop whose invoices block its loop, under load; what `goloop top` shows while one does, the flame
graph of that time, and a trace in which a shorter one is made.  What the commands of
docs/operating.md print comes to standard output.
Needs tmux, and aiohttp in this Python.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

import top_picture
import trace_picture

SHOP = """
import asyncio

from aiohttp import web

import goloop


def price(line):
    return sum((line * quantity) % 97 for quantity in range(400)) / 100


def render(lines):
    return "\\n".join(f"{line:>8} {price(line):>10.2f}" for line in range(lines))


async def item(request):
    await asyncio.sleep(0.002)
    return web.json_response({"item": request.path, "stock": list(range(200))})


async def invoice(request):
    await asyncio.sleep(0.002)
    return web.Response(text=render(int(request.match_info["lines"])))


async def main():
    app = web.Application()
    app.router.add_get("/item/{number}", item)
    app.router.add_get("/invoice/{lines}", invoice)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


goloop.run(main())
"""

LOAD = """
import asyncio
import sys

import aiohttp

BASE = f"http://127.0.0.1:{sys.argv[1]}"


async def get(session, path):
    while True:
        async with session.get(BASE + path) as answer:
            await answer.read()
        await asyncio.sleep(0.2)


async def main():
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session, asyncio.TaskGroup() as group:
        for number in range(30):
            group.create_task(get(session, f"/item/{number}"))
        for lines in range(10, 40, 10):
            group.create_task(get(session, f"/invoice/{lines}"))


asyncio.run(main())
"""

LINES = 400_000
COMMAND = [sys.executable, "-m", "goloop"]


def asked(*words: str) -> str:
    """What a command of goloop's prints."""
    done = subprocess.run([*COMMAND, *words], check=True, capture_output=True, text=True)
    return done.stdout


def main(target: Path) -> None:
    """Draws."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "shop"
        folder.mkdir()
        with top_picture.started(folder, "shop.py", SHOP) as shop:
            assert shop.stdout is not None
            port = shop.stdout.readline().strip()
            with top_picture.started(folder, "load.py", LOAD, port):
                look(target, folder, shop.pid, port)


def look(target: Path, folder: Path, pid: int, port: str) -> None:
    """The commands, one after the other, while a long invoice is made and afterwards."""

    def public(text: str) -> str:
        text = re.sub(r"/[\w/.-]+/site-packages", "site-packages", text)
        return re.sub(rf"\b{pid}\b", "4711", text.replace(str(folder), "/srv/shop"))

    flame = folder / "flame.svg"
    words = [*COMMAND, "profile", str(pid), "--seconds", "20", "-o", str(flame)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as profile:
        url = f"http://127.0.0.1:{port}/invoice/{LINES}"
        long = threading.Thread(target=lambda: urllib.request.urlopen(url).read())
        screens: list[str] = []
        watches = threading.Thread(target=lambda: screens.append(top_picture.captured(folder, pid)))
        time.sleep(3)
        watches.start()
        time.sleep(2)
        long.start()
        while not (found := blocked(asked("export", "--once"), pid)) or float(found.split()[1]) < 5:
            time.sleep(0.1)
        print(public(found))
        watches.join()
        long.join()
        print(public(asked("slow", str(pid))[-1500:]))
        print(public(profile.communicate()[0]))
    file = folder / "trace.json.gz"
    words = [*COMMAND, "trace", str(pid), "--seconds", "5", "-o", str(file)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as trace:
        time.sleep(2)
        urllib.request.urlopen(f"http://127.0.0.1:{port}/invoice/{LINES // 100}").read()
        print(public(trace.communicate()[0]))
    title = "goloop trace: a loop before, in and after a long step"
    picture = trace_picture.svg(trace_picture.read(file), title)
    (target / "story-trace.svg").write_text(public(picture))
    (target / "story-flame.svg").write_text(public(flame.read_text()))
    (target / "story-top.svg").write_text(top_picture.svg(public(screens[0])))


def blocked(page: str, pid: int) -> str:
    """The line of how long the process's loop has been blocked."""
    found = re.search(rf'^goloop_blocked_for_seconds{{pid="{pid}".*$', page, re.MULTILINE)
    return found[0] if found else ""


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else top_picture.TARGET.parent)
