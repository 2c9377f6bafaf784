"""What a program has left behind at the end of its simulation."""

from __future__ import annotations

import contextlib
import gc
import re
import threading
import warnings
from collections.abc import Collection, Container, Iterator
from typing import Any

from ..simulated.errors import LeftBehind

# What may be allowed.
KINDS = ("tasks", "transports", "exceptions")
# Seconds of virtual time that what was told to end has, when the program has returned.
SETTLE = 10.0
# What transports, and streams that have one, warn of when they are collected.
_DROPPED = re.compile("unclosed (transport|<StreamWriter) ")


def check(allow: Collection[str]) -> frozenset[str]:
    """ValueError where a kind is none."""
    kinds = frozenset((allow,) if isinstance(allow, str) else allow)
    if not kinds <= set(KINDS):
        raise ValueError(f"allow= takes {', '.join(map(repr, KINDS))}, not {allow!r}")
    return kinds


def open_transports(loop: Any, own: Container[Any] = ()) -> list[str]:
    """A sentence for each transport that is not closing, nor the simulation's own, and for each
    server that listens."""
    found = [
        f"a transport is open: {each!r}"
        for each in loop._all_transports()
        if not each.is_closing() and each not in own
    ]
    return found + ["a server listens" for _ in loop._serving]


@contextlib.contextmanager
def dropped_transports(found: list[str]) -> Iterator[None]:
    """A sentence for each transport or stream that the program drops and has not closed."""
    thread = threading.get_ident()
    with warnings.catch_warnings():
        warnings.filterwarnings("always", _DROPPED.pattern, ResourceWarning)
        shown = warnings.showwarning

        def showwarning(message: Any, category: Any, *args: Any, **options: Any) -> None:
            text = str(message)
            if threading.get_ident() == thread and _DROPPED.match(text):
                found.append(f"it was dropped, and not closed: {text.removeprefix('unclosed ')}")
            shown(message, category, *args, **options)

        warnings.showwarning = showwarning
        try:
            yield
        finally:
            warnings.showwarning = shown


def raise_what_is_left(
    left: list[str], unhandled: list[dict[str, Any]], allow: Collection[str], when: str
) -> None:
    """LeftBehind, if there is something."""
    cause = None
    for context in () if "exceptions" in allow else unhandled:
        exc = context.get("exception")
        cause = cause or exc
        left.append(f"{context.get('message')}: {exc!r}" if exc else f"{context.get('message')}")
    if left:
        what = "\n".join(f"- {each}" for each in left)
        raise LeftBehind(
            f"the program has returned, and left behind, at {when}:\n{what}", tuple(left)
        ) from cause


@contextlib.contextmanager
def only_new_objects() -> Iterator[None]:
    """The collector sees just what is made meanwhile.

    So a collection takes little time, and finalizes nothing of another test's: what that would
    report is not of this simulation.  Where the program has frozen objects itself, they stay so.
    """
    if gc.get_freeze_count():
        gc.collect()
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
