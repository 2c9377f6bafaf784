"""mkdocs hook: rewrites links out of docs/, adds the version, marks the output of consoles.

The pages are also read in the repository, where `../goloop/watchdog.py` is a good link.  The site
contains the pages only, so the hook rewrites such a link to the repository's public address.  A
link to a missing file is a warning, which fails a strict build.
"""

from __future__ import annotations

import logging
import os
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"

sys.path.insert(0, str(ROOT / "build_backend"))

from goloop_build.address import PUBLISHED, REPOSITORY  # noqa: E402

# A block of code, inline code, or the target of a link.
_PARTS = re.compile(r"^(```|~~~).*?^\1|``.*?``|`[^`\n]*`|\]\((\.\./[^)\s#]*)", re.S | re.M)

logger = logging.getLogger("mkdocs.hooks.links")


def address(target: str, page: Path) -> str | None:
    """Returns the site's address for a relative link of a page; None for links within docs/."""
    path = Path(os.path.normpath(page.parent / target))
    if path.is_relative_to(DOCS):
        return None
    if not (path.is_relative_to(ROOT) and path.exists()):
        logger.warning("%s links to %s, which does not exist", page.relative_to(ROOT), target)
    kind = "tree" if path.is_dir() else "blob"
    return f"{REPOSITORY}/{kind}/main/{path.relative_to(ROOT).as_posix()}"


def rewritten(markdown: str, page: Path) -> str:
    """Returns the page with these links replaced, except in code."""

    def replace(found: re.Match[str]) -> str:
        target = found[2]
        new = None if target is None else address(target, page)
        return found[0] if new is None else f"]({new}"

    return _PARTS.sub(replace, markdown)


def on_config(config: Any, **_: Any) -> Any:
    """Adds the version to the foot of each page; removes links to an address without an answer."""
    source = (ROOT / "goloop" / "_internal" / "version.py").read_text()
    found = re.search(r'^__version__ = "(.+)"$', source, re.M)
    assert found is not None
    config["copyright"] = f"goloop {found[1]}, alpha. MIT licence."
    if not PUBLISHED:
        config["copyright"] += f" Not published yet: {REPOSITORY} does not answer."
        config["repo_url"] = config["edit_uri"] = None
    return config


# A highlighted block of commands with their output, and one line of it.
_CONSOLE = re.compile(r'<div class="language-console highlight">.*?</code>', re.S)
_LINE = re.compile(r'<span id="(__span-[\d-]+)">(.*?)(?=<span id="__span-|</code>)', re.S)


def without_output(html: str) -> str:
    """Marks the lines of program output in consoles, which the copy button omits.

    The highlighter treats some of these lines as commands, for example lines with a `%`.
    """

    def mark(block: re.Match[str]) -> str:
        typed = False

        def marked(line: re.Match[str]) -> str:
            nonlocal typed
            text = re.sub(r"<[^>]+>", "", line[2])
            continued, typed = typed, False
            if text.startswith("$ ") or continued:
                typed = text.rstrip().endswith("\\")
                return line[0]
            return line[0].replace(f'id="{line[1]}"', f'id="{line[1]}" class="output"')

        return _LINE.sub(marked, block[0])

    return _CONSOLE.sub(mark, html)


def on_page_content(html: str, **_: Any) -> str:
    """Marks the output in a page's HTML; mkdocs calls it."""
    return without_output(html)


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Rewrites the links of a page's source; mkdocs calls it."""
    return rewritten(markdown, DOCS / page.file.src_uri)
