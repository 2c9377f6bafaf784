"""The scenarios of test_transport_safety.py, each run by its name."""

from __future__ import annotations

import asyncio
import socket
import sys


def a_replaced_class_of_transports() -> None:
    import goloop
    import goloop._internal.net.server
    from goloop._internal.net.stream_transport import StreamTransport

    class Odd(StreamTransport):
        def __new__(cls, *arguments, **named):
            return []

    put = {"object": object, "dict": dict, "none": None, "odd": Odd}[sys.argv[2]]
    goloop._internal.net.server.StreamTransport = put

    async def main():
        told = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: told.append(context["exception"]))

        def answer(reader, writer):
            told.append(type(writer.transport) is put)
            writer.write(b"answer")
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        with socket.create_connection(server.sockets[0].getsockname()) as peer:
            peer.setblocking(False)
            got = await loop.sock_recv(peer, 10)
        server.close()
        print(got, *told)

    goloop.run(main(), debug=True)  # asyncio reports a failed accept in debug mode only


def a_transport_that_gets_no_memory_is_not_made() -> None:
    from _testcapi import remove_mem_hooks, set_nomemory

    from goloop import _core

    cls = getattr(_core, sys.argv[2])
    _dicts = [{} for _ in range(200)]  # no freed one is left, which would take no memory
    for which in range(10):
        set_nomemory(which, which + 1)
        try:
            made = cls.__new__(cls)
        except MemoryError:
            made = None
        finally:
            remove_mem_hooks()
        print("made" if made else "refused")


if __name__ == "__main__":
    globals()[sys.argv[1]]()
