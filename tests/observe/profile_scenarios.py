"""The scenarios of test_profile.py: `python profile_scenarios.py NAME` runs one.

Most print the measured times of their culprits, and the entries of the profile.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time

import goloop

truth = {}


def measured(function):
    def call(*arguments):
        began = time.perf_counter(), time.thread_time()
        function(*arguments)
        spent = truth.setdefault(function.__qualname__, [0.0, 0.0])
        spent[0] += time.perf_counter() - began[0]
        spent[1] += time.thread_time() - began[1]

    return call


def told():
    entries = [[e.task, e.function, e.line, e.seconds, e.cpu] for e in goloop.profile().entries]
    print(json.dumps({"truth": truth, "entries": entries, "busy": goloop.profile().busy}))


# ---- culprits: their own frames are the innermost ------------------------------------------------


@measured
def small():
    until = time.perf_counter() + 0.02
    while time.perf_counter() < until:
        pass


@measured
def middle():
    until = time.perf_counter() + 0.04
    while time.perf_counter() < until:
        pass


@measured
def large():
    until = time.perf_counter() + 0.06
    while time.perf_counter() < until:
        pass


@measured
def first():
    until = time.perf_counter() + 0.3
    while time.perf_counter() < until:
        pass


@measured
def second():
    until = time.perf_counter() + 0.3
    while time.perf_counter() < until:
        pass


@measured
def waits():
    time.sleep(0.05)


@measured
def parses():
    sorted(range(300_000), key=lambda each: -each)


# ---- scenarios -----------------------------------------------------------------------------------


async def worker(function):
    for _ in range(25):
        function()
        await asyncio.sleep(0)


def tasks() -> None:
    async def main():
        await asyncio.gather(worker(small), worker(middle), worker(large))

    goloop.run(main())
    told()


def callbacks() -> None:
    def again(function, left, done):
        function()
        if left:
            asyncio.get_running_loop().call_later(0.001, again, function, left - 1, done)
        else:
            done.set_result(None)

    async def main():
        loop = asyncio.get_running_loop()
        futures = [loop.create_future() for _ in range(2)]
        loop.call_soon(again, middle, 30, futures[0])
        loop.call_soon(again, waits, 30, futures[1])
        await asyncio.gather(*futures)

    goloop.run(main())
    told()


def server() -> None:
    async def handle(reader, writer):
        while line := await reader.readline():
            parses() if line == b"p\n" else small()
            writer.write(line)

    async def client(address, line):
        reader, writer = await asyncio.open_connection(*address)
        for _ in range(30):
            writer.write(line)
            await reader.readline()
        writer.close()

    async def main():
        server = await asyncio.start_server(handle, "127.0.0.1", 0)
        address = server.sockets[0].getsockname()[:2]
        await asyncio.gather(client(address, b"p\n"), client(address, b"a\n"))
        server.close()

    goloop.run(main())
    told()


def samples() -> None:
    """Prints how many samples a culprit has."""

    async def main():
        first()

    goloop.run(main())
    print(goloop.profile().samples)


def before_the_first_loop() -> None:
    print(json.dumps([goloop.profile().stacks, goloop._core.library_info()["mode"]]))


def forked_child() -> None:
    async def run(function):
        function()

    goloop.run(run(first))
    if os.fork() == 0:
        truth.clear()
        goloop.run(run(second))
        told()
        sys.stdout.flush()
        os._exit(0)
    os.wait()


def loops_of_threads() -> None:
    async def main(index):
        [first, second][index]()

    goloop.run_threads(main, threads=2)
    stacks = goloop.profile().stacks
    print(json.dumps([[each.loop, goloop.profile().own_frame(each).function] for each in stacks]))


def short_lived_code_objects() -> None:
    async def main():
        until = time.monotonic() + 3
        n = 0
        while time.monotonic() < until:
            n += 1
            space = {}
            text = f"def made{n}(f):\n    return [f() for _ in range(20)]"
            exec(compile(text, f"{n}.py", "exec"), space)
            space[f"made{n}"](lambda: sum(i for i in range(100)))
            if n % 8 == 0:
                await asyncio.sleep(0)

    goloop.run(main())
    told()


def service() -> None:
    """Computes until the test ends it, or keeps the GIL in a call of C."""
    if sys.argv[2:] == ["holds the GIL"]:
        import ctypes

        goloop.run(holds_the_gil(ctypes.PyDLL(None).sleep))
    goloop.run(computes())


async def computes():
    threading.Thread(target=sys.stdin.readline, daemon=True).start()
    print("ready", flush=True)
    while True:
        small()
        await asyncio.sleep(0.001)


async def holds_the_gil(sleep):
    threading.Thread(target=sys.stdin.readline, daemon=True).start()
    print("ready", flush=True)
    while True:
        sleep(60)
        await asyncio.sleep(0.001)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
