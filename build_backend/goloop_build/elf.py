"""Hides the constructors of the Go library from the dynamic loader.

A constructor starts the Go runtime, and the loader runs it as soon as it has loaded the library.
goloop loads the library at its import and starts Go with the first loop.  Therefore the extension
calls the constructors itself (pybridge/core/runtime/image.c): two entries of the dynamic section
get tags that the loader ignores.
"""

from __future__ import annotations

import struct

PT_DYNAMIC = 2
DT_NULL = 0
# Tags for DT_INIT_ARRAY and DT_INIT_ARRAYSZ, from the range that is reserved for operating systems;
# image.c has the same numbers.
HIDDEN = {25: 0x676F6C70, 27: 0x676F6C71}


def hide_constructors(library: bytes) -> bytes:
    """Returns the bytes of a 64-bit little-endian library with the constructors' tags replaced.

    ValueError for any other file.
    """
    if library[:6] != b"\x7fELF\x02\x01":
        raise ValueError("the library must be a 64-bit little-endian ELF file")
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
