"""`connect_read_pipe()` of a regular file.

report: libuv/libuv#281
asyncio: right
uvloop: aborts
"""

import asyncio

from showing import show


async def main() -> str:
    loop = asyncio.get_running_loop()
    with open(__file__, "rb") as file:
        try:
            await loop.connect_read_pipe(asyncio.Protocol, file)
        except ValueError:
            return "right"
    return "takes it"


if __name__ == "__main__":
    show(main)
