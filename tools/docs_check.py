"""Looks at the built site: `python tools/docs_check.py SITE [CHROMIUM]`.

Every link within the site leads to a page and a place that exist, and every public name of goloop
has an entry with a text in the API reference.  With a browser, every page is opened at the width of
a desktop and of a phone, light and dark: nothing is wider than the screen, nothing fails to load,
nothing comes from elsewhere, the console has no error; and the search finds a word.
"""

from __future__ import annotations

import ast
import functools
import http.server
import importlib
import re
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urldefrag, urlsplit

PACKAGE = Path(__file__).resolve().parents[1] / "goloop"
REFERENCE = "reference.html"
WIDTHS = {"desktop": (1280, 800), "phone": (390, 844)}
# A word and the page that the search has to find by it.
WORD, FOUND = "set_watchdog", REFERENCE
# Elements that HTML does not close.
VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "wbr"}


# ---- the files ------------------------------------------------------------------


@dataclass
class Page(HTMLParser):
    """What one file of HTML has: its places, its links, and the text of each reference entry."""

    html: str
    places: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    described: set[str] = field(default_factory=set)
    _open: list[tuple[str, str]] = field(default_factory=list)
    _entry: str = ""

    def __post_init__(self) -> None:
        super().__init__()
        self.feed(self.html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Notes what an element is, points to, and belongs to."""
        known = dict(attrs)
        name, classes = known.get("id") or "", (known.get("class") or "").split()
        if name:
            self.places.add(name)
        self.links += [known[key] or "" for key in ("href", "src") if key in known]
        if name and re.fullmatch("h[1-6]", tag):
            self._entry = name
        if tag not in VOID:
            kind = "contents" if "doc-contents" in classes else ""
            self._open.append((tag, kind))

    def handle_endtag(self, tag: str) -> None:
        """Closes the innermost element of that name, and what was left open in it."""
        while self._open and self._open.pop()[0] != tag:
            pass

    def handle_data(self, data: str) -> None:
        """A paragraph directly in an entry's contents is its description."""
        inner = [kind for _, kind in self._open[-2:-1]]
        if data.strip() and self._entry and inner == ["contents"] and self._open[-1][0] == "p":
            self.described.add(self._entry)


def pages(site: Path) -> dict[str, Page]:
    """The pages by their names within the site."""
    return {
        path.relative_to(site).as_posix(): Page(path.read_text())
        for path in sorted(site.rglob("*.html"))
        if path.name != "404.html"  # its links begin at a root that only a server has
    }


def broken_links(site: Path, known: dict[str, Page]) -> Iterator[str]:
    """Links within the site that lead nowhere."""
    for name, page in known.items():
        for link in page.links:
            target, place = urldefrag(link)
            if urlsplit(target).scheme or target.startswith("//"):
                continue
            path = (site / name).parent / unquote(target) if target else site / name
            if path.is_dir():
                path /= "index.html"
            if not path.exists():
                yield f"{name}: {link} leads to no file"
                continue
            there = known.get(path.resolve().relative_to(site.resolve()).as_posix())
            if place and there is not None and unquote(place) not in there.places:
                yield f"{name}: {link} leads to no place of that page"


def public_names() -> Iterator[str]:
    """What each public module has in `__all__`, as written in its source."""
    for path in sorted(PACKAGE.glob("*.py")):
        if path.stem.startswith("_") and path.stem != "__init__":
            continue
        module = "goloop" if path.stem == "__init__" else f"goloop.{path.stem}"
        for node in ast.parse(path.read_text()).body:
            target = node.targets[0] if isinstance(node, ast.Assign) else None
            target = node.target if isinstance(node, ast.AnnAssign) else target
            if isinstance(target, ast.Name) and target.id == "__all__":
                value = node.value  # type: ignore[attr-defined]
                yield from (f"{module}.{name}" for name in ast.literal_eval(value))


def unexplained(reference: Page) -> Iterator[str]:
    """Public names without an entry in the reference, or with an empty one."""
    for name in public_names():
        if name not in reference.places:
            yield f"{REFERENCE}: {name} has no entry"
        elif name not in reference.described:
            yield f"{REFERENCE}: {name} has no description"


# ---- the browser ----------------------------------------------------------------


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the browser tells of what fails."""


# The elements that reach beyond the right edge, but for what is in a box that scrolls.
_WIDER = """() => {
    const wide = document.documentElement.clientWidth;
    if (document.documentElement.scrollWidth <= wide) return null;
    const scrolls = node => {
        for (let at = node.parentElement; at && at !== document.body; at = at.parentElement)
            if (getComputedStyle(at).overflowX !== "visible") return true;
        return false;
    };
    const found = [...document.body.querySelectorAll("*")].filter(
        node => node.getBoundingClientRect().right > wide + 1 && !scrolls(node));
    return found.slice(-3).map(node => node.outerHTML.slice(0, 120)).join(" | ") || "?";
}"""
_MISSING_IMAGES = """() => [...document.images]
    .filter(image => !(image.complete && image.naturalWidth)).map(image => image.src)"""


def seen_in_a_browser(site: Path, known: dict[str, Page], chromium: str) -> list[str]:
    """What is wrong with the pages as a browser shows them."""
    playwright: Any = importlib.import_module("playwright.sync_api")
    handler = functools.partial(_Quiet, directory=str(site))
    wrong: list[str] = []
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        base = f"http://127.0.0.1:{server.server_port}/"
        with playwright.sync_playwright() as started:
            options = ["--no-sandbox", "--disable-gpu"]
            browser = started.chromium.launch(executable_path=chromium, args=options)
            for device, (width, height) in WIDTHS.items():
                size = {"width": width, "height": height}
                for scheme in ("light", "dark"):
                    with browser.new_context(viewport=size, color_scheme=scheme) as context:
                        wrong += _Visit(context.new_page(), base, device, scheme).everything(known)
            browser.close()
        server.shutdown()
    return wrong


class _Visit:
    """The pages at one width, in one colour scheme."""

    def __init__(self, page: Any, base: str, device: str, scheme: str) -> None:
        self._page = page
        self._base = base
        self._device = device
        self._scheme = scheme
        self._at = ""
        self._wrong: list[str] = []
        page.on("console", self._says)
        page.on("pageerror", lambda error: self._note(f"raises {error}"))
        page.on("requestfailed", lambda asked: self._note(f"does not get {asked.url}"))
        page.on("request", self._asks)
        page.on("response", self._gets)

    def everything(self, known: dict[str, Page]) -> list[str]:
        """Each page, then the search."""
        for self._at in known:
            self._page.goto(self._base + self._at, wait_until="networkidle")
            self._look()
        self._at = "index.html"
        self._search()
        return self._wrong

    def _look(self) -> None:
        wider = self._page.evaluate(_WIDER)
        if wider is not None:
            self._note(f"is wider than the screen: {wider}")
        for image in self._page.evaluate(_MISSING_IMAGES):
            self._note(f"does not show {image}")
        wanted = "slate" if self._scheme == "dark" else "default"
        scheme = self._page.locator("body").get_attribute("data-md-color-scheme")
        if scheme != wanted:
            self._note(f"has the colours {scheme}, not {wanted}")

    def _search(self) -> None:
        page = self._page
        page.goto(self._base, wait_until="networkidle")
        if not page.locator("input.md-search__input").is_visible():
            page.locator("label.md-header__button[for=__search]").click()
        # Keys, for the theme looks at the field when one is let go.
        page.locator("input.md-search__input").press_sequentially(WORD)
        result = page.locator(f".md-search-result__link[href*='{FOUND}']").first
        try:
            result.wait_for(timeout=15_000)
        except Exception as error:
            self._note(f"does not find {WORD!r}: {str(error).splitlines()[0]}")

    def _says(self, said: Any) -> None:
        if said.type == "error":
            self._note(f"says {said.text}")

    def _asks(self, asked: Any) -> None:
        if not asked.url.startswith((self._base, "data:", "blob:")):
            self._note(f"asks elsewhere: {asked.url}")

    def _gets(self, answer: Any) -> None:
        if answer.status >= 400:
            self._note(f"gets {answer.status} for {answer.url}")

    def _note(self, what: str) -> None:
        self._wrong.append(f"{self._at} ({self._device}, {self._scheme}) {what}")


def main(site: Path, chromium: str | None) -> int:
    """Prints what is wrong; the status is 0 if nothing is."""
    known = pages(site)
    wrong = [*broken_links(site, known), *unexplained(known[REFERENCE])]
    if chromium is not None:
        wrong += seen_in_a_browser(site, known, chromium)
    for line in wrong:
        print(line)
    print(f"{len(known)} pages, {len(wrong)} faults")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None))
