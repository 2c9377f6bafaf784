"""mkdocs hook: a link that leaves docs/ leads to the file in the repository; the version.

The pages are read in the repository too, where `../goloop/watchdog.py` is a good link.  The site
has the pages alone, so there the same link leads to the repository's public address.  One that
leads nowhere is a warning, and so the end of a strict build.
"""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path
from typing import Any

REPOSITORY = "https://github.com/goloop/goloop"
ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"

# A block of code, inline code, or the target of a link.
_PARTS = re.compile(r"^(```|~~~).*?^\1|``.*?``|`[^`\n]*`|\]\((\.\./[^)\s#]*)", re.S | re.M)

logger = logging.getLogger("mkdocs.hooks.links")


def address(target: str, page: Path) -> str | None:
    """Where a relative link of a page leads on the site; None if it stays within docs/."""
    path = Path(os.path.normpath(page.parent / target))
    if path.is_relative_to(DOCS):
        return None
    if not (path.is_relative_to(ROOT) and path.exists()):
        logger.warning("%s links to %s, which does not exist", page.relative_to(ROOT), target)
    kind = "tree" if path.is_dir() else "blob"
    return f"{REPOSITORY}/{kind}/main/{path.relative_to(ROOT).as_posix()}"


def rewritten(markdown: str, page: Path) -> str:
    """The page with such links replaced; what stands in code is left alone."""

    def replace(found: re.Match[str]) -> str:
        target = found[2]
        new = None if target is None else address(target, page)
        return found[0] if new is None else f"]({new}"

    return _PARTS.sub(replace, markdown)


def on_config(config: Any, **_: Any) -> Any:
    """The version is at the foot of each page."""
    source = (ROOT / "goloop" / "_internal" / "version.py").read_text()
    found = re.search(r'^__version__ = "(.+)"$', source, re.M)
    assert found is not None
    config["copyright"] = f"goloop {found[1]}, alpha. MIT licence."
    return config


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """mkdocs calls this with each page's source."""
    return rewritten(markdown, DOCS / page.file.src_uri)
