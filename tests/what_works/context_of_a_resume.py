"""A task resumes reading: the protocol's callbacks don't inherit its context variables.

report: python/cpython#140947
asyncio: leaks until 3.14
uvloop: right
"""

import asyncio
import contextvars
import socket

from showing import show

request = contextvars.ContextVar("request", default="none")


async def main() -> str:
    loop = asyncio.get_running_loop()
    near, far = socket.socketpair()
    seen = loop.create_future()

    class Server(asyncio.Protocol):
        def data_received(self, data: bytes) -> None:
            seen.set_result(request.get())

    transport, _ = await loop.create_connection(Server, sock=near)
    transport.pause_reading()

    async def handles() -> None:
        request.set("of a task")
        transport.resume_reading()

    await asyncio.create_task(handles())
    far.send(b"next")
    found = await seen
    transport.close()
    far.close()
    return "right" if found == "none" else "leaks"


if __name__ == "__main__":
    show(main)
