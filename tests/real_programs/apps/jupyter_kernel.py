"""Drives a kernel on goloop: it is interrupted, asked for input, restarted, and shut down.

`python jupyter_kernel.py NAME` with jupyter_client's asynchronous client on goloop, with
`--blocking` with its synchronous one; the policy makes its loop.
"""

import asyncio
import inspect
import sys

from jupyter_client.manager import start_new_async_kernel, start_new_kernel
from loop_name import loop_name

import goloop

NAME = "import asyncio, time; from loop_name import loop_name; print(loop_name())"
COMPUTES = "print('go', flush=True); time.sleep(60)"
# The loop says `go`, so that it waits by then.
AWAITS = """
asyncio.get_running_loop().call_later(0.01, lambda: print("go", flush=True))
await asyncio.sleep(60)
"""


async def value(answer):
    """Return the result of a client's method, which may be awaitable."""
    return await answer if inspect.isawaitable(answer) else answer


async def execute(client, source, *, interrupt=None):
    """Run a cell: return how its execution ended, its output, and its requests."""
    printed, asked, interrupts = [], [], []

    def hear(message):
        if message["msg_type"] == "stream":
            text = message["content"]["text"]
            printed.append(text)
            if interrupt is not None and "go" in text:
                begun = interrupt()
                if inspect.isawaitable(begun):
                    interrupts.append(asyncio.ensure_future(begun))

    def answer(message):
        asked.append(message["content"]["prompt"])
        return client.input("an answer")

    reply = await value(
        client.execute_interactive(
            source, allow_stdin=True, output_hook=hear, stdin_hook=answer, timeout=30
        )
    )
    for each in interrupts:
        await each
    content = reply["content"]
    return content.get("ename", content["status"]), "".join(printed).split(), asked


async def drive(manager, client):
    print("loop:", await execute(client, NAME))
    for source in (COMPUTES, AWAITS):
        print("interrupted:", await execute(client, source, interrupt=manager.interrupt_kernel))
    print("asked:", await execute(client, "print(input('what? '))"))
    many = "for number in range(500): print(number, flush=True)"
    status, printed, _ = await execute(client, many)
    print("many:", status, printed == [str(number) for number in range(500)])
    await value(manager.restart_kernel())
    await value(client.wait_for_ready(timeout=30))
    print("restarted:", await execute(client, NAME))
    await value(manager.shutdown_kernel())
    print("alive:", await value(manager.is_alive()))


async def main():
    manager, client = await start_new_async_kernel(kernel_name=sys.argv[1])
    print(f"client: {loop_name()}")
    try:
        await drive(manager, client)
    finally:
        client.stop_channels()


def blocking():
    manager, client = start_new_kernel(kernel_name=sys.argv[1])
    coroutine = drive(manager, client)
    try:
        # Nothing in it waits: it runs without a loop.
        coroutine.send(None)
    except StopIteration:
        print("client: goloop.Loop" if goloop.metrics().iterations else "client: no goloop")
    finally:
        client.stop_channels()


if "--blocking" in sys.argv:
    blocking()
else:
    goloop.run(main())
