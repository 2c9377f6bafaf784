"""The package's own face: run, install, the policy, diagnostics, the command line,
and that importing it loads no Go."""

from __future__ import annotations

import ast
import asyncio
import collections
import contextlib
import gc
import graphlib
import inspect
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ended
import pytest

import goloop
from goloop._internal.observe.diagnostics import diagnostics
from goloop._internal.process import policy

PROGRAMS = Path(__file__).with_name("programs")

ROOT = Path(__file__).resolve().parents[2]


def program(source: str, *flags: str) -> str:
    """Return the output of a program, which must succeed and print nothing on stderr."""
    done = ended.python(*flags, "-c", source, apart=True)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def imports(*, types: bool = False) -> dict[str, set[str]]:
    """The modules of goloop that each of its modules imports, within functions too.

    Imports that only type checkers see count with `types`.
    """
    found = {}
    for path in (ROOT / "goloop").rglob("*.py"):
        *package, module = path.relative_to(ROOT).with_suffix("").parts
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING" and not types:
                node.body = []
        names = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.level:
                base = [*package[: len(package) + 1 - node.level], *(node.module or "").split(".")]
                name = ".".join(filter(None, base))
                names |= {name, *(f"{name}.{each.name}" for each in node.names)}
        found[".".join([*package, module])] = names
    return found


def circles(graph: dict[str, set[str]]) -> list[set[str]]:
    """The groups of modules of which each imports all others, directly or through others."""
    reached: dict[str, set[str]] = {}
    for start in graph:
        seen: set[str] = set()
        left = [start]
        while left:
            new = graph[left.pop()] & graph.keys() - seen
            seen |= new
            left += new
        reached[start] = seen
    groups = [
        frozenset({other for other in seen if name in reached[other]})
        for name, seen in reached.items()
    ]
    return [set(group) for group in {*groups} if group]


# ---- import ---------------------------------------------------------------------


def test_modules_imported_by_the_extension_are_loaded_with_the_package() -> None:
    """PyInstaller finds the modules so, and no import can fail without descriptors or stack."""
    core = ROOT / "pybridge" / "core"
    text = "".join(path.read_text() for path in core.rglob("*.c"))
    text += (core / "support" / "callbacks.h").read_text()
    named = set(re.findall(r'(?:gl_import_attr\(|X\(\w+, |X\()"([\w.]+)", \\?\s*"\w+"', text))
    assert "goloop._internal.loop.descriptors" in named
    loaded = set(program("import goloop, sys; print(*sys.modules)").split())
    assert named <= loaded
    # A freezer sees Python's imports, but not those of the extension.
    imported = set().union(*imports().values())
    assert {each for each in named if each.startswith("goloop.")} <= imported


def test_no_modules_import_each_other() -> None:
    """Imports within functions count too; a reader finds the right one of twelve modules."""
    modules = imports()
    graphlib.TopologicalSorter(modules).prepare()  # raises CycleError, with the circle
    named = [name.rpartition(".") for name in modules]
    rooms = collections.Counter(room for room, _, module in named if module != "__init__")
    assert {room: files for room, files in rooms.items() if files > 12} == {}


# The loop's own import of the two packages that depend on it: within a function, and run in a
# program that `goloop doctor` has started.
HOOKS = {("goloop._internal.process.patch_process", "goloop.operations.doctor_recorder")}
# The modules that programs import, which only re-export names of the two packages.
FACES = {"goloop.__init__", "goloop.__main__", "goloop.otel", "goloop.prometheus"}


def test_the_loop_depends_neither_on_simulations_nor_on_tools_for_operators() -> None:
    apart = ("goloop.operations.", "goloop.testing.")
    modules = imports(types=True)
    found = {
        (name, each)
        for name, imported in modules.items()
        for each in imported & modules.keys()
        if each.startswith(apart) and not name.startswith(apart) and name not in FACES
    }
    assert found == HOOKS


# The files that connect the product to the simulator, and the simulator itself.
SIMULATOR = ("goloop/testing/", "netloop/simulated/")
SEAM = ("netloop/simulated_calls.go", "pybridge/golib/system")


def test_the_product_names_the_simulator_only_in_the_seam() -> None:
    """All other code asks goloop/_internal/system.py, or the calls below it in C and Go."""
    places = []
    for folder in ("goloop", "netloop", "pybridge", "timers", "transports"):
        for path in (ROOT / folder).rglob("*.*"):
            name = path.relative_to(ROOT).as_posix()
            if path.suffix not in {".py", ".pyi", ".c", ".h", ".go"}:
                continue
            if name.startswith((*SIMULATOR, *SEAM)) or name.endswith("_test.go"):
                continue
            lines = enumerate(path.read_text().splitlines(), 1)
            places += [f"{name}:{n}" for n, line in lines if "simulat" in line.lower()]
    assert places == []


def test_no_circle_of_three_or_more_modules() -> None:
    """Imports for types count too: a reader follows them as well."""
    assert [sorted(circle) for circle in circles(imports(types=True)) if len(circle) > 2] == []


def test_circles_finds_a_circle_through_other_modules() -> None:
    graph = {"a": {"b"}, "b": {"c", "d"}, "c": {"a"}, "d": {"other"}}
    assert circles(graph) == [{"a", "b", "c"}]


def test_import_runs_no_go() -> None:
    source = (PROGRAMS / "import_runs_no_go.py").read_text()
    assert program(source).split("\n") == ["1 unopened", "True first", ""]


def test_import_reads_no_sources() -> None:
    """Sources that are read would stay in linecache."""
    source = (PROGRAMS / "import_reads_no_sources.py").read_text()
    assert program(source) == "[] False\n"


def test_import_imports_nothing_but_asyncio_and_itself() -> None:
    source = (PROGRAMS / "import_imports_nothing_but_asyncio_and_itself.py").read_text()
    names = {name for name in program(source).split() if name.partition(".")[0] != "goloop"}
    # For look-ups: queue, and the codec of names, with stringprep and unicodedata. For metrics and
    # the watchdog: _json, and struct, which asyncio of 3.15 has not imported yet.
    assert names <= {
        *("__future__", "queue", "_queue", "struct", "_struct", "array"),
        *("encodings.idna", "encodings.punycode", "stringprep", "unicodedata"),
        "_json",
        *sys.builtin_module_names,
    }


# The modules that every program loads. Each takes 0.05 to 0.4 ms of every process's start. A loop
# must need none of the others, because it could not import them in each situation: a module that is
# not listed belongs to a tool or a class that the program itself asks for.
PLAIN = {
    "goloop": "_core _internal watchdog",
    "goloop._internal": "backend frames helper_threads loop net observe process records"
    " system tasks tls version",
    "goloop._internal.loop": "arg_errors base busy_poll debugging descriptors library loop running"
    " signals watchdog_settings",
    "goloop._internal.observe": "diagnostics flight_recorder histogram metric_registry metrics"
    " profile_formats profiling",
    "goloop._internal.net": "datagrams pipes resolver resolver_threads selector_transports"
    " sendfile server sockets stream_transport streams transport_info",
    "goloop._internal.process": "after_import compat policy runner subprocesses",
    "goloop._internal.tasks": "call_graph layout_check slow_path tasks",
    "goloop._internal.tls": "errors handshake_steps handshakes protocol",
}


def test_a_plain_program_loads_few_modules() -> None:
    source = (PROGRAMS / "a_plain_program_loads_few_modules.py").read_text()
    expected = {"goloop"} | {
        f"{at}.{name}" for at, names in PLAIN.items() for name in names.split()
    }
    optional = {"goloop._internal.tasks.task_set", "goloop._internal.lazy_imports"}
    assert set(program(source).split()) - optional == expected


def test_all_names_exist() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        for name in goloop.__all__:
            assert getattr(goloop, name) is not None
    missing = "nonsense"
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        getattr(goloop, missing)


# ---- run ------------------------------------------------------------------------


def test_run_uses_a_goloop_loop_and_closes_it() -> None:
    async def main() -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    loop = goloop.run(main())
    assert type(loop) is goloop.Loop
    assert loop.is_closed()


def test_run_gives_result_exception_and_debug() -> None:
    async def main(error: Exception | None) -> bool:
        if error:
            raise error
        return asyncio.get_running_loop().get_debug()

    assert goloop.run(main(None), debug=True) is True
    assert goloop.run(main(None), debug=False) is False
    with pytest.raises(KeyError, match="why"):
        goloop.run(main(KeyError("why")))


def test_run_takes_another_factory() -> None:
    class Mine(goloop.Loop):
        pass

    async def main() -> type:
        return type(asyncio.get_running_loop())

    assert goloop.run(main(), loop_factory=Mine) is Mine
    assert goloop.run(main(), loop_factory=asyncio.SelectorEventLoop) is asyncio.SelectorEventLoop


def test_run_has_the_signature_of_asyncio_run() -> None:
    ours = inspect.signature(goloop.run).parameters
    theirs = inspect.signature(asyncio.run).parameters
    assert set(theirs) <= set(ours)
    for name, parameter in theirs.items():
        assert ours[name].kind is parameter.kind
    assert ours["loop_factory"].default is goloop.new_event_loop


def test_run_refuses_within_a_running_loop() -> None:
    async def inner() -> None:
        pass

    async def main() -> None:
        coroutine = inner()
        with pytest.raises(RuntimeError, match="cannot be called from a running event loop"):
            goloop.run(coroutine)
        coroutine.close()

    goloop.run(main())


def test_run_refuses_other_than_coroutines() -> None:
    with pytest.raises((ValueError, TypeError), match="coroutine"):
        goloop.run(42)  # type: ignore[arg-type]


def test_run_cancels_remaining_tasks_and_closes_generators() -> None:
    seen = []

    async def background() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    async def numbers() -> Any:
        try:
            yield 1
        finally:
            seen.append("closed")

    async def main() -> None:
        task = asyncio.create_task(background())
        await asyncio.sleep(0)
        generator = numbers()
        await anext(generator)
        kept.extend([task, generator])

    kept: list[Any] = []
    goloop.run(main())
    assert seen == ["cancelled", "closed"]


def test_runner_and_isolated_test_case_take_the_factory() -> None:
    with asyncio.Runner(loop_factory=goloop.new_event_loop) as runner:
        assert type(runner.get_loop()) is goloop.Loop


@pytest.mark.parametrize(
    ("runner", "body"),
    [
        ("goloop.run", "await asyncio.sleep(60)"),
        ("goloop.run", "await loop.run_in_executor(None, done.wait)"),
        # asyncio.Runner's first SIGINT cancels the task, which a busy task never sees.
        ("goloop.new_event_loop().run_until_complete", "\n        while True: pass"),
        ("goloop.new_event_loop().run_until_complete", "await asyncio.sleep(60)"),
    ],
    ids=["asleep", "in an executor", "busy", "asleep without a runner"],
)
def test_ctrl_c_ends_a_run_with_keyboard_interrupt(runner: str, body: str) -> None:
    # Whether the signal comes before the state is reached or after makes no difference.
    source = f"""
import asyncio, os, signal, threading, goloop
done = threading.Event()
async def main():
    loop = asyncio.get_running_loop()
    threading.Thread(target=os.kill, args=(os.getpid(), signal.SIGINT)).start()
    try:
        {body}
    finally:
        done.set()
coroutine = main()
try:
    {runner}(coroutine)
except KeyboardInterrupt:
    print("interrupted")
"""
    assert program(source, "-W", "ignore::ResourceWarning") == "interrupted\n"


def test_keyboard_interrupt_without_runner_leaves_the_loop_usable() -> None:
    loop = goloop.new_event_loop()
    try:
        loop.call_soon(signal.raise_signal, signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            loop.run_forever()
        assert not loop.is_running()
        assert loop.run_until_complete(asyncio.sleep(0, "again")) == "again"
    finally:
        loop.close()


def test_a_signal_ends_the_sleep_of_a_loop_that_has_no_handler_for_it() -> None:
    loop = goloop.new_event_loop()
    previous = signal.signal(signal.SIGUSR1, lambda *_: loop.stop())
    try:
        # From a thread, while or just before the loop sleeps.
        thread = threading.Thread(target=os.kill, args=(os.getpid(), signal.SIGUSR1))
        loop.call_soon(thread.start)
        loop.run_forever()
        thread.join()
    finally:
        signal.signal(signal.SIGUSR1, previous)
        loop.close()


# ---- the wakeup fd ----------------------------------------------------------------


@pytest.fixture
def wakeup_fd() -> Iterator[int]:
    """A wakeup fd of the user's."""
    reading, writing = os.pipe2(os.O_NONBLOCK)
    signal.set_wakeup_fd(writing)
    yield writing
    signal.set_wakeup_fd(-1)
    os.close(reading)
    os.close(writing)


def current_wakeup_fd() -> int:
    """Looks without changing it."""
    fd = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(fd)
    return fd


async def running_wakeup_fd() -> int:
    return current_wakeup_fd()


def test_the_loop_has_a_wakeup_fd_only_while_it_runs() -> None:
    assert current_wakeup_fd() == -1
    assert goloop.run(running_wakeup_fd()) != -1
    assert current_wakeup_fd() == -1


def test_the_users_wakeup_fd_is_left_alone(wakeup_fd: int) -> None:
    assert goloop.run(running_wakeup_fd()) == wakeup_fd
    assert current_wakeup_fd() == wakeup_fd


def test_a_full_buffer_of_the_users_is_still_warned_of(
    wakeup_fd: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    warned: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", warned.append)
    previous = signal.signal(signal.SIGUSR1, lambda *_: None)
    try:
        goloop.run(asyncio.sleep(0))
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(wakeup_fd, bytes(4096))
        signal.raise_signal(signal.SIGUSR1)
        assert goloop.run(running_wakeup_fd()) == wakeup_fd
    finally:
        signal.signal(signal.SIGUSR1, previous)
    assert [report.exc_type for report in warned] == [BlockingIOError]


def test_closed_wakeup_fd_is_ignored() -> None:
    reading, writing = os.pipe2(os.O_NONBLOCK)
    signal.set_wakeup_fd(writing)
    os.close(reading)
    os.close(writing)
    try:
        assert goloop.run(asyncio.sleep(0, "ran")) == "ran"
    finally:
        signal.set_wakeup_fd(-1)


def test_a_wakeup_fd_that_the_user_sets_meanwhile_stays() -> None:
    reading, writing = os.pipe2(os.O_NONBLOCK)

    async def main() -> None:
        signal.set_wakeup_fd(writing)

    try:
        goloop.run(main())
        assert current_wakeup_fd() == writing
    finally:
        signal.set_wakeup_fd(-1)
        os.close(reading)
        os.close(writing)


def test_a_loop_outside_the_main_thread_sets_no_wakeup_fd() -> None:
    found = []
    thread = threading.Thread(target=lambda: found.append(goloop.run(running_in_thread())))
    thread.start()
    thread.join()
    assert found == [True]
    assert current_wakeup_fd() == -1


async def running_in_thread() -> bool:
    await asyncio.sleep(0)
    return True


def test_a_loop_runs_without_further_fds() -> None:
    source = (PROGRAMS / "a_loop_runs_without_further_fds.py").read_text()
    assert program(source) == "ran\n"


def test_a_signal_between_two_runs_is_delivered_in_the_next() -> None:
    loop = goloop.new_event_loop()
    seen: list[str] = []

    def handle() -> None:
        seen.append("usr1")
        loop.stop()

    try:
        loop.add_signal_handler(signal.SIGUSR1, handle)
        loop.run_until_complete(asyncio.sleep(0))
        signal.raise_signal(signal.SIGUSR1)
        loop.call_later(30, loop.stop)
        loop.run_forever()
        assert seen == ["usr1"]
    finally:
        loop.close()
    assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL
    assert current_wakeup_fd() == -1


def test_a_full_pipe_loses_no_kind_of_signal() -> None:
    loop = goloop.new_event_loop()
    seen: set[int] = set()
    try:
        loop.add_signal_handler(signal.SIGUSR1, seen.add, signal.SIGUSR1)
        loop.add_signal_handler(signal.SIGUSR2, seen.add, signal.SIGUSR2)
        writing = signal.set_wakeup_fd(-1)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        try:
            while True:
                os.write(writing, bytes([signal.SIGUSR1]) * 4096)
        except BlockingIOError:
            pass
        signal.raise_signal(signal.SIGUSR2)
        # The first iteration reads the pipe, the second calls the handlers.
        loop.run_until_complete(asyncio.sleep(0.001))
        assert seen == {signal.SIGUSR1, signal.SIGUSR2}
    finally:
        loop.close()


def test_a_forked_child_does_not_send_its_signals_to_the_parent() -> None:
    source = (PROGRAMS / "a_forked_child_does_not_send_its_signals_to_the_parent.py").read_text()
    assert program(source, "-W", "ignore::DeprecationWarning") == "[]\n"


# ---- policy and install --------------------------------------------------------------


@pytest.fixture
def restored_policy() -> Iterator[None]:
    """asyncio's default policy afterwards."""
    yield
    events: Any = asyncio.events
    getattr(events, "_set_event_loop_policy", events.set_event_loop_policy)(None)


def named(name: str) -> Any:
    """goloop.NAME, with the deprecation warning that belongs to the running version."""
    if sys.version_info >= (3, 14):
        message = f"'goloop.{name}' is deprecated and slated for removal in Python 3.16"
        with pytest.warns(DeprecationWarning, match=re.escape(message)) as record:
            found = getattr(goloop, name)
        assert record[0].filename == __file__
        return found
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return getattr(goloop, name)


def test_policy_makes_goloop_loops(restored_policy: None) -> None:
    made = named("EventLoopPolicy")()
    loop = made.new_event_loop()
    assert type(loop) is goloop.Loop
    loop.close()


def test_install_makes_asyncio_run_use_goloop(restored_policy: None) -> None:
    if sys.version_info >= (3, 14):
        with pytest.warns(DeprecationWarning, match=r"'goloop.install' is deprecated") as record:
            goloop.install()
        assert record[0].filename == __file__
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            goloop.install()

    async def main() -> type:
        return type(asyncio.get_running_loop())

    assert asyncio.run(main()) is goloop.Loop


def test_the_policy_is_asyncios_default_otherwise(restored_policy: None) -> None:
    policy.set_policy()
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            assert asyncio.get_event_loop() is loop
    finally:
        asyncio.set_event_loop(None)
        loop.close()


# ---- the loop as an object --------------------------------------------------------------


def test_loop_is_an_asyncio_loop_and_takes_no_arguments() -> None:
    loop = goloop.new_event_loop()
    try:
        assert isinstance(loop, asyncio.AbstractEventLoop)
        assert isinstance(loop, asyncio.BaseEventLoop)
        assert repr(loop) == "<goloop.Loop running=False closed=False debug=False>"
    finally:
        loop.close()
    assert repr(loop) == "<goloop.Loop running=False closed=True debug=False>"
    with pytest.raises(TypeError, match="takes 1 positional argument"):
        goloop.Loop(1)  # type: ignore[call-arg]


def test_loop_can_be_subclassed() -> None:
    class Counting(goloop.Loop):
        def __init__(self) -> None:
            super().__init__()
            self.calls = 0

        def call_soon(self, *args: Any, **kwargs: Any) -> Any:  # type: ignore[override]
            self.calls += 1
            return super().call_soon(*args, **kwargs)

    loop = Counting()
    try:
        loop.call_soon(loop.stop)
        loop.run_forever()
        assert loop.calls == 1
    finally:
        loop.close()


def test_unclosed_loop_warns_and_is_closed() -> None:
    loop = goloop.new_event_loop()
    before = len(os.listdir("/proc/self/fd"))
    gc.disable()  # for its own watches refer to it, as asyncio's do
    try:
        del loop
        with pytest.warns(ResourceWarning, match="unclosed event loop <goloop.Loop running=False"):
            gc.collect()
    finally:
        gc.enable()
    assert len(os.listdir("/proc/self/fd")) < before


def test_close_is_refused_while_running_and_may_be_repeated() -> None:
    async def main() -> None:
        with pytest.raises(RuntimeError, match="Cannot close a running event loop"):
            asyncio.get_running_loop().close()

    loop = goloop.new_event_loop()
    loop.run_until_complete(main())
    loop.close()
    loop.close()
    assert loop.is_closed()
    refused: list[Callable[[], object]] = [
        loop.run_forever,
        lambda: loop.call_soon(print),
        lambda: loop.call_later(1, print),
        lambda: loop.call_soon_threadsafe(print),
        lambda: loop.add_reader(0, print),
        lambda: loop.add_signal_handler(signal.SIGUSR1, print),
        lambda: loop.run_in_executor(None, print),
    ]
    for call in refused:
        with pytest.raises(RuntimeError, match="Event loop is closed"):
            call()


def test_a_forked_child_is_refused_its_parents_loop() -> None:
    source = (PROGRAMS / "a_forked_child_is_refused_its_parents_loop.py").read_text()
    lines = program(source, "-W", "ignore::DeprecationWarning").splitlines()
    assert "parent process" in lines[0]
    assert lines[1:] == ["a loop of its own", "the parent's goes on"]


# ---- diagnostics -------------------------------------------------------------------------


def test_diagnostics_include_a_loop_only_if_given() -> None:
    facts = goloop.diagnostics()
    assert facts["goloop"] == goloop.__version__
    assert "loop" not in facts
    loop = goloop.new_event_loop()
    try:
        loop.run_until_complete(asyncio.sleep(0))
        facts = diagnostics(loop)
        assert facts["loop"]["iterations"] > 0
        assert facts["library"]["mode"] in ("first", "restarted")
        json.dumps(facts)
    finally:
        loop.close()


def test_diagnostics_knows_the_running_loop() -> None:
    async def main() -> dict[str, Any]:
        return goloop.diagnostics()

    assert "loop" in goloop.run(main())


# ---- python -m goloop ----------------------------------------------------------------------


def test_command_line_runs_a_program(tmp_path: Path) -> None:
    path = tmp_path / "prog.py"
    shutil.copy(PROGRAMS / "main_of_a_package.py", path)
    done = ended.python("-m", "goloop", path, "-x", "--help", apart=True)
    assert done.stderr == ""
    assert done.stdout == f"goloop __main__ ['-x', '--help'] {tmp_path}\n"
    assert done.returncode == 3


def test_command_line_runs_a_module(tmp_path: Path) -> None:
    shutil.copy(PROGRAMS / "main_of_a_package.py", tmp_path / "prog.py")
    path = os.pathsep.join(filter(None, sys.path))
    words = ("-m", "goloop", "-m", "prog", "1")
    done = ended.python(*words, apart=True, cwd=tmp_path, PYTHONPATH=path)
    assert done.stderr == ""
    assert done.stdout == f"goloop __main__ ['1'] {tmp_path}\n"
    assert done.returncode == 3


def test_command_line_shows_diagnostics_version_and_usage() -> None:
    done = ended.python("-m", "goloop", apart=True)
    assert done.stderr == ""
    assert json.loads(done.stdout)["goloop"] == goloop.__version__
    assert ended.python("-m", "goloop", "--version").stdout == f"goloop {goloop.__version__}\n"
    assert ended.python("-m", "goloop", "--help").stdout.startswith("usage: python -m goloop")


def test_import_without_the_extension_names_the_way_out(tmp_path: Path) -> None:
    """tests/project/test_first_steps.py has the message beside an installed goloop."""
    source = Path(goloop.__file__).parent
    ignored = shutil.ignore_patterns("*.so", "__pycache__")
    shutil.copytree(source, tmp_path / "goloop", ignore=ignored)
    missing = "ImportError: goloop's C extension is not built for this Python in "

    def message() -> str:
        words = [sys.executable, "-S", "-c", "import goloop"]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 1
        return done.stderr.splitlines()[-1]

    installing = "Install goloop with this Python's pip"
    assert message() == f"{missing}{tmp_path / 'goloop'}. {installing}"
    (tmp_path / "build_backend" / "goloop_build").mkdir(parents=True)
    building = "Run `pip install -e .` there"
    assert message() == f"{missing}its source tree {tmp_path}. {building}"


SUBINTERPRETER = """
try:
    import _interpreters as interpreters  # 3.13
except ImportError:
    import _xxsubinterpreters as interpreters
import goloop

try_it = "try:\\n import goloop\\nexcept ImportError as error:\\n print(error, flush=True)"
for arguments in {arguments}:
    other = interpreters.create(*arguments)
    interpreters.run_string(other, try_it)
    interpreters.destroy(other)

async def main():
    return "the main interpreter goes on"

print(goloop.run(main()))
"""


def test_a_subinterpreter_is_refused() -> None:
    """Isolated ones by CPython from 3.12 on, those of the old kind by goloop."""
    legacy = "subinterpreter: run the loop in the main interpreter"
    if sys.version_info < (3, 12):
        arguments, expected = "[()]", [legacy]
    elif sys.version_info < (3, 13):
        arguments, expected = "[()]", ["does not support loading in subinterpreters"]
    elif sysconfig.get_config_var("Py_GIL_DISABLED"):
        # CPython refuses it in those of the old kind, too.
        arguments = "[(), ('legacy',)]"
        expected = ["does not support loading in subinterpreters"] * 2
    else:
        arguments = "[(), ('legacy',)]"
        expected = ["does not support loading in subinterpreters", legacy]
    done = ended.python("-c", SUBINTERPRETER.replace("{arguments}", arguments), apart=True)
    assert done.returncode == 0, done.stderr
    *refused, last = done.stdout.splitlines()
    assert len(refused) == len(expected)
    for line, part in zip(refused, expected, strict=True):
        assert part in line
    assert last == "the main interpreter goes on"
