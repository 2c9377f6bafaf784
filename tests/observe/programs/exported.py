import asyncio
import ctypes
import sys
import threading

import prometheus_client

import goloop
import goloop.prometheus

goloop.prometheus.register()
server, _ = prometheus_client.start_http_server(0, "127.0.0.1")


def second():
    async def wait():
        started.set()
        await asyncio.Event().wait()

    goloop.run(wait())


async def main():
    print("ready", server.server_port, flush=True)
    while word := (await asyncio.to_thread(sys.stdin.readline)).strip():
        if word == "hang":
            print("hangs", flush=True)
            ctypes.PyDLL(None).pause()
        print(word, flush=True)


started = threading.Event()


async def begin():
    threading.Thread(target=second, daemon=True).start()
    await asyncio.to_thread(started.wait)
    await main()


goloop.run(begin())
