"""Leaks at the end of a simulation: running tasks, open transports, unhandled exceptions."""

from __future__ import annotations

import contextlib
import gc
import re
import threading
import warnings
from collections.abc import Collection, Container, Iterator
from typing import Any

from ..simulated.errors import LeftBehind

# Kinds of leaks that `allow=` accepts.
KINDS = ("tasks", "transports", "exceptions")
# Seconds of virtual time after the program's return in which cancelled tasks and closing transports
# may end.
SETTLE = 10.0
# The ResourceWarning of transports and streams that are deallocated open.
_DROPPED = re.compile("unclosed (transport|<StreamWriter) ")


def check(allow: Collection[str]) -> frozenset[str]:
    """Return the kinds of `allow=` as a set; a string is one kind.  ValueError for a wrong kind."""
    kinds = frozenset((allow,) if isinstance(allow, str) else allow)
    if not kinds <= set(KINDS):
        raise ValueError(
            f"allow= must be a collection of {', '.join(map(repr, KINDS))}, got {allow!r}"
        )
    return kinds


def open_transports(loop: Any, own: Container[Any] = ()) -> list[str]:
    """Return a sentence for each open transport of the program and each listening server."""
    found = [
        f"a transport is open: {each!r}"
        for each in loop._all_transports()
        if not each.is_closing() and each not in own
    ]
    return found + ["a server listens" for _ in loop._serving]


@contextlib.contextmanager
def dropped_transports(found: list[str]) -> Iterator[None]:
    """Append a sentence to `found` for each transport deallocated open during the block."""
    thread = threading.get_ident()
    with warnings.catch_warnings():
        warnings.filterwarnings("always", _DROPPED.pattern, ResourceWarning)
        shown = warnings.showwarning

        def showwarning(message: Any, category: Any, *args: Any, **options: Any) -> None:
            """Record a warning about an unclosed transport, and show every warning as usual."""
            text = str(message)
            if threading.get_ident() == thread and _DROPPED.match(text):
                found.append(f"deallocated without close(): {text.removeprefix('unclosed ')}")
            shown(message, category, *args, **options)

        warnings.showwarning = showwarning
        try:
            yield
        finally:
            warnings.showwarning = shown


def raise_leaks(
    findings: list[str], unhandled: list[dict[str, Any]], allow: Collection[str], when: str
) -> None:
    """Raise LeftBehind if there are findings or, unless allowed, unhandled exceptions.

    The contexts of `unhandled` are appended to `findings`; `when` is the time for the message.
    """
    cause = None
    for context in () if "exceptions" in allow else unhandled:
        exc = context.get("exception")
        cause = cause or exc
        findings.append(
            f"{context.get('message')}: {exc!r}" if exc else f"{context.get('message')}"
        )
    if findings:
        lines = "\n".join(f"- {each}" for each in findings)
        raise LeftBehind(
            f"the program has returned with leaks, at {when}:\n{lines}", tuple(findings)
        ) from cause


@contextlib.contextmanager
def only_new_objects() -> Iterator[None]:
    """Restrict garbage collection to objects that are made in the block.

    A collection is fast then, and does not finalize objects of other tests, because their warnings
    would be reported here.  If the program has frozen objects itself, these stay frozen, and a
    collection before the block takes the place of the restriction.
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
