"""python -m goloop: runs programs on goloop, and tells what goloop runs on.

    python -m goloop                     prints goloop.diagnostics() with a fresh loop
    python -m goloop program.py ARG...   runs a program
    python -m goloop -m module ARG...    runs a module
    python -m goloop -c command ARG...   runs a command
    python -m goloop - ARG...            runs what standard input has
    python -m goloop ps PID              lists the tasks of a running program
    python -m goloop pstree PID          shows what awaits what in it
    python -m goloop top PID             shows what its loops do, second by second

The program is run as Python itself would run it, with Python's own options before it, but
for its event loops: see switching.py.  A program that names its loop itself
(loop_factory=...) gets what it names.
"""

from __future__ import annotations

import os
import sys

USAGE = """\
usage: python -m goloop                      show diagnostics
       python -m goloop [option] program.py|directory|file.zip|- [arg...]
       python -m goloop [option] -m module [arg...]
       python -m goloop [option] -c command [arg...]
                                             run a program on goloop; the options are Python's
       python -m goloop ps PID               list the tasks of a running program
       python -m goloop pstree PID           show what awaits what in it
       python -m goloop top PID|--all        show what its loops do, second by second
       python -m goloop --version
"""


def show_diagnostics() -> None:
    """Prints the facts as JSON."""
    import json

    from . import diagnostics, new_event_loop

    loop = new_event_loop()
    try:
        print(json.dumps(diagnostics(loop), indent=2, default=str))
    finally:
        loop.close()


def main(arguments: list[str]) -> int:
    """Returns the exit status; a program that is run may raise SystemExit."""
    if not arguments:
        show_diagnostics()
    elif arguments[0] in ("-h", "--help"):
        print(USAGE, end="")
    elif arguments[0] in ("-V", "--version"):
        from . import __version__

        print(f"goloop {__version__}")
    elif arguments[0] in ("ps", "pstree") and not os.path.exists(arguments[0]):
        from ._internal.top import inspecting

        return inspecting.main(arguments[0], arguments[1:])
    elif arguments[0] == "top" and not os.path.exists(arguments[0]):
        from ._internal.top import top

        return top.main(arguments[1:])
    else:
        from ._internal.process import program

        usage = USAGE
        try:
            program.run(arguments)
        except program.BadOption as error:
            print(f"goloop: {error}\n{usage}", end="", file=sys.stderr)
            return 2
    return 0


def command() -> int:
    """The console script `goloop`."""
    return main(sys.argv[1:])


def _end(status: int) -> None:
    if status:
        sys.exit(status)


if __name__ == "__main__":
    # After a program has run, this module is the program's: no name of it is looked up any more.
    _end(command())
