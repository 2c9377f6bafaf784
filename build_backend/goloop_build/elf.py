"""Hides the constructors of the Go library from the dynamic loader.

A constructor starts the Go runtime, and the loader runs it as soon as it has loaded the library.
goloop loads the library when it is imported, and starts it with the first loop: so the extension
itself calls the constructors (pybridge/core/runtime/image.c), by two entries of the dynamic section
whose tags the loader does not know.
"""

from __future__ import annotations

import struct

PT_DYNAMIC = 2
DT_NULL = 0
# DT_INIT_ARRAY, DT_INIT_ARRAYSZ; image.c has the same numbers, which are free for a system's use.
HIDDEN = {25: 0x676F6C70, 27: 0x676F6C71}


def hide_constructors(library: bytes) -> bytes:
    """The file of a 64-bit little-endian library, with other tags for its constructors."""
    if library[:6] != b"\x7fELF\x02\x01":
        raise ValueError("this is no 64-bit little-endian ELF file")
    changed = bytearray(library)
    (headers,) = struct.unpack_from("<Q", library, 32)
    size, count = struct.unpack_from("<HH", library, 54)
    for header in range(headers, headers + size * count, size):
        kind, _, offset = struct.unpack_from("<IIQ", library, header)
        while kind == PT_DYNAMIC:
            (tag,) = struct.unpack_from("<Q", library, offset)
            if tag == DT_NULL:
                break
            struct.pack_into("<Q", changed, offset, HIDDEN.get(tag, tag))
            offset += 16
    return bytes(changed)
