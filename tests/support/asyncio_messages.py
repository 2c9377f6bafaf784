"""Differences between the releases of one version of CPython, taken from asyncio itself."""

from __future__ import annotations

import asyncio.selector_events
from typing import Any

_streams: Any = asyncio.selector_events

# The name of a stream's data in errors of write(); releases of 3.13 differ, and those with 3.14's
# words check the data of writelines() as 3.14 does.
DATA = next(
    words.removeprefix("data argument must be ").removesuffix(", not ")
    for words in _streams._SelectorSocketTransport.write.__code__.co_consts
    if isinstance(words, str) and words.startswith("data argument must be ")
)
LOOKS_AT_LINES = DATA != "a bytes-like object"
