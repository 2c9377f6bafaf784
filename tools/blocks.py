"""The generated parts of pages: the text between two comments, which programs replace."""

from __future__ import annotations


def replaced(text: str, begin: str, end: str, inner: str) -> str:
    """Returns a page's text with `inner` between the comments.

    Raises ValueError unless each of the two comments is there once, and in order.
    """
    before, found, rest = text.partition(begin)
    _old, found_end, after = rest.partition(end)
    if not found or not found_end or begin in rest or end in after:
        raise ValueError(f"the page does not have the two comments {begin} and {end} once")
    return f"{before}{begin}\n\n{inner}\n\n{end}{after}"
