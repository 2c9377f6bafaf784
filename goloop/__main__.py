"""python -m goloop: runs programs on goloop, and shows what goloop runs on.

    python -m goloop                     prints goloop.diagnostics() with a fresh loop
    python -m goloop program.py ARG...   runs a program
    python -m goloop -m module ARG...    runs a module
    python -m goloop -c command ARG...   runs a command
    python -m goloop - ARG...            runs what standard input has
    python -m goloop doctor [PROGRAM]    examines the machine, and which loops a program runs on
    python -m goloop ps PID              lists the tasks of a running program
    python -m goloop pstree PID          shows what awaits what in it
    python -m goloop top PID             shows what its loops do, second by second
    python -m goloop profile PID         shows who has its loops' time, by task and line
    python -m goloop slow PID            shows its last slow iterations
    python -m goloop export              serves the figures of all processes to Prometheus
    python -m goloop trace PID           writes down what its loops do, event by event
    python -m goloop help [COMMAND]      shows how to use all that

The program is run as Python itself would run it, with Python's own options before it, but
for its event loops: see patch_process.py.  A program that names its loop itself
(loop_factory=...) gets what it names.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

USAGE = """\
usage: python -m goloop                      show diagnostics
       python -m goloop [option] program.py|directory|file.zip|- [arg...]
       python -m goloop [option] -m module [arg...]
       python -m goloop [option] -c command [arg...]
                                             run a program on goloop; the options are Python's
       python -m goloop doctor [program...]  examine this machine, and which loops a program runs on
       python -m goloop ps PID               list the tasks of a running program
       python -m goloop pstree PID           show what awaits what in it
       python -m goloop top PID|--all        show what its loops do, second by second
       python -m goloop profile PID          show who has its loops' time, by task and line
       python -m goloop slow PID             show its last slow iterations
       python -m goloop export               serve the figures of all processes to Prometheus
       python -m goloop trace PID            write down what its loops do, event by event
       python -m goloop help [command]       show more
       python -m goloop --version
"""
HELP = """
The command `goloop` does the same as `python -m goloop`.

A program runs as Python runs it; where it leaves the choice of its event loop to asyncio or to
a server (uvicorn, gunicorn, hypercorn, granian), the loop is goloop's. Children that
multiprocessing starts are switched, too.

  goloop program.py --its-own-option
  goloop -m uvicorn app:app --workers 2
  goloop -X dev -m pytest tests

Which loop ran, and why?

  goloop doctor -m uvicorn app:app

What does a running program do? Start it with GOLOOP_INTROSPECT=1, then

  goloop top 4711
  goloop profile 4711
"""
COMMANDS = ("doctor", "export", "help", "profile", "ps", "pstree", "slow", "top", "trace")


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
        return _printed(show_diagnostics)
    if arguments[0] in ("-h", "--help"):
        return _printed(lambda: print(USAGE, HELP, sep="", end=""))
    if arguments[0] in ("-V", "--version"):
        from . import __version__

        return _printed(lambda: print(f"goloop {__version__}"))
    if not os.path.exists(arguments[0]) and arguments[0] in COMMANDS:
        return _printed(lambda: _run_command(arguments[0], arguments[1:]))
    if meant := _meant(arguments[0]):
        print(f"goloop: {meant}", file=sys.stderr)
        return 2
    from ._internal.process import program

    usage = USAGE
    try:
        program.run(arguments)
    except program.BadOption as error:
        print(f"goloop: {error}\n{usage}", end="", file=sys.stderr)
        return 2
    return 0


def _printed(show: Callable[[], int | None]) -> int:
    """Runs what prints, and returns its status: 0 where a pager, or head, reads no further."""
    try:
        try:
            return show() or 0
        finally:
            for stream in (sys.stdout, sys.stderr):
                if stream is not None:
                    stream.flush()
    except BrokenPipeError:
        if not [number for number in (1, 2) if _ends_unread(number)]:
            raise  # of another connection
        return 0


def _ends_unread(number: int) -> bool:
    """Whether that is a pipe without a reader.

    Then it becomes /dev/null: the interpreter would complain of the last flush.
    """
    import select

    poll = select.poll()
    poll.register(number, 0)
    ends = any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0))
    if ends:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, number)
        os.close(nowhere)
    return ends


def _run_command(name: str, arguments: list[str]) -> int:
    if name == "help":
        if not arguments or arguments[0] == "help":
            return main(["--help"])
        if arguments[0] not in COMMANDS:
            print(f"goloop: there is no command {arguments[0]!r}\n{USAGE}", end="", file=sys.stderr)
            return 2
        name, arguments = arguments[0], ["--help"]
    if name == "doctor":
        from .operations.commands import doctor

        return doctor.main(arguments)
    if name == "top":
        from .operations.commands import top

        return top.main(arguments)
    if name == "export":
        from .operations.commands import export

        return export.main(arguments)
    if name == "profile":
        from .operations.commands import profile

        return profile.main(arguments)
    if name == "slow":
        from .operations.commands import profile

        return profile.slow_main(arguments)
    if name == "trace":
        from .operations.commands import trace

        return trace.main(arguments)
    from .operations.commands import client

    return client.main(name, arguments)


def _meant(word: str) -> str | None:
    """A sentence about a first word that is neither an option, nor a command, nor a file."""
    if word.startswith("-") or not word.replace(".", "").isidentifier() or os.path.exists(word):
        return None
    if os.path.exists(f"{word}.py"):
        return f"there is no file {word!r}; did you mean {word}.py?"
    import difflib
    import importlib.util

    if close := difflib.get_close_matches(word, COMMANDS, n=1):
        return f"there is no file and no command {word!r}; did you mean {close[0]!r}?"
    top = word.partition(".")[0]
    if top and importlib.util.find_spec(top) is not None:
        return f"there is no file {word!r}; to run the module: goloop -m {word}"
    return None


def command() -> int:
    """The console script `goloop`."""
    return main(sys.argv[1:])


def _end(status: int) -> None:
    if status:
        sys.exit(status)


if __name__ == "__main__":
    # After a program has run, this module is the program's: no name of it is looked up any more.
    _end(command())
