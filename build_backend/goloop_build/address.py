"""The project's address, and the links of README as the package index needs them.

The Go module's path, pyproject.toml, mkdocs.yml and the pages repeat the address where a file can't
read it; tests compare them with REPOSITORY.
"""

from __future__ import annotations

import os
import re

REPOSITORY = "https://github.com/goloop/goloop"
# False until the address answers: then the site has no links to it, and pages say so.
PUBLISHED = False

# A block of code, inline code, or a link with its text; the text may contain inline code.
_PARTS = re.compile(
    r"^(```|~~~).*?^\1|(!?)\[((?:[^\[\]`]|`[^`]*`)*)\]\(([^)\s]+)\)|`[^`\n]*`", re.S | re.M
)


def go_module() -> str:
    """Returns the path of the Go module, which is the address without the scheme."""
    return REPOSITORY.partition("://")[2]


def page(path: str) -> str:
    """Returns the address of a file or folder of the tree, perhaps with `#anchor`."""
    kind = "tree" if os.path.isdir(path.partition("#")[0]) else "blob"
    return f"{REPOSITORY}/{kind}/main/{path}"


def picture(path: str) -> str:
    """Returns the address of a file of the tree itself, for a picture on another site."""
    return f"{REPOSITORY.replace('github.com', 'raw.githubusercontent.com')}/main/{path}"


def absolute(markdown: str) -> str:
    """Returns README's text with an address for each relative link; the tree is the folder."""

    def replace(found: re.Match[str]) -> str:
        mark, text, target = found[2], found[3], found[4]
        if target is None or re.match(r"[a-z]+:|#", target):
            return found[0]
        return f"{mark}[{text}]({picture(target) if mark else page(target)})"

    return _PARTS.sub(replace, markdown)
