"""A listening socket that the program closes before its server.

report: benoitc/gunicorn#3013
asyncio: ValueError
uvloop: aborts
"""

import asyncio
import socket

from showing import show


async def main() -> str:
    listening = socket.create_server(("127.0.0.1", 0))
    same = socket.socket(fileno=listening.fileno())
    server = await asyncio.get_running_loop().create_server(asyncio.Protocol, sock=same)
    listening.close()
    same.detach()
    await asyncio.sleep(0.01)
    server.close()
    await asyncio.wait_for(server.wait_closed(), 5)
    return "right"


if __name__ == "__main__":
    show(main)
