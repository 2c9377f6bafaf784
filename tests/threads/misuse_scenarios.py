"""The scenarios of test_misuse.py: `python misuse_scenarios.py NAME` runs one."""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import os
import sys
import threading
import time

import goloop


def introspection() -> None:
    from goloop import watchdog
    from goloop.operations import snapshot

    faulthandler.enable()
    end = time.monotonic() + float(sys.argv[2])

    async def child(n):
        if n:
            return await child(n - 1)
        await asyncio.sleep(0)
        async for _ in steps():
            return 1
        return None

    async def steps():
        await asyncio.sleep(0)
        yield

    async def parent():
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(child(i)) for i in range(5)]
        return sum(task.result() for task in tasks)

    async def main():
        while time.monotonic() < end:
            assert sum(await asyncio.gather(parent(), parent(), parent())) == 15

    ran = []
    thread = threading.Thread(target=lambda: ran.append(goloop.run(main())))
    thread.start()
    seen = set()
    while thread.is_alive():
        for task in snapshot.describe_tasks():
            seen.update(name.rpartition(".")[2] for name, _, _ in task["stack"])
        snapshot.describe_process()
        for loop in snapshot._open_loops():
            watchdog._task_and_awaiters(loop)
    print(ran, sorted(seen & {"child", "parent", "main", "steps"}))


def a_thread_that_claims_to_run_the_loop() -> None:
    def references():
        def posts():
            for _ in range(40):
                kept = [loop.call_soon_threadsafe(int) for _ in range(1000)]
                loop._thread_id = threading.get_ident()
                kept.clear()
            loop.call_soon_threadsafe(loop.stop)

        thread = threading.Thread(target=posts)
        loop.call_soon(thread.start)
        loop.run_forever()
        thread.join()
        loop._thread_id = None
        gc.collect()
        return sys.getrefcount(loop)

    loop = goloop.new_event_loop()
    before = references()
    print({references() for _ in range(3)} == {before})
    loop.close()


def serve():
    """Start three daemon threads, each with a busy loop; return the loops."""
    ready, loops = threading.Barrier(4), []

    async def busy():
        loop = asyncio.get_running_loop()
        loops.append(loop)
        server = await loop.create_server(asyncio.Protocol, "127.0.0.1", 0)
        name = server.sockets[0].getsockname()
        transport, _ = await loop.create_connection(asyncio.Protocol, *name)
        ready.wait()
        while True:
            transport.write(b"x" * 100)
            await asyncio.sleep(0)

    for _ in range(3):
        threading.Thread(target=lambda: goloop.run(busy()), daemon=True).start()
    ready.wait()
    time.sleep(0.05)
    return loops


def a_process_ends_while_loops_run_in_daemon_threads() -> None:
    serve()
    print("end")


def a_child_that_is_forked_while_loops_run_has_loops_of_its_own() -> None:
    loops = serve()

    async def child():
        await asyncio.sleep(0.01)
        for loop in loops:
            repr(loop), loop.is_running(), loop.metrics
            try:
                loop.call_soon(print)
            except RuntimeError as error:
                assert "belongs to the parent process" in str(error), error
            else:
                raise AssertionError("a loop of the parent took a callback")

    for _ in range(10):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                goloop.run(child())
                gc.collect()
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(pid, 0)[1] == 0
    print("end")


if __name__ == "__main__":
    globals()[sys.argv[1]]()
