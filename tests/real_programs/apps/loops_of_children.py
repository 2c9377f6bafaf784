"""Children of multiprocessing, started by METHOD, and of a pool print their loops."""

import asyncio
import multiprocessing
import pathlib
import sys
from concurrent.futures import ProcessPoolExecutor


async def main():
    return repr(asyncio.get_running_loop())


def pooled():
    return asyncio.run(main())


def work(queue):
    queue.put(asyncio.run(main()))


if __name__ == "__main__":
    if sys.argv[1] == "spawn":  # forkserver itself can't pass them on
        # Imports ignore all but strings; the last is a name of bytes that are not UTF-8.
        sys.path += [pathlib.Path("/nowhere"), b"/nowhere", None, "/\udcff"]
    context = multiprocessing.get_context(sys.argv[1])
    queue = context.SimpleQueue()
    children = [context.Process(target=work, args=(queue,)) for _ in range(2)]
    for child in children:
        child.start()
    for _ in children:
        print("child", queue.get())
    for child in children:
        child.join()
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        print("child", pool.submit(pooled).result())
