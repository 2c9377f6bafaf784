"""Which protocols take bytes by a buffer of theirs.

asyncio asks whether a protocol inherits from BufferedProtocol. uvloop asks for the methods, and so
do programs that come from it: a class with get_buffer() and buffer_updated() alone gets its data by
them here, where asyncio fails because there is no data_received().
"""

from __future__ import annotations


def has_buffer_methods(protocol: object) -> bool:
    """Whether a protocol that is none of asyncio's BufferedProtocols gets its bytes as they do."""
    if hasattr(protocol, "data_received"):
        return False
    return hasattr(protocol, "get_buffer") and hasattr(protocol, "buffer_updated")
