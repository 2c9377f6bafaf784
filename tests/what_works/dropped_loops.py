"""Loops that are dropped without a `close()` leave no open descriptors.

report: none
asyncio: right
uvloop: leaks descriptors
"""

import gc
import warnings

from showing import descriptors, new_loop, show


async def main() -> str:
    warnings.simplefilter("ignore", ResourceWarning)
    new_loop()
    gc.collect()
    before = descriptors()
    for _ in range(50):
        new_loop()
    gc.collect()
    return "right" if descriptors() < before + 10 else "leaks descriptors"


if __name__ == "__main__":
    show(main)
