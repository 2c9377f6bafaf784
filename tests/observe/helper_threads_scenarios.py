"""The scenarios of test_helper_threads.py: `python helper_threads_scenarios.py NAME` runs one."""

# Each scenario imports its modules itself, so that as few as possible are imported before.

from __future__ import annotations

import sys
import threading

first = threading.get_ident()
imported = []


class Recorder:
    def find_spec(name, path=None, target=None):
        if threading.get_ident() != first:
            imported.append((threading.current_thread().name, name))


sys.meta_path.insert(0, Recorder)

import asyncio
import time

import goloop


def the_watchdog_imports_nothing_while_the_loop_is_blocked(limit: str) -> None:
    import logging

    told = []

    class Handler:
        level = 0

        def handle(self, record):
            told.append(record.getMessage())

    logging.getLogger("goloop").addHandler(Handler())

    async def main():
        if limit == "set":
            asyncio.get_running_loop().set_watchdog(0.05)
        await asyncio.sleep(0)
        while not told:
            pass
        while len(told) < 2:
            await asyncio.sleep(0.001)

    goloop.run(main())
    print(imported)


def lookup_threads_import_nothing() -> None:
    async def main():
        await asyncio.get_running_loop().getaddrinfo("localhost", 80)

    goloop.run(main())
    print(imported)


def introspection_thread_imports_nothing() -> None:
    import json
    import os

    from goloop.operations import introspection

    async def ask(what):
        path = introspection.address(os.getpid())
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(json.dumps({"ask": what}).encode() + b"\n")
        answer = json.loads(await reader.read())
        assert "error" not in answer, answer
        writer.close()

    async def main():
        await ask("tasks")
        await ask("top")

    goloop.run(main())
    print(imported)


def metrics_writer_thread_imports_nothing(folder: str) -> None:
    import os

    import goloop.prometheus

    goloop.run(asyncio.sleep(0))
    goloop.prometheus.Collector(folder, 0.01)
    end = time.monotonic() + 60
    while not any(name.endswith(".json") for name in os.listdir(folder)):
        assert time.monotonic() < end
        time.sleep(0.001)
    print(imported)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
