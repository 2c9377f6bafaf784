"""Becomes a daemon as with python-daemon, uvicorn and gunicorn.

The child closes all descriptors, makes its own listening socket, and then a loop.
"""

import asyncio
import ctypes
import os
import socket
import sys

import goloop
from goloop.operations import introspection

if os.fork():
    os._exit(os.wait()[1])
number = introspection._serving.fileno()
os.closerange(3, 256)
with socket.socket(socket.AF_UNIX) as sock:
    sock.bind(sys.argv[1])
    sock.listen(100)
    assert sock.fileno() <= number
    if sock.fileno() < number:
        os.dup2(sock.fileno(), number, inheritable=False)
    else:
        sock.detach()
sock = socket.socket(fileno=number)
if "again" in sys.argv:
    goloop.introspect()


async def serve(reader, writer):
    await reader.readuntil(b"\n")
    writer.write(b"app")
    writer.close()


async def main():
    server = await asyncio.start_unix_server(serve, sock=sock)
    print(os.getpid(), flush=True)
    ctypes.PyDLL(None).sleep(2)  # keeps the GIL
    await server.serve_forever()


goloop.run(main())
