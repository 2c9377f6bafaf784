"""Runs a program on a chosen event loop: `python launch.py FACTORY RECORD CORES PROGRAM...`.

FACTORY is "module:function", CORES a list such as "0,1" or "-" for all. The program is a file or
`-m module`, with its arguments. Each process of it appends a line to the file RECORD when it makes
its first loop of FACTORY, "chosen", and when its first loop runs and is not one of them, "other",
with the loop's class, the CPU time of the process and the time.monotonic() of then, in seconds. The
first line is for the keeper, which ends the process with the command.

All loops are installed in the same way, and this file imports nothing of goloop, so that a process
on another loop does not have goloop's libraries.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import os
import runpy
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType
    from typing import Any

_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(__file__))))


_KEEPER = os.path.join(_ROOT, "goloop", "operations", "keeper.py")
_AFTER_IMPORT = os.path.join(_ROOT, "goloop", "_internal", "process", "after_import.py")


def arguments(factory: str, record: str, cores: Sequence[int]) -> list[str]:
    """Return the arguments of Python that run this file, before those of the program."""
    return [__file__, factory, record, ",".join(map(str, cores)) or "-"]


class _Chosen:
    """The chosen loop: its factory, and the loops that it has made in this process."""

    def __init__(self, factory: str, record: str) -> None:
        """Store the factory's name and the path of the record."""
        self.factory = factory
        self.record = record
        self._made: list[asyncio.AbstractEventLoop] = []
        # True while the factory is imported and called: goloop runs a loop to examine asyncio.
        self.makes = False

    def new_event_loop(self) -> Any:
        """Return a new loop of the factory, which is imported by the first call."""
        module, _, name = self.factory.partition(":")
        self.makes = True
        try:
            loop = getattr(importlib.import_module(module), name)()
        finally:
            self.makes = False
        if not self._made:
            self._write_record("chosen", loop)
        self._made.append(loop)
        return loop

    def check_running_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        """Append a line if the loop, which runs, was not made by the factory."""
        if not any(loop is each for each in self._made):
            self._write_record("other", loop)

    def _write_record(self, word: str, loop: asyncio.AbstractEventLoop) -> None:
        """Append a line to the record."""
        name = f"{type(loop).__module__}.{type(loop).__qualname__}"
        line = f"{word} {name} {time.process_time()} {time.monotonic()}\n"
        try:
            fd = os.open(self.record, os.O_WRONLY | os.O_APPEND)
        except FileNotFoundError:
            return  # the command has ended, or has ended the program
        try:
            os.write(fd, line.encode())
        finally:
            os.close(fd)


# ---- installing ----------------------------------------------------------------------------------


def use_loop(factory: str, record: str) -> None:
    """Make this process, and those that multiprocessing starts for it, use the factory's loops."""
    chosen = _Chosen(factory, record)
    _make_asyncio_use(chosen)
    _check_first_loop(chosen)

    def set_auto(module: Any) -> None:
        """Replace uvicorn's choice of `--loop auto`."""
        if hasattr(module, "auto_loop_setup"):  # before 0.36
            module.auto_loop_setup = lambda use_subprocess=False: _make_asyncio_use(chosen)
        else:
            module.auto_loop_factory = lambda use_subprocess=False: chosen.new_event_loop

    def set_granian(module: Any) -> None:
        """Replace granian's choice of `--loop auto`."""

        def build() -> Any:
            """Return a new loop, set as the thread's loop."""
            loop = chosen.new_event_loop()
            asyncio.set_event_loop(loop)
            return loop

        module.loops.register("auto")(build)

    def set_gunicorn(module: Any) -> None:
        """Replace the choice of gunicorn's own ASGI worker, unless an option names a loop."""
        original = module.ASGIWorker._setup_event_loop

        def _setup_event_loop(worker: Any) -> None:
            """Create the loop of a worker."""
            if getattr(worker.cfg, "asgi_loop", "auto") != "auto":
                original(worker)
                return
            worker.loop = chosen.new_event_loop()
            asyncio.set_event_loop(worker.loop)

        module.ASGIWorker._setup_event_loop = _setup_event_loop

    def set_spawn(module: Any) -> None:
        """Make processes that multiprocessing starts call use_loop(), too."""
        original = module.get_preparation_data

        def get_preparation_data(name: str) -> Any:
            """Return multiprocessing's data with an object that calls use_loop()."""
            return {**original(name), "goloop_compare": _UseOnUnpickle(factory, record)}

        module.get_preparation_data = get_preparation_data

    after_import = _load(_AFTER_IMPORT).after_import
    after_import("uvicorn.loops.auto", set_auto)
    after_import("granian._loops", set_granian)
    after_import("gunicorn.workers.gasgi", set_gunicorn)
    after_import("multiprocessing.spawn", set_spawn)


class _UseOnUnpickle:
    """An object whose unpickling calls use_loop()."""

    def __init__(self, factory: str, record: str) -> None:
        """Store the arguments of use_loop()."""
        self._arguments = factory, record

    def __reduce__(self) -> tuple[Any, ...]:
        """Return the call that loads this file and calls use_loop()."""
        source = "import runpy; runpy.run_path(path)['use_loop'](*arguments)"
        return exec, (source, {"path": __file__, "arguments": self._arguments})


def _make_asyncio_use(chosen: _Chosen) -> None:
    """Make asyncio.new_event_loop() and asyncio.run() use the chosen loop."""
    base: Any = None
    if sys.version_info < (3, 14):
        base = asyncio.DefaultEventLoopPolicy
    elif sys.platform != "win32":
        base = getattr(asyncio.unix_events, "_DefaultEventLoopPolicy", None)
    if base is None:  # asyncio has no policies from 3.16 on
        asyncio.new_event_loop = asyncio.events.new_event_loop = chosen.new_event_loop
        return

    class Policy(base):  # type: ignore[misc]
        """asyncio's default policy with the chosen loop."""

        def new_event_loop(self) -> Any:
            """Return a new loop."""
            return chosen.new_event_loop()

    events: Any = asyncio.events
    setter = getattr(events, "_set_event_loop_policy", None) or events.set_event_loop_policy
    setter(Policy())


def _check_first_loop(chosen: _Chosen) -> None:
    """Check the first loop that runs, and then remove the hook."""
    original = asyncio.events._set_running_loop

    def _set_running_loop(loop: asyncio.AbstractEventLoop | None) -> None:
        """Check the first loop, then call the original."""
        installed = asyncio.events._set_running_loop is _set_running_loop
        if loop is not None and installed and not chosen.makes:
            asyncio.events._set_running_loop = asyncio._set_running_loop = original
            chosen.check_running_loop(loop)
        original(loop)

    asyncio.events._set_running_loop = asyncio._set_running_loop = _set_running_loop


def _load(path: str) -> ModuleType:
    """Return a module of goloop's that is loaded by its path, without the package goloop."""
    name = f"_goloop_compare_{os.path.basename(path).removesuffix('.py')}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# ---- the program ---------------------------------------------------------------------------------


def main() -> None:
    """Run the program of the command line."""
    factory, record, cores, *program = sys.argv[1:]
    if not _load(_KEEPER).add_process(record, os.getpid()):
        sys.exit("goloop compare has ended")
    if cores != "-":  # before any thread, which would keep its cores
        os.sched_setaffinity(0, [int(core) for core in cores.split(",")])
    use_loop(factory, record)
    if program[0] == "-m":
        sys.argv = program[1:]
        _set_path(os.getcwd())
        runpy.run_module(program[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = program
        _set_path(os.path.dirname(os.path.realpath(program[0])))
        runpy.run_path(program[0], run_name="__main__")


def _set_path(entry: str) -> None:
    """Replace this file's folder in sys.path by the program's, and make goloop importable."""
    if not sys.flags.safe_path:
        sys.path[0] = entry
    if importlib.util.find_spec("goloop") is None:
        sys.path.append(_ROOT)


if __name__ == "__main__":
    main()
