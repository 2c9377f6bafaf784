"""python -m goloop: runs programs with goloop, and the commands of goloop.

    python -m goloop                     prints goloop.diagnostics() with a new loop
    python -m goloop program.py ARG...   runs a program
    python -m goloop -m module ARG...    runs a module
    python -m goloop -c command ARG...   runs a command
    python -m goloop - ARG...            runs the program from standard input
    python -m goloop doctor [PROGRAM]    examines the machine, and the loops of a program
    python -m goloop compare PROGRAM     measures which event loop is faster for a program
    python -m goloop ps PID              lists the tasks of a running program
    python -m goloop pstree PID          shows its tasks as a tree, below the tasks that await them
    python -m goloop top PID             shows the activity of its loops every second
    python -m goloop profile PID         shows the time of its loops, by task and line
    python -m goloop slow PID            shows its last slow iterations
    python -m goloop export              serves the metrics of all processes to Prometheus
    python -m goloop trace PID           records the events of its loops
    python -m goloop help [COMMAND]      shows help

The program is run as Python itself would run it, with Python's own options before it, but with
goloop's event loops: see patch_process.py. A program that chooses its loop itself
(loop_factory=...) gets that loop.
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
                                             run a program with goloop; the options are Python's
       python -m goloop doctor [program...]  examine this machine, and the loops of a program
       python -m goloop compare program...   measure which event loop is faster for a program
       python -m goloop ps PID               list the tasks of the running process PID
       python -m goloop pstree PID           show its tasks as a tree, each below its awaiter
       python -m goloop top PID|--all        show the activity of its loops every second
       python -m goloop profile PID          show where its loops spend their time
       python -m goloop slow PID             show its last slow iterations
       python -m goloop export               serve the metrics of all processes to Prometheus
       python -m goloop trace PID            record every callback of its loops, for Perfetto
       python -m goloop help [command]       show help
       python -m goloop --version
"""
HELP = """
The command `goloop` is the same as `python -m goloop`.

`goloop program.py` runs a program as Python would, on goloop's event loop. Child processes that
multiprocessing starts get goloop's loop, too. If the program itself names another loop, for example
by uvicorn's option --loop, it gets that loop.

  goloop program.py --its-own-option
  goloop -m uvicorn app:app --workers 2
  goloop -X dev -m pytest tests

Find out which loop a program uses, and why:

  goloop doctor -m uvicorn app:app

Measure whether goloop is faster for your program:

  goloop compare -m uvicorn app:app --path /

Look into a running program. Start it with GOLOOP_INTROSPECT=1, and pass its process id:

  GOLOOP_INTROSPECT=1 goloop -m uvicorn app:app &
  goloop top $!
  goloop profile $!
"""
COMMANDS = (
    "compare", "doctor", "export", "help", "profile", "ps", "pstree", "slow", "top", "trace",
)  # fmt: skip


def show_diagnostics() -> None:
    """Print diagnostics as JSON."""
    import json

    from . import diagnostics, new_event_loop

    loop = new_event_loop()
    try:
        print(json.dumps(diagnostics(loop), indent=2, default=str))
    finally:
        loop.close()


def main(arguments: list[str]) -> int:
    """Run the command line and return the exit status; a program may raise SystemExit."""
    if not arguments:
        return _run_printer(show_diagnostics)
    if arguments[0] in ("-h", "--help"):
        return _run_printer(lambda: print(USAGE, HELP, sep="", end=""))
    if arguments[0] in ("-V", "--version"):
        from . import __version__

        return _run_printer(lambda: print(f"goloop {__version__}"))
    if not os.path.exists(arguments[0]) and arguments[0] in COMMANDS:
        return _run_printer(lambda: _run_command(arguments[0], arguments[1:]))
    if suggestion := _suggestion(arguments[0]):
        print(f"goloop: {suggestion}", file=sys.stderr)
        return 2
    from ._internal.interpreter_options import BadOption
    from ._internal.process import program

    usage = USAGE
    try:
        program.run(arguments)
    except BadOption as error:
        print(f"goloop: {error}\n{usage}", end="", file=sys.stderr)
        return 2
    return 0


def _run_printer(show: Callable[[], int | None]) -> int:
    """Call `show` and return its status, or 0 if the reader of its output (head) has closed it."""
    try:
        try:
            return show() or 0
        finally:
            for stream in (sys.stdout, sys.stderr):
                if stream is not None:
                    stream.flush()
    except BrokenPipeError:
        if not [number for number in (1, 2) if _discard_unread_pipe(number)]:
            raise  # the broken pipe is another one, not stdout or stderr
        return 0


def _discard_unread_pipe(number: int) -> bool:
    """Replace the fd by /dev/null if it is a pipe without a reader; return true if it was one.

    Without that the interpreter would report an error when it flushes the stream at its exit.
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
    """Run one of COMMANDS and return its exit status."""
    if name == "help":
        if not arguments or arguments[0] == "help":
            return main(["--help"])
        if arguments[0] not in COMMANDS:
            print(f"goloop: there is no command {arguments[0]!r}\n{USAGE}", end="", file=sys.stderr)
            return 2
        name, arguments = arguments[0], ["--help"]
    from .operations.commands.terminal import substitute_unencodable

    substitute_unencodable()
    if name == "doctor":
        from .operations.commands import doctor

        return doctor.main(arguments)
    if name == "compare":
        from .operations.commands import compare

        return compare.main(arguments)
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


def _suggestion(word: str) -> str | None:
    """Return a suggestion for a first word that is neither an option nor a command nor a file.

    Return None for another word, and if nothing is similar.
    """
    if word.startswith("-") or not word.replace(".", "").isidentifier() or os.path.exists(word):
        return None
    if os.path.exists(f"{word}.py"):
        return f"there is no file {word!r}; did you mean {word}.py?"
    import difflib
    import importlib.util

    # A name with a dot, such as nofile.py, is a file or a module, and no misspelt command.
    if "." not in word and (close := difflib.get_close_matches(word, COMMANDS, n=1)):
        return f"there is no file and no command {word!r}; did you mean {close[0]!r}?"
    top = word.partition(".")[0]
    if top and importlib.util.find_spec(top) is not None:
        return f"there is no file {word!r}; to run the module: goloop -m {word}"
    return None


def command() -> int:
    """Run the console script `goloop`; return the exit status."""
    return main(sys.argv[1:])


def _exit_with(status: int) -> None:
    """Exit with the status unless it is 0."""
    if status:
        sys.exit(status)


if __name__ == "__main__":
    # After a program has run, this module's names are the program's: use none of them.
    _exit_with(command())
