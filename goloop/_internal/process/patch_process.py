"""Puts a whole process on goloop: every loop whose kind the program leaves open.

The event loop policy does for programs that ask asyncio for a loop.  Servers choose among
the loops that are installed, and never ask; where their setting says "auto", or they have
none, they get goloop's here, by a function of theirs that is replaced after its import.
A program that names a loop gets the loop it names.

Processes that multiprocessing spawns begin with an object, in what they are told of their
parent, whose unpickling switches them.  A forked child has all of it already.  A program that
executes itself anew (gunicorn at USR2, Django's reloader) does it by way of
`python -m goloop` if it was started so.

Where loops ran in a process, and none was goloop's, it says so once at its end.
"""

from __future__ import annotations

import asyncio
import atexit
import mmap
import os
import signal
import sys

from .. import backend
from .after_import import after_import
from .policy import set_policy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

# How the loop is named to programs that have an option for it.
_OPTIONS = {
    "gunicorn": "with gunicorn: --worker-class goloop.workers.GoloopWorker",
    "hypercorn": "with hypercorn: --worker-class asyncio",
    "granian": "with granian: --loop auto",
    "uvicorn": "with uvicorn: --loop goloop:new_event_loop",
}

_switched = False
# Whether programs that execute themselves anew do so by `python -m goloop`.
_restarts = False
# The first loop that ran and wasn't goloop's, in words.
_other: str | None = None
# A byte that this process shares with those it forks: 1 once one of them has warned.
_warned: mmap.mmap | None = None


def switch(*, command: bool = False) -> None:
    """Switches this process, and those it will spawn; again does nothing.

    `command` is for the processes of `python -m goloop`.  Raises RuntimeError where asyncio has no
    policies any more.
    """
    global _switched, _restarts, _warned
    set_policy()
    if not backend.native:
        return
    if command and not _restarts:
        _restarts = True
        after_import("gunicorn.arbiter", _gunicorn_restart)
        after_import("django.utils.autoreload", _django_restart)
    if _switched:
        return
    _switched = True
    for name, action in _PROGRAMS.items():
        after_import(name, action)
    after_import("multiprocessing.spawn", _spawned_children)
    if command:
        _warned = mmap.mmap(-1, 1)
        _watch_loops()
        atexit.register(_warn_at_exit)
        after_import("multiprocessing.util", _at_exit_of_children)
        _at_exit_by_signal()


# ---- programs that choose a loop themselves ------------------------------------------------------


def _uvicorn(module: Any) -> None:
    """`--loop auto`, the default; uvicorn-worker's gunicorn worker asks for that too."""

    def auto_loop_factory(use_subprocess: bool = False) -> Callable[[], backend.Loop]:
        return backend.new_event_loop

    if hasattr(module, "auto_loop_setup"):  # before 0.36
        module.auto_loop_setup = lambda use_subprocess=False: set_policy()
        return
    module.auto_loop_factory  # noqa: B018  (an AttributeError where uvicorn has changed)
    module.auto_loop_factory = auto_loop_factory


def _granian(module: ModuleType) -> None:
    """`--loop auto`, the default."""

    def build() -> backend.Loop:
        loop = backend.new_event_loop()
        asyncio.set_event_loop(loop)
        return loop

    module.loops.register("auto")(build)


def _gunicorn(module: ModuleType) -> None:
    """gunicorn's own ASGI worker with `--asgi-loop auto`, the default."""
    worker: Any = module.ASGIWorker
    original = worker._setup_event_loop

    def _setup_event_loop(self: Any) -> None:
        if getattr(self.cfg, "asgi_loop", "auto") != "auto":
            original(self)
            return
        self.loop = backend.new_event_loop()
        asyncio.set_event_loop(self.loop)
        self.log.debug("Using goloop event loop")

    worker._setup_event_loop = _setup_event_loop


def _taskiq(module: Any) -> None:
    """A worker takes uvloop if it is installed, and asks asyncio otherwise."""
    module.uvloop = None


def _ray(module: Any) -> None:
    """Asynchronous actors: uvloop if it is installed, or asyncio's."""
    original = module.get_new_event_loop
    module.get_new_event_loop = backend.new_event_loop
    module.try_install_uvloop = set_policy
    # Its compiled half has taken the function, if it is there already.
    compiled = sys.modules.get("ray._raylet")
    if getattr(compiled, "get_new_event_loop", None) is original:
        vars(compiled)["get_new_event_loop"] = backend.new_event_loop


_PROGRAMS: dict[str, Callable[[ModuleType], None]] = {
    "uvicorn.loops.auto": _uvicorn,
    "granian._loops": _granian,
    "gunicorn.workers.gasgi": _gunicorn,
    "taskiq.cli.worker.run": _taskiq,
    "ray._private.async_compat": _ray,
}


# ---- children ------------------------------------------------------------------------------------


class _Begin:
    """Pickled, it is a call that switches the process in which it is unpickled."""

    def __init__(self, path: list[Any], command: bool) -> None:
        # Imports ignore entries of other types (paths of pathlib): multiprocessing passes them on.
        # A subclass of str might need a module that the child can't import yet.
        self.path = [str.__str__(entry) for entry in path if isinstance(entry, str)]
        self.command = command

    def __reduce__(self) -> tuple[Any, ...]:
        # The child has not got its parent's sys.path yet, by which goloop may be found.
        return exec, (_BEGIN, {"path": self.path, "command": self.command})


_BEGIN = """
import sys
before = sys.path[:]
sys.path[:] = path
try:
    from goloop._internal.process.patch_process import switch
    switch(command=command)
finally:
    sys.path[:] = before
"""


def _spawned_children(module: ModuleType) -> None:
    """multiprocessing's spawn and forkserver unpickle what their children are told of a parent."""
    original: Callable[[str], dict[str, Any]] = module.get_preparation_data

    def get_preparation_data(name: str) -> dict[str, Any]:
        data = original(name)
        data["goloop"] = _Begin(data["sys_path"], _restarts)
        return data

    module.get_preparation_data = get_preparation_data  # type: ignore[attr-defined]


def _anew(arguments: list[str]) -> list[str]:
    """`python OPTION... program` as `python OPTION... -m goloop program`."""
    at = 1
    while at < len(arguments) and arguments[at].startswith(("-W", "-X")):
        at += 1
    return [*arguments[:at], "-m", "goloop", *arguments[at:]]


def _gunicorn_restart(module: ModuleType) -> None:
    """At USR2, gunicorn executes sys.executable with sys.argv.

    That is a path, where it was begun by -m; run by this path, gunicorn finds modules of its own in
    the place of others (its `http`).
    """
    arbiter: Any = module.Arbiter
    original = arbiter.reexec
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    program = [] if spec is None else ["-m", spec.name.removesuffix(".__main__")]

    def reexec(self: Any) -> None:
        context = self.START_CTX
        arguments = [str(each) for each in context["args"]]
        if program and arguments[1:2] == sys.argv[:1]:
            arguments[1:2] = program
        self.START_CTX = {**context, "args": _anew(arguments)}
        try:
            original(self)
        finally:
            self.START_CTX = context

    arbiter.reexec = reexec


def _django_restart(module: ModuleType) -> None:
    """`manage.py runserver` runs itself in a child, anew whenever a file has changed."""
    original: Callable[[], list[Any]] = module.get_child_arguments

    def get_child_arguments() -> list[Any]:
        arguments = original()
        return _anew(arguments) if arguments[0] == sys.executable else arguments

    module.get_child_arguments = get_child_arguments  # type: ignore[attr-defined]


# ---- the warning at the end ----------------------------------------------------------------------


def _watch_loops() -> None:
    """Notes what loop other than goloop's runs: each says so to asyncio, by this function.

    `goloop doctor` wants to know all of them (doctor_recorder.py).
    """
    original = asyncio.events._set_running_loop
    doctor = bool(os.environ.get("GOLOOP_DOCTOR"))

    def _set_running_loop(loop: asyncio.AbstractEventLoop | None) -> None:
        global _other
        if loop is not None and _other is None and not isinstance(loop, backend.Loop):
            kind = type(loop)
            _other = f"{kind.__module__}.{kind.__qualname__}"
        if doctor and loop is not None:
            from ...operations import doctor_recorder

            doctor_recorder.note(loop, isinstance(loop, backend.Loop), _hint())
        original(loop)

    asyncio.events._set_running_loop = _set_running_loop
    asyncio._set_running_loop = _set_running_loop


def _at_exit_of_children(module: Any) -> None:
    """multiprocessing's children forget what was to be done at their exit, but for this."""
    module.register_after_fork(
        _warn_at_exit, lambda warn: module.Finalize(None, warn, exitpriority=0)
    )


def _at_exit_by_signal() -> None:
    """uvicorn ends in order, and then by the signal that asked for it, past atexit."""
    original = signal.raise_signal

    def raise_signal(signalnum: int, /) -> None:
        if signalnum in (signal.SIGINT, signal.SIGTERM) and (
            signal.getsignal(signalnum) is signal.SIG_DFL
        ):
            _warn_at_exit()
        original(signalnum)

    signal.raise_signal = raise_signal


def _warn_at_exit() -> None:
    if _other is None or _goloop_ran() or not _first_to_warn():
        return
    import warnings

    warnings.warn(
        f"no goloop loop ran in this process: the program chose {_other} itself. "
        f"Give it goloop.new_event_loop where it takes a loop factory{_hint()}",
        RuntimeWarning,
        stacklevel=2,
    )


def _hint() -> str:
    """How the loop is named to the program that runs, if its option is known."""
    hints = [hint for name, hint in _OPTIONS.items() if name in sys.modules]
    return f"; {hints[0]}" if hints else ""


def _goloop_ran() -> bool:
    from ..metrics.metrics import metrics

    return metrics().iterations > 0


def _first_to_warn() -> bool:
    """One process of several that were forked, and the first child of several that were spawned."""
    if "multiprocessing.process" in sys.modules:
        identity: tuple[int, ...] = (
            sys.modules["multiprocessing.process"].current_process()._identity
        )
        if identity and set(identity) != {1}:
            return False
    assert _warned is not None
    first = _warned[0] == 0
    _warned[0] = 1
    return first
