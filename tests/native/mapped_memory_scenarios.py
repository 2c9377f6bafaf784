"""The scenarios of test_mapped_memory.py: `python mapped_memory_scenarios.py NAME` runs one."""

from __future__ import annotations

import ctypes
import mmap
import sys

lib = ctypes.CDLL(sys.argv[2])
libc = ctypes.CDLL(None)
PAGE = mmap.PAGESIZE
ANONYMOUS, FIXED = 0x22, 0x10
for map_ in (lib.go_mmap, libc.mmap):
    map_.restype = ctypes.c_void_p
    map_.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
for unmap in (lib.go_munmap, libc.munmap):
    unmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


def go_map(pages, at=None):
    return lib.go_mmap(at, pages * PAGE, 3, ANONYMOUS | (FIXED if at else 0), -1, 0)


def go_unmap(at, pages):
    assert lib.go_munmap(at, pages * PAGE) == 0


def other_map(pages, at):
    assert libc.mmap(at, pages * PAGE, 3, ANONYMOUS | FIXED, -1, 0) == at


def is_mapped(at):
    return libc.mincore(ctypes.c_void_p(at), PAGE, ctypes.create_string_buffer(1)) == 0


def mapped(at, pages):
    return [is_mapped(at + i * PAGE) for i in range(pages)]


def area(pages):
    """Addresses that no other code uses: the middle of a range that was just unmapped."""
    at = libc.mmap(None, (pages + 32) * PAGE, 0, ANONYMOUS, -1, 0)
    libc.munmap(at, (pages + 32) * PAGE)
    return at + 16 * PAGE


def all_mapped_ranges_are_unmapped() -> None:
    at = area(8)
    go_map(2, at), go_map(2, at + 4 * PAGE), go_map(2, at + 2 * PAGE), go_map(1, at + 7 * PAGE)
    assert mapped(at, 8) == [True] * 6 + [False, True]
    lib.unmap()
    assert mapped(at, 8) == [False] * 8


def range_that_other_code_has_mapped_since_stays() -> None:
    at = area(10)
    go_map(10, at)
    go_unmap(at + 3 * PAGE, 2)
    other_map(2, at + 3 * PAGE)
    go_unmap(at, 1)
    other_map(1, at)
    go_unmap(at + 9 * PAGE, 1)
    other_map(1, at + 9 * PAGE)
    lib.unmap()
    assert mapped(at, 10) == [i in (0, 3, 4, 9) for i in range(10)]


def unmapping_spans_several_ranges() -> None:
    at = area(9)
    for i in (0, 3, 6):
        go_map(2, at + i * PAGE)
    go_unmap(at + PAGE, 6)
    other_map(6, at + PAGE)
    lib.unmap()
    assert mapped(at, 9) == [False] + [True] * 6 + [False] * 2


def range_mapped_again_is_unmapped_once() -> None:
    at = area(6)
    go_map(6, at)
    go_map(2, at + PAGE)
    lib.unmap()
    assert mapped(at, 6) == [False] * 6
    other_map(6, at)
    lib.unmap()
    assert mapped(at, 6) == [True] * 6


def size_is_rounded_up_to_pages() -> None:
    at = area(4)
    assert lib.go_mmap(at, PAGE + 1, 3, ANONYMOUS | FIXED, -1, 0) == at
    go_map(1, at + 2 * PAGE)
    assert lib.go_munmap(at, PAGE - 1) == 0
    other_map(1, at)
    lib.unmap()
    assert mapped(at, 4) == [True, False, False, False]


def ranges_without_a_place_in_the_record_stay_mapped() -> None:
    at = area(2000)
    for i in range(1000):
        go_map(1, at + 2 * i * PAGE)
    lib.unmap()
    left = sum(mapped(at, 2000))
    assert left == 1000 - 512, left
    for i in range(500):
        go_map(1, at + 2 * i * PAGE)
    lib.unmap()
    assert not any(mapped(at, 1000))


if __name__ == "__main__":
    globals()[sys.argv[1]]()
