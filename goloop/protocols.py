"""Which protocols take bytes by a buffer of theirs.

asyncio asks whether a protocol inherits from BufferedProtocol. uvloop asks for the methods, and so
do programs that come from it: a class with get_buffer() and buffer_updated() alone gets its data by
them here, where asyncio fails for want of data_received().
"""

from __future__ import annotations

import asyncio


def is_buffered(protocol: object) -> bool:
    """Whether a stream gives the protocol its bytes by get_buffer() and buffer_updated()."""
    if isinstance(protocol, asyncio.BufferedProtocol):
        return True
    if hasattr(protocol, "data_received"):
        return False
    return hasattr(protocol, "get_buffer") and hasattr(protocol, "buffer_updated")
