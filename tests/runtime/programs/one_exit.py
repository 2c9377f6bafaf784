import asyncio
import ctypes
import json
import resource
import signal
import socket
import sys
import threading
import time
import warnings

import goloop
from goloop import watchdog

resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
warnings.simplefilter("ignore")
plan = json.loads(sys.argv[1])


class timers:
    async def main(self, ready):
        def again():
            loop.call_later(0.0003, again)
            loop.call_later(0.5, int)

        loop = asyncio.get_running_loop()
        again()
        ready()
        while True:
            await asyncio.sleep(0.002)


class computes:
    async def main(self, ready):
        ready()
        while True:
            sum(range(20000))
            await asyncio.sleep(0)


class streams:
    async def main(self, ready):
        one, other = socket.socketpair()
        reader, writer = await asyncio.open_connection(sock=one)
        back, forth = await asyncio.open_connection(sock=other)
        ready()
        while True:
            writer.write(b"x" * 3000)
            forth.write(await back.readexactly(3000))
            await reader.readexactly(3000)


class blocked:
    async def main(self, ready):
        loop = asyncio.get_running_loop()
        loop.set_watchdog(0.002, abort_after=plan["gives_up"])
        ready()
        while True:
            time.sleep(0.006)  # each time a report begins
            await asyncio.sleep(0)


class names:
    async def main(self, ready):
        loop = asyncio.get_running_loop()
        asked = [loop.getaddrinfo(f"host{i}.example", 80) for i in range(4)]
        asked += [loop.getaddrinfo("localhost", 80)]
        asked = [asyncio.ensure_future(each) for each in asked]
        await asyncio.sleep(0)
        ready()
        while True:
            await loop.getaddrinfo("127.0.0.1", 80, type=socket.SOCK_STREAM, flags=0)
            await asyncio.sleep(0.001)


class executor:
    async def main(self, ready):
        loop = asyncio.get_running_loop()
        ready()
        while True:
            try:
                await loop.run_in_executor(None, time.sleep, 0.001)
            except RuntimeError:  # the executors end before Python does
                await asyncio.sleep(0.001)


class closes:
    async def main(self, ready):
        ready()
        while True:
            loop = goloop.new_event_loop()
            loop.call_soon(int)
            loop.close()
            await asyncio.sleep(0)


def start(kind):
    begun = threading.Event()
    if kind == "run_threads":
        left = [None] * 2

        def ready():
            left.pop()
            if not left:
                begun.set()

        async def one(index):
            await (timers, streams)[index]().main(ready)

        target, args = goloop.run_threads, (one,)
        keywords = {"threads": 2}
    else:
        target, args, keywords = goloop.run, (globals()[kind]().main(begun.set),), {}
    threading.Thread(target=target, args=args, kwargs=keywords, daemon=True).start()
    begun.wait()


def at_exit(function, *arg):
    # Of C, and so after Python's end; the last one comes first.
    libc.__cxa_atexit(ctypes.cast(function, ctypes.c_void_p), ctypes.c_void_p(*arg), None)


libc, python = ctypes.CDLL(None), ctypes.pythonapi
libc.strdup.restype = ctypes.c_void_p
if plan["after"] == "embedded":
    second = b"import asyncio; asyncio.run(asyncio.sleep(0.4))"
    at_exit(libc.usleep, 20_000)
    at_exit(python.PyRun_SimpleString, libc.strdup(second))
    at_exit(python.Py_InitializeEx, 0)
    at_exit(libc.usleep, 200_000)  # CPython itself survives no thread that wakes later
elif plan["after"] == "slow":
    at_exit(libc.usleep, 800_000)

for kind in plan["work"]:
    start(kind)
if plan["subscribes"]:
    watchdog.subscribe(lambda blocked: time.sleep(0.001))
time.sleep(plan["lives"])
end = plan["end"]
if end == "exit":
    sys.exit(3)
if end == "raises":
    sys.excepthook = lambda *error: None
    raise ZeroDivisionError
if end == "in the loop":

    async def main():
        await asyncio.sleep(0.001)
        sys.exit(4)

    goloop.run(main())
if end == "interrupted":
    sys.excepthook = lambda *error: None
    signal.raise_signal(signal.SIGINT)
