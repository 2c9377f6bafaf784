"""A client for echo_server.py: `python examples/echo_client.py PORT [MESSAGE...]`.

The client sends each message, and then a megabyte, and checks the answers.
"""

import asyncio
import hashlib
import os
import sys

import goloop


async def main(port: int, messages: list[str]) -> None:
    """Send everything over one connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for message in messages:
        writer.write(message.encode() + b"\n")
        await writer.drain()
        print("sent", repr(message), "- got", repr((await reader.readline()).decode().rstrip("\n")))

    block = os.urandom(1 << 20)
    # The client must read while it sends the block: the server stops reading as long as
    # its answers are not read.
    answer = asyncio.create_task(reader.readexactly(len(block)))
    writer.write(block)
    await writer.drain()
    same = hashlib.sha256(await answer).digest() == hashlib.sha256(block).digest()
    print("sent 1 MiB - got", "the same back" if same else "SOMETHING ELSE")
    writer.close()
    await writer.wait_closed()
    if not same:
        sys.exit(1)


if __name__ == "__main__":
    goloop.run(main(int(sys.argv[1]), sys.argv[2:] or ["hello", "how are you?"]))
