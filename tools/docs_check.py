"""Opens the built site in a browser: `python tools/docs_check.py SITE CHROMIUM`.

Every page is opened at the width of a desktop and of a phone, light and dark.  No element may be
wider than the screen, no resource may fail to load or come from another server, the console must
have no error, and the search must find a word.  mkdocs validates links and anchors (mkdocs.yml).
"""

from __future__ import annotations

import functools
import http.server
import importlib
import sys
import threading
from pathlib import Path
from typing import Any

WIDTHS = {"desktop": (1400, 900), "phone": (390, 844)}
# Boxes with a scroll bar, which may be wider inside than outside.
_SCROLLING = ".md-typeset__scrollwrap, pre > code, .picture, p:has(> img)"
# A page with a command and its output, and the text that its copy button must copy.
PROMPTS, TYPED = "start.html", "python hello.py"
# Records of decisions share one layout, so one visit of each is enough.
RECORDS, RECORDS_SHOWN = "internals/decisions/0", ("phone", "light")
# A word, and the page that the search must find for it.
WORD, FOUND = "set_watchdog", "reference.html"


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Prints nothing: the browser reports failures."""


# Elements beyond the right edge, except in boxes that scroll.
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
# Boxes of the content that cut off a part of their content.
_CUT = """allowed => [...document.querySelectorAll(".md-content *")].filter(node =>
    node.scrollWidth > node.clientWidth + 1 && node.clientWidth > 0
    && getComputedStyle(node).overflowX !== "visible" && !node.matches(allowed)
).map(node => node.outerHTML.slice(0, 120))"""
# Code in tables with a line break within a word.
_BROKEN_WORDS = """() => [...document.querySelectorAll(".md-typeset table code")].filter(node =>
    !/[\\s/(),=.:-]/.test(node.textContent) && node.getClientRects().length > 1
).map(node => node.textContent)"""
# Text that the copy buttons of blocks with prompts copy, computed as in the theme's bundle.
_COPIED = """() => [...document.querySelectorAll(".language-console code")].map(code => {
    code.setAttribute("data-md-copying", "");
    const text = code.innerText;
    code.removeAttribute("data-md-copying");
    const typed = code.innerText.split("\\n").filter(line => line.startsWith("$ "))
        .map(line => line.slice(2));
    return [text.trimEnd(), typed.join("\\n").trimEnd()];
}).filter(([text, typed]) => typed && text !== typed)"""
_MISSING_IMAGES = """() => [...document.images]
    .filter(image => !(image.complete && image.naturalWidth)).map(image => image.src)"""


def seen_in_a_browser(site: Path, pages: list[str], chromium: str) -> list[str]:
    """Returns the faults of all pages in a browser."""
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
                    may = ["clipboard-read", "clipboard-write"]
                    with browser.new_context(
                        viewport=size, color_scheme=scheme, permissions=may
                    ) as context:
                        shown = [
                            page
                            for page in pages
                            if (device, scheme) == RECORDS_SHOWN or not page.startswith(RECORDS)
                        ]
                        wrong += _Visit(context.new_page(), base, device, scheme).everything(shown)
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

    def everything(self, pages: list[str]) -> list[str]:
        """Opens each page, then tries the copy button and the search."""
        for self._at in pages:
            self._page.goto(self._base + self._at, wait_until="networkidle")
            self._look()
        self._at = PROMPTS
        self._copy()
        self._at = "index.html"
        self._search()
        return self._wrong

    def _look(self) -> None:
        wider = self._page.evaluate(_WIDER)
        if wider is not None:
            self._note(f"is wider than the screen: {wider}")
        for cut in self._page.evaluate(_CUT, _SCROLLING):
            self._note(f"cuts off {cut}")
        for word in self._page.evaluate(_BROKEN_WORDS):
            self._note(f"breaks {word!r}")
        for copied, typed in self._page.evaluate(_COPIED):
            self._note(f"copies {copied!r}, not {typed!r}")
        for image in self._page.evaluate(_MISSING_IMAGES):
            self._note(f"does not show {image}")
        wanted = "slate" if self._scheme == "dark" else "default"
        scheme = self._page.locator("body").get_attribute("data-md-color-scheme")
        if scheme != wanted:
            self._note(f"has the colours {scheme}, not {wanted}")

    def _copy(self) -> None:
        page = self._page
        page.goto(self._base + self._at, wait_until="networkidle")
        block = page.locator(".language-console").filter(has_text=TYPED).first
        block.hover()
        block.locator(
            "button[data-clipboard-target], .md-clipboard, [data-md-type=copy]"
        ).first.click()
        copied = page.evaluate("() => navigator.clipboard.readText()")
        if copied != TYPED:
            self._note(f"puts {copied!r} on the clipboard, not {TYPED!r}")

    def _search(self) -> None:
        page = self._page
        page.goto(self._base, wait_until="networkidle")
        if not page.locator("input.md-search__input").is_visible():
            page.locator("label.md-header__button[for=__search]").click()
        # Key by key: the theme searches at each key-up event.
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


def main(site: Path, chromium: str) -> int:
    """Prints the faults; returns 0 if there are none."""
    pages = sorted(path.relative_to(site).as_posix() for path in site.rglob("*.html"))
    pages.remove("404.html")  # absolute links, which need the final server
    wrong = seen_in_a_browser(site, pages, chromium)
    for line in wrong:
        print(line)
    print(f"{len(pages)} pages, {len(wrong)} faults")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2]))
