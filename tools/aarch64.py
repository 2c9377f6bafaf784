"""The check `aarch64`: tests of the wheel for aarch64, under emulation.

zig builds for aarch64 as for a release, and qemu runs the Go tests of the packages without cgo
and the Python tests of TESTS on CPython 3.14 with the wheel installed.  The check takes five
minutes on two cores, and up to fifteen in parallel with another check.

qemu's user mode translates system calls for this machine's kernel.  So the check covers the
differences between the machines: numbers and structures of system calls, calling conventions,
sizes, alignment.  Memory is reordered only as on this processor: docs/internals/memory-model.md
describes the orders that the code relies on.  qemu has no epoll_pwait2 and no ptrace;
their tests skip.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import time
from pathlib import Path

import emulation
import environments
import wheels
from emulation import MACHINE
from environments import BUILD, ROOT, Failed, Interpreter, run, say

# Timeouts in seconds: of the whole check in parallel with another, and of try_wheel.py.
LIMIT, TRY_LIMIT = 900, 240
GO_PACKAGES = ("timers", "transports", "netloop")
# The interpreter on which most native code runs: tasks, futures, TLS.
PREFERRED = "3.14"

# Tests of each area that cross the boundary of C and Go, or use a structure of the machine.  The
# other tests of tests/state, transports and tls that were tried pass too.  But many start an
# interpreter for each test (above all *_safety.py), which takes seconds under emulation.  Of the
# forks, the list has those that differ in how the child gets its Go runtime.
FORK = "tests/runtime/test_fork.py::test_a_forked_child_lives"
SOCK_METHODS = "tests/watch/test_sock_methods.py"
TESTS = (
    f"{FORK}[fork_with_an_idle_loop]",
    f"{FORK}[fork_from_an_executor_thread]",
    f"{FORK}[import_then_fork]",  # Go starts in the child first
    f"{FORK}[nested_forks]",
    f"{FORK}[parents_loop_is_refused]",
    "tests/simulation/test_same_everywhere.py",
    "tests/state/test_timers.py",
    "tests/random_programs/test_random_programs.py",
    "tests/tasks/test_task_api.py",
    "tests/tasks/test_task_layout.py",
    "tests/tls/test_start_tls.py",
    "tests/tls/test_tls_connections.py",
    "tests/tls/test_tls_ending.py",
    "tests/tls/test_tls_flow_control.py",
    "tests/tls/test_tls_handshake.py",
    "tests/transports/test_buffered_protocol.py",
    "tests/transports/test_bulk_transfer.py",
    "tests/transports/test_connect.py",
    "tests/transports/test_datagram_shares.py",
    "tests/transports/test_datagram_errors.py",
    "tests/transports/test_datagram_exchange.py",
    "tests/transports/test_datagram_flow_control.py",
    "tests/transports/test_flow_control.py",
    "tests/transports/test_half_close.py",
    "tests/transports/test_other_threads.py",
    "tests/transports/test_pipes.py",
    "tests/transports/test_sendfile.py",
    "tests/transports/test_server.py",
    "tests/transports/test_server_accepting.py",
    "tests/transports/test_server_limits.py",
    "tests/transports/test_stream_reading.py",
    "tests/transports/test_stream_writing.py",
    "tests/transports/test_unix_sockets.py",
    SOCK_METHODS,
    "tests/watch/test_watchers.py",
)
# Tests that are omitted because of qemu:
#   fork_from_c                    qemu ignores MADV_WIPEONFORK, by which the child of a bare
#                                  system call detects the fork
#   child_forked_by_a_thread_ends  qemu adds a thread to each process, and the end of the process
#                                  waits for it as for a thread of the program
#   the first of NO_TESTS          qemu loses MSG_CTRUNC
# The second of NO_TESTS takes half a minute, and the same programs run with eager tasks.
NO_TESTS = (
    f"{SOCK_METHODS}::test_descriptors_for_which_there_is_no_room_are_closed",
    "tests/random_programs/test_random_programs.py::test_traces_are_equal[False]",
)


def check() -> bool:
    """Go and Python tests on aarch64, under emulation, within a time limit."""
    started = time.monotonic()
    emulator = emulation.emulator()
    base = _interpreter()
    emulation.interpreter(base.tag)  # raises Skipped before anything is built
    folder = BUILD / MACHINE
    shutil.rmtree(folder, ignore_errors=True)
    passed = [_go_test(emulator, folder, package) for package in GO_PACKAGES]
    say(f"Go's tests took {time.monotonic() - started:.0f} s")
    python = _installed(folder, base)
    say(f"the wheel was built and tried after {time.monotonic() - started:.0f} s")
    passed.append(_python_tests(folder, python, started + LIMIT))
    say(f"the check took {time.monotonic() - started:.0f} s")
    return all(passed)


def _interpreter() -> Interpreter:
    """Returns the interpreter with whose headers the extension is built."""
    found = {each.tag: each for each in environments.all_interpreters()}
    return found.get(PREFERRED) or environments.default_interpreter()


def _go_test(emulator: str, folder: Path, package: str) -> bool:
    program = folder / f"{package}.test"
    cross = {"GOOS": "linux", "GOARCH": "arm64", "CGO_ENABLED": "0"}
    build = ["go", "test", "-c", "-o", str(program), f"./{package}"]
    run(build, env={**environments.go_environment(), **cross})
    return environments.passes([emulator, program, "-test.timeout=120s"], cwd=ROOT / package)


def _installed(folder: Path, base: Interpreter) -> Path:
    """Builds and tries the wheel; returns the interpreter of an environment for the tests."""
    out = folder / "dist"
    tree = wheels.unpack_sdist(wheels.build_sdist(folder / "checkout", out), folder)
    wheel = wheels.build_wheel(tree, out, base, MACHINE)
    wheels.inspect(wheel, MACHINE)
    python = emulation.python(folder / "environment", base.tag)
    # The host's pip is faster; `make release` installs with the emulated interpreter.
    packages = next(python.parent.parent.glob("lib/python*/site-packages"))
    pip = [str(wheels.tools().python), "-m", "pip", "install", "-q", "--no-compile"]
    pip += ["--target", str(packages), "--only-binary=:all:", "--implementation=cp"]
    pip += [f"--python-version={base.tag}"]
    pip += [f"--platform={each}_{MACHINE}" for each in ("manylinux_2_17", "linux")]
    wanted = [each for each in environments.requirements("test") if each.startswith("pytest")]
    run([*pip, str(wheel), *wanted], quiet=True)
    emulation.compile_bytecode(base, packages)
    attempt = [str(python), "-I", str(ROOT / "tools" / "try_wheel.py")]
    if not _within(time.monotonic() + TRY_LIMIT, attempt, dict(os.environ), folder):
        raise Failed("the wheel does not work")
    return python


def _python_tests(folder: Path, python: Path, deadline: float) -> bool:
    # A folder without the package goloop, so that the tests import the installed wheel.
    tree = folder / "tests-alone"
    unwanted = shutil.ignore_patterns("__pycache__")
    for name in ("tests", "pybridge"):  # some tests read the sources
        shutil.copytree(ROOT / name, tree / name, ignore=unwanted)
    shutil.copy2(ROOT / "pyproject.toml", tree)
    env = {**os.environ, "GOLOOP_TEST_LOOP": "goloop"}
    for name in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"):
        env.pop(name, None)
    cache = folder / "pytest-cache"
    pytest = [str(python), "-m", "pytest", "-q", "--assert=plain", "-o", f"cache_dir={cache}"]
    pytest += [f"--deselect={test}" for test in NO_TESTS]
    pytest += ["-o", "timeout=240"]  # a test that takes a second elsewhere may take twenty
    parallel = [f"-n{os.cpu_count() or 1}", "--max-worker-restart=0", "--durations=10"]
    if _within(deadline, [*pytest, *parallel, *TESTS], env, tree):
        return True
    # Some tests depend on timing, and fail now and then on a busy machine.
    failed = environments.few_failures(cache)
    return bool(failed) and _within(deadline, [*pytest, *failed], env, tree)


def _within(deadline: float, words: list[str], env: dict[str, str], cwd: Path) -> bool:
    """Runs a program; returns true if it succeeded before the deadline."""
    print("$ " + shlex.join(words), flush=True)
    # A new process group, so that its workers can be killed with it.
    process = subprocess.Popen(
        words, env=env, cwd=cwd, stdin=subprocess.DEVNULL, start_new_session=True
    )
    try:
        return process.wait(max(deadline - time.monotonic(), 1)) == 0
    except subprocess.TimeoutExpired:
        say(f"{words[0]} exceeded the time limit")
        return False
    finally:
        if process.poll() is None:
            os.killpg(process.pid, 9)
            process.wait()
