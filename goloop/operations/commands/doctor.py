"""The command `goloop doctor`: examines this machine, and the event loops of a program.

    goloop doctor                      examines this Python and this machine
    goloop doctor program.py ARG...    also runs the program, and lists the loops that ran in it

The program, which may also be `-m module`, runs in a child process, by `python -m goloop`.  Its
output goes to stderr, so that stdout has only the report.  The exit status is 0 without problems,
1 if the report has a problem, and 2 for a wrong command line.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import subprocess
import sys

from ..._internal import backend
from ..._internal.interpreter_options import interpreter_options

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

USAGE = """\
usage: python -m goloop doctor [--json] [program.py|-m module|-c command [arg...]]

Print a report about this Python and this machine: versions, the system calls by which goloop
waits for sockets, limits, OpenSSL, and problems with them.

With a program, doctor also runs it. When the program has ended (end a server with Ctrl-C), the
report lists the event loops that ran in its processes, and why each was chosen. The report goes
to stdout, the program's output to stderr.

  --json      print the report as one JSON object
  -h, --help  show this help

The exit status is 1 if the report has a problem, else 0.
"""

# The variables that goloop reads in a running program (docs/settings.md, "Running").
VARIABLES = (
    "GOLOOP_AIOFASTNET",
    "GOLOOP_BUSY_POLL",
    "GOLOOP_DOCTOR",
    "GOLOOP_EAGER_SENDS",
    "GOLOOP_INTROSPECT",
    "GOLOOP_PROFILE",
    "GOLOOP_SIM_REPLAY",
    "GOLOOP_SIM_TRACES",
    "GOLOOP_SLOW",
    "GOLOOP_TASKS",
    "GOLOOP_TLS",
    "GOLOOP_WATCHDOG",
    "GOLOOP_WATCHDOG_ABORT",
    "GOLOOP_WATCHDOG_STDERR",
)
# Variables of the Go runtime, the build and the tools, which are valid too.
_OTHER_VARIABLES = (
    "GOLOOP_AIOFASTNET",
    "GOLOOP_BENCH", "GOLOOP_DEBUG", "GOLOOP_FUZZ", "GOLOOP_GO", "GOLOOP_HOSTILE", "GOLOOP_PURE",
    "GOLOOP_PYTHONS", "GOLOOP_SANITIZE", "GOLOOP_STORM", "GOLOOP_TARGET", "GOLOOP_TEST",
    "GOLOOP_WERROR",
)  # fmt: skip

# Packages that choose a loop, or matter for support; the report has their versions.
_PACKAGES = (
    "uvloop", "uvicorn", "gunicorn", "hypercorn", "granian", "aiohttp", "aiofastnet", "anyio",
    "pytest-asyncio",
)  # fmt: skip

# Servers with an option for the loop: the option's names, its values of goloop's, and how the
# server gets goloop's loop.
_SERVERS: dict[str, tuple[tuple[str, ...], tuple[str, ...], str]] = {
    "uvicorn": (
        ("--loop",),
        ("goloop:new_event_loop", "goloop:Loop"),
        "pass --loop goloop:new_event_loop",
    ),
    "gunicorn": (
        ("-k", "--worker-class", "--asgi-loop"),
        (
            "goloop.workers.GoloopWorker",
            "goloop.uvicorn_worker.GoloopUvicornWorker",
            "goloop.web_worker.GoloopWebWorker",
        ),
        "pass --worker-class goloop.workers.GoloopWorker",
    ),
    "hypercorn": (
        ("-k", "--worker-class"),
        (),
        "run `python -m goloop -m hypercorn` without this option",
    ),
    "granian": (("--loop",), (), "run `python -m goloop -m granian` without this option"),
}

# Signals that normally end a server.
_END_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_MIN_FILES = 4096
_REPORT_FOLLOWS = (
    "goloop doctor: the report comes when the program ends (end a server with Ctrl-C)."
)


def main(arguments: list[str]) -> int:
    """Run `doctor`: print the report about this machine, and about a program, which is run.

    Returns 0, 1 if the report has a problem, or 2 for a wrong command line.
    """
    as_json = False
    while arguments and arguments[0] in ("--json", "-h", "--help"):
        if arguments[0] != "--json":
            print(USAGE, end="")
            return 0
        as_json, arguments = True, arguments[1:]
    if arguments and arguments[0].startswith("--"):
        print(f"goloop doctor: unknown option {arguments[0]}\n{USAGE}", end="", file=sys.stderr)
        return 2
    report = examine()
    if arguments:
        report["program"] = run_program(arguments)
    report["problems"] = list(_problems(report))
    report["notes"] = list(_notes(report))
    if as_json:
        import json

        print(json.dumps(report, indent=2, default=str))
    else:
        print("\n".join(_report_lines(report)))
    return 1 if report["problems"] else 0


# ---- the machine ---------------------------------------------------------------------------------


def examine() -> dict[str, Any]:
    """Return goloop.diagnostics(), and the limits, variables and packages of this process.

    A loop is run for the facts about the poller.
    """
    from ..._internal.observe.diagnostics import diagnostics

    facts = diagnostics()
    report: dict[str, Any] = {
        key: facts[key] for key in ("goloop", "native", "python", "platform", "executable")
    }
    report["gil"] = getattr(sys, "_is_gil_enabled", lambda: True)()
    with contextlib.suppress(AttributeError, ValueError, OSError):
        report["libc"] = os.confstr("CS_GNU_LIBC_VERSION")
    for key in ("reason", "tls", "tasks"):
        if key in facts:
            report[key] = facts[key]
    try:
        import ssl
    except ImportError as error:
        report["openssl"] = f"none: {error}"
    else:
        report["openssl"] = ssl.OPENSSL_VERSION
    report["loop"] = _loop_facts()
    report["limits"] = _limits()
    report["variables"] = {
        name: value for name, value in sorted(os.environ.items()) if name.startswith("GOLOOP_")
    }
    report["packages"] = _packages()
    return report


def _loop_facts() -> dict[str, Any]:
    """Run a loop, and return facts about it; if that fails, the only fact is "error"."""
    from ..doctor_recorder import name_of

    if not backend.native:
        return {"kind": name_of(backend.Loop)}
    try:
        with asyncio.Runner(loop_factory=backend.new_event_loop) as runner:
            found: dict[str, Any] = runner.run(_runtime_facts())
            return found
    except (ImportError, OSError, RuntimeError) as error:
        return {"error": f"{type(error).__name__}: {error}"}


async def _runtime_facts() -> dict[str, Any]:
    """Return facts about the running loop."""
    from ..._internal.observe.diagnostics import diagnostics

    runtime = diagnostics(asyncio.get_running_loop()).get("runtime", {})
    found = {"kind": "goloop.Loop"}
    found.update({key: runtime[key] for key in ("go", "poller") if key in runtime})
    return found


def _limits() -> dict[str, Any]:
    """Return the limits of this process by name: (soft, hard), with None for unlimited."""
    found: dict[str, Any] = {}
    try:
        import resource
    except ImportError:  # missing on some platforms
        return found
    for name, key in {
        "open_files": "RLIMIT_NOFILE",
        "address_space": "RLIMIT_AS",
        "threads": "RLIMIT_NPROC",
        "locked_memory": "RLIMIT_MEMLOCK",
        "file_size": "RLIMIT_FSIZE",
    }.items():
        with contextlib.suppress(AttributeError, ValueError, OSError):
            both = resource.getrlimit(getattr(resource, key))
            found[name] = [None if each == resource.RLIM_INFINITY else each for each in both]
    for name in ("pids.max", "memory.max", "cpu.max"):
        with contextlib.suppress(OSError), open(f"/sys/fs/cgroup/{name}") as file:
            found[f"cgroup_{name.replace('.', '_')}"] = file.read().strip()
    return found


def _packages() -> dict[str, str]:
    """Return the versions of the installed packages that matter for goloop."""
    from importlib import metadata

    found = {}
    for name in _PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


# ---- a program -----------------------------------------------------------------------------------


def run_program(arguments: list[str]) -> dict[str, Any]:
    """Run a program by `python -m goloop`; return its status, and the loops of its processes.

    The first line on stderr says when the report comes, because a server runs until it is ended.
    SIGTERM, SIGHUP and SIGQUIT are passed on to the program, and SIGINT is ignored, which the
    terminal sends to it, too. If this command ends in another way, the keeper ends the program.
    """
    import json

    from ..keeper import Keeper, add_process

    print(_REPORT_FOLLOWS, file=sys.stderr, flush=True)
    # -i would show a prompt.
    flags = [word for option in interpreter_options() if option != ("-i",) for word in option]
    with Keeper() as keeper, keeper.record() as file:
        sys.stdout.flush()
        child: subprocess.Popen[bytes] | None = None
        early: list[int] = []  # signals that came before the program was started

        def forward(number: int, frame: object) -> None:
            """Pass a signal on to the program."""
            if child is None:
                early.append(number)
            else:
                child.send_signal(number)

        before = {signal.SIGINT: signal.signal(signal.SIGINT, lambda number, frame: None)}
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            before[number] = signal.signal(number, forward)
        try:
            child = subprocess.Popen(
                [sys.executable, *flags, "-m", "goloop", *arguments],
                stdout=sys.stderr,
                env={**os.environ, "GOLOOP_DOCTOR": file.name},
            )
            add_process(file.name, child.pid)
            for each in early:
                child.send_signal(each)
            status = child.wait()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        loops = [json.loads(line) for line in file if line.startswith("{") and line.endswith("\n")]
    return {"arguments": arguments, "status": status, "loops": loops}


# ---- problems and notes --------------------------------------------------------------------------


def _problems(report: dict[str, Any]) -> Iterator[str]:
    """Yield a sentence for each problem in a report, such as a loop that is not goloop's."""
    if not report["native"]:
        yield f"goloop's own loop is not available, so asyncio's runs: {report['reason']}"
    if "error" in report["loop"]:
        yield f"a loop cannot be created or run: {report['loop']['error']}"
    for name in report["variables"]:
        if name not in VARIABLES and not name.startswith(_OTHER_VARIABLES):
            import difflib

            close = difflib.get_close_matches(name, VARIABLES, n=1)
            yield f"unknown variable {name}" + (f"; did you mean {close[0]}?" if close else "")
    program = report.get("program")
    if program is None:
        return
    if wrong := _wrong_option(program["arguments"]):
        yield wrong
    others = [each for each in program["loops"] if not each["is_goloop"]]
    for each in others:
        yield (
            f"{each['loop']} ran at {each['place']} instead of goloop's loop: pass "
            f"loop_factory=goloop.new_event_loop{each['hint']}"
        )
    if not program["loops"]:
        yield "no event loop ran in the program"
    if program["status"] not in (0, *(-number for number in _END_SIGNALS)):
        yield f"the program ended with status {program['status']}"


def _wrong_option(arguments: list[str]) -> str | None:
    """Return what is wrong with a server's option that names goloop; None if nothing is.

    `arguments` are the program with its arguments, as in `run_program()`.
    """
    at = arguments.index("-m") + 1 if "-m" in arguments[:-1] else 0
    server = os.path.basename(arguments[at]).partition(".")[0]
    names, accepted, remedy = _SERVERS.get(server, ((), (), ""))
    for word, following in itertools.pairwise([*arguments[at + 1 :], ""]):
        option, _, value = word.partition("=")
        value = value or following
        if option not in names or value in accepted:
            continue
        if value == "goloop" or value.startswith(("goloop.", "goloop:")):
            return f"{server} does not accept `{option} {value}`: {remedy}"
    return None


def _notes(report: dict[str, Any]) -> Iterator[str]:
    """Yield a sentence for each fact that may surprise, such as a refused system call."""
    if not report["native"]:
        return
    poller = report["loop"].get("poller", "")
    if poller.endswith("milliseconds"):
        yield (
            "a sandbox forbids epoll_pwait2 and timerfd_create: timers are rounded up to the "
            "next millisecond, as in asyncio"
        )
    if report.get("tasks", "").startswith("asyncio"):
        yield f"tasks are asyncio's own, which are slower: {report['tasks']}"
    if "directly" not in report.get("tls", "directly"):
        yield f"TLS uses Python's ssl module, which is slower: {report['tls']}"
    files = report["limits"].get("open_files")
    if files and files[0] is not None and files[0] < _MIN_FILES:
        yield (
            f"the limit of {files[0]} open files is low for a server: raise ulimit -n or "
            "LimitNOFILE="
        )
    if "uvloop" in report["packages"] and "program" not in report:
        yield (
            "uvloop is installed: servers that choose a loop themselves use it, unless they are "
            "started by `python -m goloop` or an option sets goloop.new_event_loop"
        )


# ---- as text -------------------------------------------------------------------------------------


def _report_lines(report: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of a report as text."""
    yield f"goloop {report['goloop']} on {report['python']}, {report['platform']}"
    loop = report["loop"]
    rows = {
        "executable": report["executable"],
        "C library": report.get("libc"),
        "loop": loop.get("kind"),
        "Go": loop.get("go"),
        "poller": loop.get("poller"),
        "tasks": report.get("tasks"),
        "TLS": report.get("tls"),
        "OpenSSL": report["openssl"],
        "GIL": "on" if report["gil"] else "off",
    }
    for name, limit in report["limits"].items():
        rows[name.replace("_", " ")] = limit if isinstance(limit, str) else _soft_and_hard(*limit)
    rows["variables"] = " ".join(f"{k}={v}" for k, v in report["variables"].items()) or "none"
    rows["packages"] = ", ".join(f"{k} {v}" for k, v in report["packages"].items()) or "none"
    for name, value in rows.items():
        if value is not None:
            yield f"  {name:<18} {value}"
    program = report.get("program")
    if program is not None:
        yield f"\nloops of `{' '.join(program['arguments'])}`, status {program['status']}"
        for each in program["loops"]:
            yield f"  {each['loop']} in process {each['pid']}"
            yield f"      run at {each['place']}"
            yield f"      {each['why']}"
    for title in ("problems", "notes"):
        if report[title]:
            yield f"\n{title}"
            yield from (f"  - {each}" for each in report[title])
    if not report["problems"]:
        yield "\nno problems"


def _soft_and_hard(soft: int | None, hard: int | None) -> str:
    """Return a limit as text; equal values are shown once."""

    def shown(limit: int | None) -> str:
        """Return one number as text."""
        return "no limit" if limit is None else str(limit)

    return shown(soft) if soft == hard else f"{shown(soft)} (can be raised to {shown(hard)})"
