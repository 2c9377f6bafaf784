"""Two transports read and write one terminal.

report: MagicStack/uvloop#262
asyncio: right
uvloop: FileExistsError
"""

import asyncio
import os
import tty

from showing import show


async def main() -> str:
    loop = asyncio.get_running_loop()
    one, other = os.openpty()
    tty.setraw(other)
    reader = asyncio.StreamReader()
    reading, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(one, "rb", 0)
    )
    writing, _ = await loop.connect_write_pipe(
        asyncio.BaseProtocol, os.fdopen(one, "wb", 0, closefd=False)
    )
    writing.write(b"to")
    assert os.read(other, 10) == b"to"
    os.write(other, b"from")
    got = await asyncio.wait_for(reader.readexactly(4), 5)
    writing.abort()
    reading.close()
    await asyncio.sleep(0.01)
    os.close(other)
    return "right" if got == b"from" else "another text"


if __name__ == "__main__":
    show(main)
