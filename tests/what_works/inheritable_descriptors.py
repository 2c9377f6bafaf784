"""An inheritable descriptor that was not passed on: children don't inherit it.

report: none
asyncio: right
uvloop: children have it
"""

import asyncio
import os

from showing import show


async def main() -> str:
    read, write = os.pipe()
    os.set_inheritable(read, True)
    child = await asyncio.create_subprocess_exec(
        "ls", f"/proc/self/fd/{read}", stdout=-1, stderr=-1
    )
    await child.communicate()
    os.close(read)
    os.close(write)
    return "children have it" if child.returncode == 0 else "right"


if __name__ == "__main__":
    show(main)
