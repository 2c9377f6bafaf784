"""The event loops that `goloop compare` knows, and those that are installed."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass


@dataclass(frozen=True)
class Loop:
    """An event loop: its name in the report, and its factory as "module:function"."""

    name: str
    factory: str


# Not asyncio.new_event_loop: it asks the policy, which launch.py replaces.
ASYNCIO = Loop("asyncio", "asyncio:SelectorEventLoop")
GOLOOP = Loop("goloop", "goloop:new_event_loop")
KNOWN = (
    GOLOOP,
    ASYNCIO,
    Loop("uvloop", "uvloop:new_event_loop"),
    Loop("zuvloop", "zuvloop:new_event_loop"),
    Loop("blazio", "blazio:new_event_loop"),
    Loop("rloop", "rloop:new_event_loop"),
    Loop("rsloop", "rsloop:new_event_loop"),
)


def installed() -> list[Loop]:
    """Return the known loops whose packages are installed."""
    return [loop for loop in KNOWN if importlib.util.find_spec(loop.factory.partition(":")[0])]


def parse_loops(words: str) -> list[Loop]:
    """Return the loops of a list such as "goloop,asyncio,mine=package.module:function".

    Raises ValueError for an unknown or repeated name, or fewer than two loops.
    """
    by_name = {loop.name: loop for loop in KNOWN}
    found: dict[str, Loop] = {}
    for word in words.split(","):
        name, equals, factory = word.strip().partition("=")
        if equals and name and all(factory.partition(":")[::2]):
            loop = Loop(name, factory)
        elif word.strip() in by_name:
            loop = by_name[word.strip()]
        else:
            known = ", ".join(by_name)
            raise ValueError(
                f"loop must be one of {known}, or NAME=module:function, got {word.strip()!r}"
            )
        if name in found:
            raise ValueError(f"loop {name} is named twice")
        found[name] = loop
    if len(found) < 2:
        raise ValueError(f"at least two loops are needed, got {words!r}")
    return list(found.values())
