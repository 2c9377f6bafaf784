"""Makes a whole process use goloop, for every loop that the program does not choose itself.

The event loop policy covers programs that get their loop from asyncio. Servers choose among
installed loops without asking asyncio. If such a server's setting is "auto", or if it has none, it
gets goloop's loop: one of its functions is replaced when its module is imported. A program that
names a loop gets that loop.

In processes that multiprocessing spawns, goloop is installed by an object within their preparation
data, when it is unpickled. A forked child inherits everything. A program that re-executes itself
(gunicorn at USR2, Django's reloader) does so through `python -m goloop` if it was started that
way.

If loops ran in a process and none was goloop's, a warning is issued at its exit.
"""

from __future__ import annotations

import asyncio
import atexit
import mmap
import os
import signal
import sys
import warnings

from .. import backend
from .after_import import after_import
from .policy import set_policy

TYPE_CHECKING = False
if backend.native or TYPE_CHECKING:
    from ..observe.metrics import metrics
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

# How programs with an option for the loop select goloop.
_OPTIONS = {
    "gunicorn": "with gunicorn: --worker-class goloop.workers.GoloopWorker",
    "hypercorn": "with hypercorn: --worker-class asyncio",
    "granian": "with granian: --loop auto",
    "uvicorn": "with uvicorn: --loop goloop:new_event_loop",
}

_installed = False
# True if programs that re-execute themselves do so by `python -m goloop`.
_restarts_by_goloop = False
# The class name of the first loop that ran and was not goloop's.
_foreign_loop: str | None = None
# A byte shared with forked children: 1 after one of the processes has issued the warning.
_warning_issued: mmap.mmap | None = None


def use_goloop(*, command: bool = False) -> None:
    """Make this process, and those that it will spawn, use goloop; a second call does nothing.

    `command` is true for processes of `python -m goloop`. Raises RuntimeError if this Python's
    asyncio has no policies.
    """
    global _installed, _restarts_by_goloop, _warning_issued
    set_policy()
    if not backend.native:
        return
    if command and not _restarts_by_goloop:
        _restarts_by_goloop = True
        after_import("gunicorn.arbiter", _patch_gunicorn_restart)
        after_import("django.utils.autoreload", _patch_django_restart)
    if _installed:
        return
    _installed = True
    for name, action in _PATCHES.items():
        after_import(name, action)
    after_import("multiprocessing.spawn", _patch_spawn)
    if command:
        _warning_issued = mmap.mmap(-1, 1)
        _record_foreign_loops()
        atexit.register(_warn_at_exit)
        after_import("multiprocessing.util", _warn_at_exit_of_children)
        _warn_at_exit_by_signal()


# ---- programs that choose a loop without asyncio's policy ----------------------------------------


def _patch_uvicorn(module: Any) -> None:
    """Make uvicorn's `--loop auto`, the default, use goloop; uvicorn-worker uses that default.

    Raises AttributeError if uvicorn has no such function any more.
    """

    def auto_loop_factory(use_subprocess: bool = False) -> Callable[[], backend.Loop]:
        """Return goloop's loop factory; the parameter is part of uvicorn's interface."""
        return backend.new_event_loop

    if hasattr(module, "auto_loop_setup"):  # before 0.36
        module.auto_loop_setup = lambda use_subprocess=False: set_policy()
        return
    module.auto_loop_factory  # noqa: B018  (AttributeError if uvicorn has removed it)
    module.auto_loop_factory = auto_loop_factory


def _patch_granian(module: ModuleType) -> None:
    """Make granian's `--loop auto`, the default, use goloop's loop."""

    def build() -> backend.Loop:
        """Return a new goloop loop, set as the thread's loop."""
        loop = backend.new_event_loop()
        asyncio.set_event_loop(loop)
        return loop

    module.loops.register("auto")(build)


def _patch_gunicorn(module: ModuleType) -> None:
    """Patch gunicorn's own ASGI worker for `--asgi-loop auto`, the default."""
    worker: Any = module.ASGIWorker
    original = worker._setup_event_loop

    def _setup_event_loop(self: Any) -> None:
        """Create goloop's loop for a worker, unless gunicorn's option names another loop."""
        if getattr(self.cfg, "asgi_loop", "auto") != "auto":
            original(self)
            return
        self.loop = backend.new_event_loop()
        asyncio.set_event_loop(self.loop)
        self.log.debug("Using goloop event loop")

    worker._setup_event_loop = _setup_event_loop


def _patch_taskiq(module: Any) -> None:
    """Hide uvloop from taskiq's worker, which otherwise uses the policy."""
    module.uvloop = None


def _patch_ray(module: Any) -> None:
    """Patch the loop of Ray's asynchronous actors, which is uvloop's if installed, or asyncio's."""
    original = module.get_new_event_loop
    module.get_new_event_loop = backend.new_event_loop
    module.try_install_uvloop = set_policy
    # Ray's compiled module has its own reference, if it is imported already.
    compiled = sys.modules.get("ray._raylet")
    if getattr(compiled, "get_new_event_loop", None) is original:
        vars(compiled)["get_new_event_loop"] = backend.new_event_loop


_PATCHES: dict[str, Callable[[ModuleType], None]] = {
    "uvicorn.loops.auto": _patch_uvicorn,
    "granian._loops": _patch_granian,
    "gunicorn.workers.gasgi": _patch_gunicorn,
    "taskiq.cli.worker.run": _patch_taskiq,
    "ray._private.async_compat": _patch_ray,
}


# ---- children ------------------------------------------------------------------------------------


class _InstallOnUnpickle:
    """An object whose unpickling makes the process use goloop."""

    def __init__(self, path: list[Any], command: bool) -> None:
        """Store the child's sys.path, and whether `python -m goloop` started this process."""
        # The import system ignores entries of other types (pathlib), which multiprocessing passes
        # on. A subclass of str might need a module that the child cannot import yet.
        self.path = [str.__str__(entry) for entry in path if isinstance(entry, str)]
        self.command = command

    def __reduce__(self) -> tuple[Any, ...]:
        """Return the call that makes the unpickling process use goloop."""
        # The child does not have its parent's sys.path yet, which may be needed to import goloop.
        return exec, (_INSTALL_SOURCE, {"path": self.path, "command": self.command})


_INSTALL_SOURCE = """
import sys
before = sys.path[:]
sys.path[:] = path
try:
    from goloop._internal.process.patch_process import use_goloop
    use_goloop(command=command)
finally:
    sys.path[:] = before
"""


def _patch_spawn(module: ModuleType) -> None:
    """Make children that multiprocessing spawns use goloop, by an object in their start data."""
    original: Callable[[str], dict[str, Any]] = module.get_preparation_data

    def get_preparation_data(name: str) -> dict[str, Any]:
        """Return multiprocessing's data for a child, with an object that installs goloop there."""
        data = original(name)
        data["goloop"] = _InstallOnUnpickle(data["sys_path"], _restarts_by_goloop)
        return data

    module.get_preparation_data = get_preparation_data  # type: ignore[attr-defined]


def _with_goloop(arguments: list[str]) -> list[str]:
    """Return `python OPTION... -m goloop program` for `python OPTION... program`."""
    at = 1
    while at < len(arguments) and arguments[at].startswith(("-W", "-X")):
        at += 1
    return [*arguments[:at], "-m", "goloop", *arguments[at:]]


def _patch_gunicorn_restart(module: ModuleType) -> None:
    """Make gunicorn's re-execution at USR2, which runs sys.argv, start goloop again.

    If gunicorn was started by -m, sys.argv has the path of its module. Run by that path, gunicorn
    would import its own modules instead of others with the same name (its `http`).
    """
    arbiter: Any = module.Arbiter
    original = arbiter.reexec
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    program = [] if spec is None else ["-m", spec.name.removesuffix(".__main__")]

    def reexec(self: Any) -> None:
        """Call gunicorn's reexec() with a command line that starts goloop again."""
        context = self.START_CTX
        arguments = [str(each) for each in context["args"]]
        if program and arguments[1:2] == sys.argv[:1]:
            arguments[1:2] = program
        self.START_CTX = {**context, "args": _with_goloop(arguments)}
        try:
            original(self)
        finally:
            self.START_CTX = context

    arbiter.reexec = reexec


def _patch_django_restart(module: ModuleType) -> None:
    """Patch Django's reloader: `manage.py runserver` re-executes itself whenever a file changes."""
    original: Callable[[], list[Any]] = module.get_child_arguments

    def get_child_arguments() -> list[Any]:
        """Return Django's command line of the child, changed so that it starts goloop."""
        arguments = original()
        return _with_goloop(arguments) if arguments[0] == sys.executable else arguments

    module.get_child_arguments = get_child_arguments  # type: ignore[attr-defined]


# ---- the warning at the exit ---------------------------------------------------------------------


def _record_foreign_loops() -> None:
    """Record the first loop that runs and is not goloop's, by patching _set_running_loop().

    Every loop calls that function. `goloop doctor` records all of them (doctor_recorder.py).
    """
    original = asyncio.events._set_running_loop
    doctor: Any = None
    if os.environ.get("GOLOOP_DOCTOR"):
        from ...operations import doctor_recorder

        doctor = doctor_recorder

    def _set_running_loop(loop: asyncio.AbstractEventLoop | None) -> None:
        """Record the class of the first loop that is not goloop's, then call the original.

        For `goloop doctor` record every loop.
        """
        global _foreign_loop
        if loop is not None and _foreign_loop is None and not isinstance(loop, backend.Loop):
            kind = type(loop)
            _foreign_loop = f"{kind.__module__}.{kind.__qualname__}"
        if doctor is not None and loop is not None:
            doctor.record_loop(loop, isinstance(loop, backend.Loop), _hint())
        original(loop)

    asyncio.events._set_running_loop = _set_running_loop
    asyncio._set_running_loop = _set_running_loop


def _warn_at_exit_of_children(module: Any) -> None:
    """Register _warn_at_exit() in multiprocessing's children, which drop inherited atexit calls."""
    module.register_after_fork(
        _warn_at_exit, lambda warn: module.Finalize(None, warn, exitpriority=0)
    )


def _warn_at_exit_by_signal() -> None:
    """Patch signal.raise_signal(), by which uvicorn exits, without atexit functions."""
    original = signal.raise_signal

    def raise_signal(signalnum: int, /) -> None:
        """Raise the signal; issue the warning before if the signal ends the process."""
        if signalnum in (signal.SIGINT, signal.SIGTERM) and (
            signal.getsignal(signalnum) is signal.SIG_DFL
        ):
            _warn_at_exit()
        original(signalnum)

    signal.raise_signal = raise_signal


def _warn_at_exit() -> None:
    """Warn if loops ran in this process and none of them was goloop's."""
    if _foreign_loop is None or _goloop_ran() or not _claim_warning():
        return
    warnings.warn(
        f"goloop was not used: the program made its own loop ({_foreign_loop}). "
        f"Pass loop_factory=goloop.new_event_loop{_hint()}",
        RuntimeWarning,
        stacklevel=2,
    )


def _hint() -> str:
    """Return "; " and how the running program selects a loop; "" if its option is unknown."""
    hints = [hint for name, hint in _OPTIONS.items() if name in sys.modules]
    return f"; {hints[0]}" if hints else ""


def _goloop_ran() -> bool:
    """Return true if a goloop loop has run in this process."""
    return metrics().iterations > 0


def _claim_warning() -> bool:
    """Mark the warning as issued; return true if this process is the one that issues it.

    That is the first caller among forked processes, and multiprocessing's first child among
    spawned ones.
    """
    if "multiprocessing.process" in sys.modules:
        identity: tuple[int, ...] = (
            sys.modules["multiprocessing.process"].current_process()._identity
        )
        if identity and set(identity) != {1}:
            return False
    assert _warning_issued is not None
    first = _warning_issued[0] == 0
    _warning_issued[0] = 1
    return first
