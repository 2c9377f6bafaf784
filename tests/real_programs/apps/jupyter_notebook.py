"""Executes a notebook in a kernel on goloop, with a client on goloop."""

import asyncio
import sys

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

import goloop

LOOP = """
import asyncio
def loop_name(loop):
    return f"{type(loop).__module__}.{type(loop).__qualname__}"
print(loop_name(asyncio.get_running_loop()))
"""

AWAITS = """
async def echo(reader, writer):
    writer.write((await reader.readline()).upper())
    writer.close()

server = await asyncio.start_server(echo, "127.0.0.1", 0)
reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
writer.write(b"a line\\n")
print((await reader.readline()).decode())
writer.close()
server.close()
child = await asyncio.create_subprocess_exec("echo", "a child", stdout=-1)
print((await child.communicate())[0].decode())
"""

# A task outlives its cell, and runs while the kernel waits for the next.
TASK = "task = asyncio.create_task(asyncio.sleep(0.05, 'the task is done'))"
LATER = "await task"

# The kernel's own threads have loops too.
THREADS = """
import threading
for thread in threading.enumerate():
    if loop := getattr(thread, "io_loop", None):
        print(thread.name, loop_name(loop.asyncio_loop))
"""

# Longer than the watchdog's limit, which the kernel's environment switches off.
COMPUTES = "import time; time.sleep(1.2)"

MAGICS = "%%bash\necho from bash"

NEST = """
try:
    import nest_asyncio2
except ImportError:
    print("refused: it is not installed")
else:
    try:
        nest_asyncio2.apply()
    except ValueError as error:
        print("refused:", error)
"""
STILL = "print('still', loop_name(asyncio.get_running_loop()), await asyncio.sleep(0, 'works'))"

FAILS = "await asyncio.sleep(0)\n1 / 0"


async def main():
    kind = type(asyncio.get_running_loop())
    print(f"client: {kind.__module__}.{kind.__qualname__}")
    cells = [LOOP, AWAITS, TASK, LATER, THREADS, COMPUTES, MAGICS, NEST, STILL, FAILS]
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(source) for source in cells]
    )
    client = NotebookClient(notebook, kernel_name=sys.argv[1], timeout=30)
    try:
        await client.async_execute()
    except CellExecutionError as error:
        print("cell fails:", error.ename)
    for cell in notebook.cells:
        if cell.source == COMPUTES:
            print("a long cell says:", cell.outputs)
        for output in cell.outputs:
            print(output.get("text") or output.get("data", {}).get("text/plain") or "")


goloop.run(main())
