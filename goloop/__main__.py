"""python -m goloop: runs programs on goloop, and tells what goloop runs on.

    python -m goloop                     prints goloop.diagnostics() with a fresh loop
    python -m goloop program.py ARG...   runs a program
    python -m goloop -m module ARG...    runs a module
    python -m goloop ps PID              lists the tasks of a running program
    python -m goloop pstree PID          shows what awaits what in it
    python -m goloop top PID             shows what its loops do, second by second

The program is run as Python itself would run it, but for the event loop policy:
asyncio.run() and asyncio.new_event_loop() give it goloop's loops.  A program that
names its loop itself (loop_factory=...) gets what it names.
"""

from __future__ import annotations

import json
import os
import runpy
import sys

from . import new_event_loop
from ._internal.diagnostics import diagnostics
from ._internal.policy import set_policy
from ._internal.version import __version__

USAGE = """\
usage: python -m goloop                      show diagnostics
       python -m goloop program.py [arg...]  run a program on goloop
       python -m goloop -m module [arg...]   run a module on goloop
       python -m goloop ps PID               list the tasks of a running program
       python -m goloop pstree PID           show what awaits what in it
       python -m goloop top PID|--all        show what its loops do, second by second
       python -m goloop --version
"""


def show_diagnostics() -> None:
    """Prints the facts as JSON."""
    loop = new_event_loop()
    try:
        print(json.dumps(diagnostics(loop), indent=2, default=str))
    finally:
        loop.close()


def run_module(name: str, arguments: list[str]) -> None:
    """As `python -m name arguments`."""
    # runpy replaces the first by the module's path.
    sys.argv = [name, *arguments]
    sys.path[0] = os.getcwd()
    set_policy()
    runpy.run_module(name, run_name="__main__", alter_sys=True)


def run_program(path: str, arguments: list[str]) -> None:
    """As `python path arguments`."""
    sys.argv = [path, *arguments]
    sys.path[0] = os.path.dirname(os.path.abspath(path))
    set_policy()
    runpy.run_path(path, run_name="__main__")


def main(arguments: list[str]) -> int:
    """Returns the exit status; a program that is run may raise SystemExit."""
    if not arguments:
        show_diagnostics()
    elif arguments[0] in ("-h", "--help"):
        print(USAGE, end="")
    elif arguments[0] in ("-V", "--version"):
        print(f"goloop {__version__}")
    elif arguments[0] == "-m" and len(arguments) > 1:
        run_module(arguments[1], arguments[2:])
    elif arguments[0] in ("ps", "pstree") and not os.path.exists(arguments[0]):
        from ._internal import inspecting

        return inspecting.main(arguments[0], arguments[1:])
    elif arguments[0] == "top" and not os.path.exists(arguments[0]):
        from ._internal import top

        return top.main(arguments[1:])
    elif arguments[0].startswith("-"):
        print(USAGE, end="", file=sys.stderr)
        return 2
    else:
        run_program(arguments[0], arguments[1:])
    return 0


def command() -> int:
    """The console script `goloop`."""
    return main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(command())
