"""pybridge/core/runtime by itself: how a process comes by its Go runtime.

Each scenario is a program of its own, because its effects on a process (fork,
signal dispositions, a Go runtime) can't be undone.  The program sees the names of
PRELUDE; it fails by an exception, a signal or the time limit.
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

Compile = Callable[..., Path]

PRELUDE = """
import ctypes, json, os, signal, sys, threading

shim = ctypes.CDLL(os.environ["SHIM"])
libc = ctypes.CDLL(None)

class Facts(ctypes.Structure):
    _fields_ = [
        ("mode", ctypes.c_char_p), ("path", ctypes.c_char_p), ("epoch", ctypes.c_uint64),
        ("instances", ctypes.c_uint64), ("open_ns", ctypes.c_int64),
    ]

shim.shim_library.restype = ctypes.c_void_p
shim.shim_table.restype = ctypes.c_void_p
shim.shim_epoch.restype = ctypes.c_uint64
libc.signal.restype = ctypes.c_void_p
libc.signal.argtypes = [ctypes.c_int, ctypes.c_void_p]
libc.pthread_getspecific.restype = ctypes.c_void_p

if "GOLIB" in os.environ:
    shim.shim_set_path(os.environ["GOLIB"].encode())

def library():
    message = ctypes.c_char_p()
    table = shim.shim_library(ctypes.byref(message))
    if not table:
        raise RuntimeError(message.value.decode())
    return table

def refusal():
    try:
        library()
    except RuntimeError as exc:
        return str(exc)
    raise AssertionError("the library was opened")

def facts():
    f = Facts()
    shim.shim_describe(ctypes.byref(f))
    values = {name: getattr(f, name) for name, _ in Facts._fields_}
    return {k: v.decode() if isinstance(v, bytes) else v for k, v in values.items()}

def go():
    # Runs Go code in the live runtime.
    out = ctypes.create_string_buffer(65536)
    n = shim.shim_go(out, len(out))
    assert n > 0, n
    return json.loads(out.raw[:n])

def alive(mode):
    library()
    assert facts()["mode"] == mode, facts()
    go()

def in_child(body, fork=os.fork):
    # Runs body() in a forked child and fails as it failed.
    pid = fork()
    if pid == 0:
        code = 1
        try:
            body()
            code = 0
        except BaseException:
            import traceback
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    assert status == 0, status

def caught(word="SigCgt"):
    # The signals that the process catches (SigCgt) or ignores (SigIgn).
    with open("/proc/self/status") as file:
        mask = next(int(line.split()[1], 16) for line in file if line.startswith(word))
    # 32 and 33 are libc's own.
    return {n for n in range(1, 65) if mask >> (n - 1) & 1} - {32, 33}

def thread_keys():
    return {key for key in range(1024) if libc.pthread_getspecific(key)}

"""

TIME_LIMIT = 60


Run = Callable[..., subprocess.CompletedProcess[str]]
Passes = Callable[..., None]


@pytest.fixture
def run(shim: Path, golib: Path) -> Run:
    """Return a function that runs a scenario to any end."""

    def run(
        program: str, shim: Path = shim, golib: Path | None = golib, **environ: str
    ) -> subprocess.CompletedProcess[str]:
        # GOLOOP_GOGC=1: the collector runs at every chance it gets.
        variables = {"GOLOOP_GOGC": "1", "SHIM": str(shim), **environ}
        if golib is not None:
            variables["GOLIB"] = str(golib)
        command = ("-X", "faulthandler=0", "-c", PRELUDE + program)
        return ended.python(*command, limit=TIME_LIMIT, apart=True, **variables)

    return run


@pytest.fixture
def passes(run: Run) -> Passes:
    """Runs a scenario that must end well."""

    def passes(program: str, **words: Any) -> None:
        done = run(program, **words)
        assert done.returncode == 0, f"ended with {done.returncode}\n{done.stdout}{done.stderr}"

    return passes


# ---- opening ---------------------------------------------------------------------


def test_loading_the_library_runs_no_go(passes: Passes) -> None:
    passes("""
assert facts()["mode"] == "unopened" and shim.shim_epoch() == 0
assert "libgoloop" in open("/proc/self/maps").read()
assert len(os.listdir("/proc/self/task")) == 1
assert int(signal.SIGURG) not in caught()
""")


def test_first_open_is_remembered(passes: Passes) -> None:
    passes("""
table = library()
assert library() == table
assert facts()["mode"] == "first" and facts()["instances"] == 1
assert shim.shim_epoch() == facts()["epoch"] == 1
assert facts()["open_ns"] > 0 and facts()["path"] == os.environ["GOLIB"]
go()
""")


def test_neither_loading_nor_starting_leaves_a_descriptor(passes: Passes) -> None:
    passes("""
before = os.listdir("/proc/self/fd")
library()
go()
assert os.listdir("/proc/self/fd") == before
""")


def test_starting_needs_no_descriptor(passes: Passes) -> None:
    passes("""
import resource
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
library()
in_child(library)
""")


def test_missing_file_is_named(passes: Passes, tmp_path: Path) -> None:
    passes(
        """
said = refusal()
assert os.environ["GOLIB"] in said and "No such file" in said, said
assert refusal() == said
""",
        golib=tmp_path / "nowhere.so",
    )


def test_a_later_call_tries_again(passes: Passes, golib: Path, tmp_path: Path) -> None:
    passes(
        """
import shutil
refusal()
shutil.copy(os.environ["REAL"], os.environ["GOLIB"])
alive("first")
assert facts()["instances"] == 1
""",
        golib=tmp_path / "late.so",
        REAL=str(golib),
    )


@pytest.mark.parametrize("content", [b"", b"text", b"\x7fELF" + b"\xff" * 400])
def test_invalid_library_file_is_named_in_the_error(
    passes: Passes, tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "other.so"
    path.write_bytes(content)
    passes('assert os.environ["GOLIB"] in refusal()', golib=path)


def test_missing_library_path_is_an_error(passes: Passes) -> None:
    passes('assert "path of the Go library is not set" in refusal()', golib=None)


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
    passes(
        f"""
said = refusal()
assert "number {number} of its ABI is 77" in said and os.environ["GOLIB"] in said, said
assert refusal() == said and facts()["instances"] == 0, facts()
""",
        golib=other,
    )


def test_a_library_without_the_table_is_refused(
    passes: Passes, native: Path, compile_shared: Compile
) -> None:
    source = native / "empty.c"
    source.write_text("int nothing(void); int nothing(void) { return 0; }", encoding="utf-8")
    other = compile_shared(native / "empty.so", source)
    passes('assert "goloop_table" in refusal()', golib=other)


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
    passes(
        """
library()
def body():
    said = refusal()
    assert "spawn" in said and "forkserver" in said, said
    assert facts()["mode"] == "unopened" and shim.shim_epoch() == 0
in_child(body)
""",
        golib=other,
    )


# ---- fork ---------------------------------------------------------------------------


def test_child_has_a_runtime_of_its_own(passes: Passes) -> None:
    passes("""
library()
def body():
    assert shim.shim_epoch() == 0 and facts()["mode"] == "unopened"
    assert len(os.listdir("/proc/self/task")) == 1
    alive("restarted")
    assert shim.shim_epoch() == 2
for _ in range(5):
    in_child(body)
assert facts()["instances"] == 1
go()
""")


def test_child_of_a_parent_without_go_starts_the_library_first(passes: Passes) -> None:
    passes("""
in_child(lambda: alive("first"))
alive("first")
""")


def test_each_of_nested_forks_has_a_living_runtime(passes: Passes) -> None:
    # More than the keys of threads would last for, and the room for thread-local variables.
    passes("""
def descend(depth):
    alive("restarted")
    assert facts()["instances"] == shim.shim_epoch() == depth + 1
    if depth < 6:
        in_child(lambda: descend(depth + 1))
    go()
library()
keys = len(thread_keys())
in_child(lambda: descend(1))
in_child(lambda: in_child(lambda: in_child(lambda: alive("restarted"))))
assert len(thread_keys()) == keys
go()
""")


RAW_CLONE = """
import platform
CLONE = {"x86_64": 56, "aarch64": 220}[platform.machine()]
def raw_clone():
    return libc.syscall(CLONE, int(signal.SIGCHLD), 0, 0, 0, 0)
"""


@pytest.mark.parametrize("fork", ["libc.fork", "libc._Fork", "raw_clone"])
def test_fork_without_python_hooks_gets_a_working_runtime(passes: Passes, fork: str) -> None:
    passes(
        RAW_CLONE
        + f"""
library()
def body():
    assert shim.shim_epoch() == 0
    alive("restarted")
in_child(body, {fork})
go()
"""
    )


@pytest.mark.parametrize("thread", ["first", "other"])
@pytest.mark.parametrize("ends", [True, False], ids=["ends", "goes on"])
def test_the_forking_thread_may_meet_the_new_runtime_late(
    passes: Passes, thread: str, ends: bool
) -> None:
    # State of the dead runtime in the thread would be mistaken for the new one's. A bare clone is
    # for a process with a single thread of Python.
    passes(
        RAW_CLONE
        + f"""
library()
def body():
    other = threading.Thread(target=lambda: alive("restarted"))
    other.start()
    other.join()
    if not {ends}:
        shim.shim_bind_thread()
        go()
if {thread!r} == "first":
    in_child(body, raw_clone)
else:
    thread = threading.Thread(target=in_child, args=(body,))
    thread.start()
    thread.join()
go()
"""
    )


def test_vfork_does_not_count_as_a_fork(passes: Passes) -> None:
    passes("library()\nassert shim.shim_vfork_sees_epoch()")


def test_child_with_closed_descriptors_gets_a_working_runtime(passes: Passes) -> None:
    passes("""
library()
def body():
    os.closerange(3, 256)
    alive("restarted")
in_child(body)
""")


def test_child_with_locked_memory_gets_a_working_runtime(passes: Passes) -> None:
    passes("""
import resource
library()
MCL_CURRENT = 1
def body():
    # A limit of the machine's may forbid it.
    libc.mlockall(MCL_CURRENT)
    alive("restarted")
in_child(body)
""")


@pytest.mark.parametrize("how", ["unlinked", "replaced"])
@pytest.mark.parametrize("started", [True, False], ids=["started", "loaded"])
def test_a_file_upgraded_on_disk_does_not_reach_the_process(
    passes: Passes, golib: Path, tmp_path: Path, how: str, started: bool
) -> None:
    mine = tmp_path / "libgoloop.so"
    shutil.copy(golib, mine)
    passes(
        f"""
if {started}:
    library()
path = os.environ["GOLIB"]
if {how!r} == "replaced":
    open(path + ".new", "w").write("of another version")
    os.replace(path + ".new", path)
else:
    os.unlink(path)
in_child(lambda: alive("restarted" if {started} else "first"))
alive("first")
in_child(lambda: alive("restarted"))
""",
        golib=mine,
    )


# ---- signals ---------------------------------------------------------------------------


@pytest.mark.parametrize("python", [True, False], ids=["handlers", "defaults"])
def test_dispositions_and_mask_survive(passes: Passes, python: bool) -> None:
    passes(f"""
got = []
if {python}:
    for name in ("SIGURG", "SIGPIPE", "SIGUSR1", "SIGINT"):
        signal.signal(getattr(signal, name), lambda number, frame: got.append(number))
else:
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD, signal.SIGPROF, signal.SIGUSR2])
def state():
    return caught(), caught("SigIgn"), signal.pthread_sigmask(signal.SIG_BLOCK, [])
def unchanged():
    library()
    go()
    assert state() == before, (state(), before)
before = state()
unchanged()
in_child(unchanged)
if {python}:
    sent = [signal.SIGURG, signal.SIGPIPE, signal.SIGUSR1, signal.SIGINT]
    for number in sent:
        os.kill(os.getpid(), number)
    assert got == sent, got
""")


def test_mask_of_a_further_thread_survives(passes: Passes) -> None:
    passes("""
library()
masks = []
def body():
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD, signal.SIGPROF])
    shim.shim_bind_thread()
    go()
    masks.append(signal.pthread_sigmask(signal.SIG_BLOCK, []))
thread = threading.Thread(target=body)
thread.start()
thread.join()
assert {signal.SIGCHLD, signal.SIGPROF} <= masks[0], masks
""")


def test_go_threads_take_no_signal_of_the_process(passes: Passes) -> None:
    passes("""
library()
go()
wanted = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
threads = 0
for tid in os.listdir("/proc/self/task"):
    if int(tid) == os.getpid():
        continue
    try:
        with open(f"/proc/self/task/{tid}/status") as file:
            mask = next(int(line.split()[1], 16) for line in file if line.startswith("SigBlk"))
    except (FileNotFoundError, ProcessLookupError, StopIteration):
        continue  # Go ends a thread that has nothing to do
    assert all(mask >> (number - 1) & 1 for number in wanted), hex(mask)
    threads += 1
assert threads > 0
""")


def test_a_crash_in_c_dies_of_its_signal(run: Run) -> None:
    done = run("library(); go(); ctypes.string_at(8)")
    assert done.returncode == -signal.SIGSEGV
    assert "goroutine" not in done.stderr


def test_foreign_handler_gets_the_signal_stack(passes: Passes) -> None:
    # A handler of C's, installed without SA_ONSTACK, would run on a goroutine's stack.
    passes("""
class Action(ctypes.Structure):
    _fields_ = [("handler", ctypes.c_void_p), ("mask", ctypes.c_uint64 * 16),
                ("flags", ctypes.c_int), ("restorer", ctypes.c_void_p)]
SA_ONSTACK = 0x08000000
hits = []
handler = ctypes.CFUNCTYPE(None, ctypes.c_int)(lambda number: hits.append(number))
address = ctypes.cast(handler, ctypes.c_void_p).value
for number in (signal.SIGURG, signal.SIGUSR1):
    assert libc.sigaction(number, ctypes.byref(Action(handler=address)), None) == 0
library()
for number in (signal.SIGURG, signal.SIGUSR1):
    now = Action()
    libc.sigaction(number, None, ctypes.byref(now))
    assert now.handler == address and now.flags & SA_ONSTACK, (number, now.flags)
""")


@pytest.mark.parametrize("fork", ["os.fork", "libc._Fork"])
def test_handler_in_the_dead_runtime_is_reset(passes: Passes, fork: str) -> None:
    passes(f"""
library()
libc.signal(signal.SIGUSR2, shim.shim_table())
libc.signal(signal.SIGUSR1, 1)
def body():
    library()
    assert int(signal.SIGUSR2) not in caught()
    assert int(signal.SIGUSR1) in caught("SigIgn")
in_child(body, {fork})
assert int(signal.SIGUSR2) in caught()
""")


# ---- threads and the end of a process ---------------------------------------------------


def test_forking_thread_is_unknown_to_the_dead_runtime(passes: Passes) -> None:
    # Or the end of the thread would call the dead runtime, by Go's key.
    passes("""
done = []
def body():
    clean = thread_keys()
    library()
    known = thread_keys() - clean
    assert known
    def child():
        left = thread_keys() & known
        assert not left, left
    in_child(child)
    done.append(True)
thread = threading.Thread(target=body)
thread.start()
thread.join()
assert done
""")


@pytest.mark.parametrize("opens", [True, False], ids=["opens", "idle"])
@pytest.mark.parametrize("threads", [True, False], ids=["threads", "alone"])
def test_child_forked_by_a_thread_ends_with_it(passes: Passes, opens: bool, threads: bool) -> None:
    # And not before the other threads of the child, which finish their work.
    passes(f"""
library()
pids = []
down, up = os.pipe()
def body():
    pid = os.fork()
    if pid:
        pids.append(pid)
        return
    os.close(down)
    if {opens}:
        alive("restarted")
    if {threads}:
        go_on = threading.Event()
        def other():
            go_on.wait()
            os.write(up, b"finished")
        threading.Thread(target=other).start()
        threading.Timer(0.05, go_on.set).start()
    # The function returns in the child: so does its only, first thread.
thread = threading.Thread(target=body)
thread.start()
thread.join()
os.close(up)
assert os.read(down, 100) == ({threads} and b"finished" or b"")
assert os.waitpid(pids[0], 0)[1] == 0
""")


def test_forks_during_library_loading_survive(passes: Passes) -> None:
    # The lock of ld.so is held for good in many of these children; a restart takes none.
    passes("""
libc.dlopen.restype = ctypes.c_void_p
libc.dlopen.argtypes = [ctypes.c_char_p, ctypes.c_int]
libc.dlclose.argtypes = [ctypes.c_void_p]
running = True
def churn():
    while running:
        for name in (b"libz.so.1", b"libm.so.6", b"libexpat.so.1", b"liblzma.so.5"):
            handle = libc.dlopen(name, 2)
            if handle:
                libc.dlclose(handle)
library()
thread = threading.Thread(target=churn, daemon=True)
thread.start()
for _ in range(40):
    in_child(lambda: alive("restarted"))
running = False
thread.join()
""")
