"""The scenarios of test_visible_writes.py: `python visible_writes_scenarios.py NAME` runs one."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import threading
import time


def pending_writes_are_sent_however_the_run_ends(loop_name: str, end: str) -> None:
    if loop_name == "goloop":
        from goloop import new_event_loop
    else:
        from asyncio import new_event_loop
    loop = new_event_loop()
    listening = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(listening.getsockname())
    sock, _ = listening.accept()
    sock.setblocking(False)

    def end_run():
        if end == "loop.stop()":
            loop.stop()
        elif end == "task.cancel()":
            task.cancel()
        else:
            raise {"raise SystemExit": SystemExit, "raise KeyboardInterrupt": KeyboardInterrupt}[
                end
            ]

    async def main():
        transport, _ = await loop.connect_accepted_socket(asyncio.Protocol, sock)

        def last():
            transport.write(b"last words")
            end_run()

        loop.call_soon(last)
        await loop.create_future()

    task = loop.create_task(main())
    try:
        loop.run_forever() if end == "loop.stop()" else loop.run_until_complete(task)
    except BaseException:
        pass
    client.settimeout(60)
    print(client.recv(100).decode(), flush=True)
    os._exit(0)


def a_loop_in_a_daemon_thread_has_its_bytes_sent_at_exit(loop_name: str) -> None:
    if loop_name == "goloop":
        from goloop import new_event_loop
    else:
        from asyncio import new_event_loop
    listening = socket.create_server(("127.0.0.1", 0))
    if os.fork() == 0:
        client = socket.create_connection(listening.getsockname())
        client.settimeout(60)
        print(client.recv(100).decode(), flush=True)
        os._exit(0)
    written = threading.Event()

    class Server(asyncio.Protocol):
        def connection_made(self, transport):
            asyncio.get_running_loop().call_soon(self.write, transport)

        def write(self, transport):
            transport.write(b"last words")
            written.set()
            time.sleep(1000)

    async def main():
        await asyncio.get_running_loop().create_server(Server, sock=listening)
        await asyncio.get_running_loop().create_future()

    loop = new_event_loop()
    threading.Thread(target=lambda: loop.run_until_complete(main()), daemon=True).start()
    written.wait()


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
