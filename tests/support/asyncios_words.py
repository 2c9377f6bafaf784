"""What differs between the releases of one version of CPython, asked of asyncio itself."""

from __future__ import annotations

import asyncio.selector_events
from typing import Any

_streams: Any = asyncio.selector_events

# What a stream's write() calls the data that it takes; releases of 3.13 differ, and those that
# have 3.14's words look at what writelines() gets as 3.14 does.
DATA = next(
    words.removeprefix("data argument must be ").removesuffix(", not ")
    for words in _streams._SelectorSocketTransport.write.__code__.co_consts
    if isinstance(words, str) and words.startswith("data argument must be ")
)
LOOKS_AT_LINES = DATA != "a bytes-like object"
