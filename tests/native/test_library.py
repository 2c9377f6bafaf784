"""pybridge/core/runtime by itself: how a process comes by its Go runtime.

Each scenario is a program of its own, because its effects on a process (fork,
signal dispositions, a Go runtime) can't be undone.  It fails by an exception, a signal or the time
limit.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ended
import pytest

SCENARIOS = Path(__file__).with_name("library_scenarios.py")

Compile = Callable[..., Path]


TIME_LIMIT = 60


Run = Callable[..., subprocess.CompletedProcess[str]]
Passes = Callable[..., None]


@pytest.fixture
def run(shim: Path, golib: Path) -> Run:
    """Return a function that runs a scenario to any end."""

    def run(
        name: str, *arguments: object, shim: Path = shim, golib: Path | None = golib, **environ: str
    ) -> subprocess.CompletedProcess[str]:
        # GOLOOP_GOGC=1: the collector runs at every chance it gets.
        variables = {"GOLOOP_GOGC": "1", "SHIM": str(shim), **environ}
        if golib is not None:
            variables["GOLIB"] = str(golib)
        command = ("-X", "faulthandler=0", SCENARIOS, name, *arguments)
        return ended.python(*command, limit=TIME_LIMIT, apart=True, **variables)

    return run


@pytest.fixture
def passes(run: Run) -> Passes:
    """Runs a scenario that must end well."""

    def passes(name: str, *arguments: object, **words: Any) -> None:
        done = run(name, *arguments, **words)
        assert done.returncode == 0, f"ended with {done.returncode}\n{done.stdout}{done.stderr}"

    return passes


# ---- opening ---------------------------------------------------------------------


def test_loading_the_library_runs_no_go(passes: Passes) -> None:
    passes("loading_the_library_runs_no_go")


def test_first_open_is_remembered(passes: Passes) -> None:
    passes("first_open_is_remembered")


def test_neither_loading_nor_starting_leaves_a_descriptor(passes: Passes) -> None:
    passes("neither_loading_nor_starting_leaves_a_descriptor")


def test_starting_needs_no_descriptor(passes: Passes) -> None:
    passes("starting_needs_no_descriptor")


def test_missing_file_is_named(passes: Passes, tmp_path: Path) -> None:
    passes("missing_file_is_named", golib=tmp_path / "nowhere.so")


def test_a_later_call_tries_again(passes: Passes, golib: Path, tmp_path: Path) -> None:
    passes("a_later_call_tries_again", golib=tmp_path / "late.so", REAL=str(golib))


@pytest.mark.parametrize("content", [b"", b"text", b"\x7fELF" + b"\xff" * 400])
def test_invalid_library_file_is_named_in_the_error(
    passes: Passes, tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "other.so"
    path.write_bytes(content)
    passes("invalid_library_file_is_named_in_the_error", golib=path)


def test_missing_library_path_is_an_error(passes: Passes) -> None:
    passes("missing_library_path_is_an_error", golib=None)


@pytest.mark.parametrize("number", range(8))
def test_a_library_of_another_build_is_refused(
    passes: Passes, native: Path, compile_shared: Compile, number: int
) -> None:
    source = native / f"other{number}.c"
    source.write_text(
        f"""
#include "abi.h"
static gl_table table = {{.abi = GL_ABI}};
__attribute__((visibility("default"))) const gl_table *goloop_table(void);
const gl_table *goloop_table(void) {{ table.abi[{number}] = 77; return &table; }}
""",
        encoding="utf-8",
    )
    other = compile_shared(native / f"other{number}.so", source, "-Wno-missing-field-initializers")
    passes("a_library_of_another_build_is_refused", number, golib=other)


def test_a_library_without_the_table_is_refused(
    passes: Passes, native: Path, compile_shared: Compile
) -> None:
    source = native / "empty.c"
    source.write_text("int nothing(void); int nothing(void) { return 0; }", encoding="utf-8")
    other = compile_shared(native / "empty.so", source)
    passes("a_library_without_the_table_is_refused", golib=other)


def test_a_library_that_no_child_can_start_again_is_named_there(
    passes: Passes, native: Path, compile_shared: Compile
) -> None:
    source = native / "constructed.c"
    source.write_text(
        """
#include <stddef.h>
#include "abi.h"
static int32_t reactor_facts(int32_t reactor, char *out, int32_t cap)
{
    return reactor + (out != NULL) + cap;
}
static gl_table table = {.abi = GL_ABI, .reactor_facts = reactor_facts};
__attribute__((visibility("default"))) const gl_table *goloop_table(void);
const gl_table *goloop_table(void) { return &table; }
""",
        encoding="utf-8",
    )
    other = compile_shared(native / "constructed.so", source, "-Wno-missing-field-initializers")
    passes("a_library_that_no_child_can_start_again_is_named_there", golib=other)


# ---- fork ---------------------------------------------------------------------------


def test_child_has_a_runtime_of_its_own(passes: Passes) -> None:
    passes("child_has_a_runtime_of_its_own")


def test_child_of_a_parent_without_go_starts_the_library_first(passes: Passes) -> None:
    passes("child_of_a_parent_without_go_starts_the_library_first")


def test_each_of_nested_forks_has_a_living_runtime(passes: Passes) -> None:
    # More than the keys of threads would last for, and the room for thread-local variables.
    passes("each_of_nested_forks_has_a_living_runtime")


@pytest.mark.parametrize("fork", ["libc.fork", "libc._Fork", "raw_clone"])
def test_fork_without_python_hooks_gets_a_working_runtime(passes: Passes, fork: str) -> None:
    passes("fork_without_python_hooks_gets_a_working_runtime", fork)


@pytest.mark.parametrize("thread", ["first", "other"])
@pytest.mark.parametrize("ends", [True, False], ids=["ends", "goes on"])
def test_the_forking_thread_may_meet_the_new_runtime_late(
    passes: Passes, thread: str, ends: bool
) -> None:
    # State of the dead runtime in the thread would be mistaken for the new one's. A bare clone is
    # for a process with a single thread of Python.
    passes("the_forking_thread_may_meet_the_new_runtime_late", ends, thread)


def test_vfork_does_not_count_as_a_fork(passes: Passes) -> None:
    passes("vfork_does_not_count_as_a_fork")


def test_child_with_closed_descriptors_gets_a_working_runtime(passes: Passes) -> None:
    passes("child_with_closed_descriptors_gets_a_working_runtime")


def test_child_with_locked_memory_gets_a_working_runtime(passes: Passes) -> None:
    passes("child_with_locked_memory_gets_a_working_runtime")


@pytest.mark.parametrize("how", ["unlinked", "replaced"])
@pytest.mark.parametrize("started", [True, False], ids=["started", "loaded"])
def test_a_file_upgraded_on_disk_does_not_reach_the_process(
    passes: Passes, golib: Path, tmp_path: Path, how: str, started: bool
) -> None:
    mine = tmp_path / "libgoloop.so"
    shutil.copy(golib, mine)
    passes("a_file_upgraded_on_disk_does_not_reach_the_process", started, how, golib=mine)


# ---- signals ---------------------------------------------------------------------------


@pytest.mark.parametrize("python", [True, False], ids=["handlers", "defaults"])
def test_dispositions_and_mask_survive(passes: Passes, python: bool) -> None:
    passes("dispositions_and_mask_survive", python)


def test_mask_of_a_further_thread_survives(passes: Passes) -> None:
    passes("mask_of_a_further_thread_survives")


def test_go_threads_take_no_signal_of_the_process(passes: Passes) -> None:
    passes("go_threads_take_no_signal_of_the_process")


def test_a_crash_in_c_dies_of_its_signal(run: Run) -> None:
    done = run("crash_in_c")
    assert done.returncode == -signal.SIGSEGV
    assert "goroutine" not in done.stderr


def test_foreign_handler_gets_the_signal_stack(passes: Passes) -> None:
    # A handler of C's, installed without SA_ONSTACK, would run on a goroutine's stack.
    passes("foreign_handler_gets_the_signal_stack")


@pytest.mark.parametrize("fork", ["os.fork", "libc._Fork"])
def test_handler_in_the_dead_runtime_is_reset(passes: Passes, fork: str) -> None:
    passes("handler_in_the_dead_runtime_is_reset", fork)


# ---- threads and the end of a process ---------------------------------------------------


def test_forking_thread_is_unknown_to_the_dead_runtime(passes: Passes) -> None:
    # Or the end of the thread would call the dead runtime, by Go's key.
    passes("forking_thread_is_unknown_to_the_dead_runtime")


@pytest.mark.parametrize("opens", [True, False], ids=["opens", "idle"])
@pytest.mark.parametrize("threads", [True, False], ids=["threads", "alone"])
def test_child_forked_by_a_thread_ends_with_it(passes: Passes, opens: bool, threads: bool) -> None:
    # And not before the other threads of the child, which finish their work.
    passes("child_forked_by_a_thread_ends_with_it", opens, threads)


def test_forks_during_library_loading_survive(passes: Passes) -> None:
    # The lock of ld.so is held for good in many of these children; a restart takes none.
    passes("forks_during_library_loading_survive")
