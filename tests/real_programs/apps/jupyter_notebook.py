"""Executes the notebook cells.ipynb in a kernel on goloop, with a client on goloop."""

import sys
from pathlib import Path

import nbformat
from loop_name import loop_name
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

import goloop


async def main():
    print(f"client: {loop_name()}")
    notebook = nbformat.read(Path(__file__).with_name("cells.ipynb"), as_version=4)
    client = NotebookClient(notebook, kernel_name=sys.argv[1], timeout=30)
    try:
        await client.async_execute()
    except CellExecutionError as error:
        print("cell fails:", error.ename)
    for cell in notebook.cells:
        if "time.sleep" in cell.source:
            print("a long cell says:", cell.outputs)
        for output in cell.outputs:
            print(output.get("text") or output.get("data", {}).get("text/plain") or "")


goloop.run(main())
