"""A watched terminal stays blocking: other programs' output to it doesn't fail.

report: MagicStack/uvloop#712
asyncio: right
uvloop: is non-blocking
"""

import asyncio
import os

from showing import show


async def main() -> str:
    loop = asyncio.get_running_loop()
    one, other = os.openpty()
    loop.add_reader(other, lambda: None)
    await asyncio.sleep(0)
    blocking = os.get_blocking(other)
    loop.remove_reader(other)
    os.close(one)
    os.close(other)
    return "right" if blocking else "is non-blocking"


if __name__ == "__main__":
    show(main)
