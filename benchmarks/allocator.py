"""The C library's allocator as a condition of a measurement: steady, or with defaults.

glibc gives memory at the top of the heap back to the kernel once more than a threshold
is free there, and fetches it again, page fault by page fault, when the next block needs
it.  A loop that allocates and frees a block of 256 KiB for each read pays this cost in every
message or in none, depending on the blocks that happen to lie above.  The cost is larger
than the differences between loops, and random.

So the main tables run every server *steady*: with the settings STEADY, which prevent it.  A
second table shows the defaults, under several layouts of the heap that lay_out() makes; all
loops of a round have the same layout.
"""

from __future__ import annotations

KIB = 1024
MIB = 1024 * KIB

# mallopt(3).  Setting any of the three also ends glibc's habit of moving the thresholds
# by the blocks that a program frees.
STEADY = {
    # From this size on a block is a mapping of its own, made by a system call and touched
    # page by page each time.  32 MiB is the most that glibc accepts on 64 bits
    # (DEFAULT_MMAP_THRESHOLD_MAX): no loop's buffer is as large.
    "MALLOC_MMAP_THRESHOLD_": str(32 * MIB),
    # The free memory at the top of the heap above which glibc returns it: more than any server has.
    # Below INT_MAX, because mallopt's value is an int.
    "MALLOC_TRIM_THRESHOLD_": str(1024 * MIB),
    # Additional memory at each growth of the heap: a server makes few system calls for it.
    # Pages that are not touched cost no memory.
    "MALLOC_TOP_PAD_": str(16 * MIB),
}

# Sizes in KiB of the holes that a layout leaves below the top, each with a kept block
# above it.  Loops allocate blocks of 64 to 256 KiB.  A block that fits no hole comes from
# the top.
LAYOUTS: tuple[tuple[int, ...], ...] = (
    (),  # as the interpreter's start leaves it
    (0, 0, 0),  # no hole, but another address of the top
    (320,),  # room for one such block
    (1024,),  # room for several
    (192,) * 8,  # room for small ones only
)
# Below the threshold of a mapping, so that the block lies in the heap; above the sizes that
# Python's own allocator serves.
PIECE = 32 * KIB

_kept: list[bytearray] = []


def lay_out(number: int) -> None:
    """Create the holes of a layout in this process's heap, by allocating and freeing blocks."""
    for hole in LAYOUTS[number]:
        # Blocks that were allocated in a row lie side by side, and become one when freed.
        pieces = [bytearray(PIECE) for _ in range(hole * KIB // PIECE)]
        _kept.append(bytearray(PIECE))
        del pieces


def setting(variables: dict[str, str]) -> str:
    """Write an allocator's setting for a reader; nothing set means the defaults."""
    if not variables:
        return "the allocator as it comes"
    return ", ".join(f"{name}={value}" for name, value in variables.items())
