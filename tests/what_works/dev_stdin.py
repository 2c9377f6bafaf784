"""A child opens its /dev/stdin.

report: MagicStack/uvloop#532
asyncio: right
uvloop: ENXIO
"""

import asyncio

from showing import show


async def main() -> str:
    child = await asyncio.create_subprocess_exec(
        "sh", "-c", "exec 3< /dev/stdin && echo opened", stdin=-1, stdout=-1, stderr=-1
    )
    said, errors = await child.communicate()
    if said == b"opened\n":
        return "right"
    return "ENXIO" if b"No such device or address" in errors else "another error"


if __name__ == "__main__":
    show(main)
