"""A FIFO that is opened repeatedly leaves no open descriptors.

report: MagicStack/uvloop#80
asyncio: right
uvloop: leaks descriptors
"""

import asyncio
import os
import tempfile

from showing import descriptors, show


async def main() -> str:
    loop = asyncio.get_running_loop()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "fifo")
        os.mkfifo(path)
        before = descriptors()
        for _ in range(20):
            reader = asyncio.StreamReader()
            protocol = asyncio.StreamReaderProtocol(reader)
            file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb", 0)
            await loop.connect_read_pipe(lambda it=protocol: it, file)
            with open(path, "wb", 0) as writing:
                writing.write(b"text")
            await asyncio.wait_for(reader.read(), 5)
            await asyncio.sleep(0.001)
        return "right" if descriptors() < before + 3 else "leaks descriptors"


if __name__ == "__main__":
    show(main)
