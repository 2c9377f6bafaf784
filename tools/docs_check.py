"""Looks at the built site in a browser: `python tools/docs_check.py SITE CHROMIUM`.

Every page is opened at the width of a desktop and of a phone, light and dark: nothing is wider than
the screen, nothing fails to load, nothing comes from elsewhere, the console has no error; and the
search finds a word.  Links and their anchors are mkdocs' to validate (mkdocs.yml).
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
# The only boxes that may be wider inside than outside: those that show that they scroll.
_SCROLLING = ".md-typeset__scrollwrap, pre > code, .picture, p:has(> img)"
# A page with a command and its output, and what its copy button takes.
PROMPTS, TYPED = "start.html", "python hello.py"
# Records of decisions share one layout, so one visit of each is enough.
RECORDS, RECORDS_SHOWN = "internals/decisions/0", ("phone", "light")
# A word and the page that the search has to find by it.
WORD, FOUND = "set_watchdog", "reference.html"


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
# What is cut off in the content, in boxes that do not show it.
_CUT = """allowed => [...document.querySelectorAll(".md-content *")].filter(node =>
    node.scrollWidth > node.clientWidth + 1 && node.clientWidth > 0
    && getComputedStyle(node).overflowX !== "visible" && !node.matches(allowed)
).map(node => node.outerHTML.slice(0, 120))"""
# Words of a table's code that are broken: a line box ends within one.
_BROKEN_WORDS = """() => [...document.querySelectorAll(".md-typeset table code")].filter(node =>
    !/[\\s/(),=.:-]/.test(node.textContent) && node.getClientRects().length > 1
).map(node => node.textContent)"""
# What a copy button would take of the blocks with prompts (the theme's bundle does the same).
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
        """Each page, then the search."""
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


def main(site: Path, chromium: str) -> int:
    """Prints what is wrong; the status is 0 if nothing is."""
    pages = sorted(path.relative_to(site).as_posix() for path in site.rglob("*.html"))
    pages.remove("404.html")  # its links begin at a root that only a server has
    wrong = seen_in_a_browser(site, pages, chromium)
    for line in wrong:
        print(line)
    print(f"{len(pages)} pages, {len(wrong)} faults")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2]))
