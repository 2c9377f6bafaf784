"""pybridge/core/runtime by itself: how a process comes by its Go runtime.

Each scenario is a program of its own, because what it does to a process (fork,
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
        ("mode", ctypes.c_char_p), ("path", ctypes.c_char_p), ("spare_error", ctypes.c_char_p),
        ("epoch", ctypes.c_uint64), ("instances", ctypes.c_uint64),
        ("spare_ready", ctypes.c_bool), ("open_ns", ctypes.c_int64),
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

def fork_with_hook():
    # As os.fork does once _core has registered its hook.
    shim.shim_before_fork()
    return os.fork()

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
    """Runs a scenario to its end, whatever that is."""

    def run(
        program: str, shim: Path = shim, golib: Path | None = golib, **environ: str
    ) -> subprocess.CompletedProcess[str]:
        # GOGC=1: the collector runs at every chance it gets.
        variables = {"GOGC": "1", "SHIM": str(shim), **environ}
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


def test_loading_the_extension_loads_no_go(passes: Passes) -> None:
    passes("""
assert facts()["mode"] == "unopened" and shim.shim_epoch() == 0
shim.shim_before_fork()
assert not facts()["spare_ready"]
assert "libgoloop" not in open("/proc/self/maps").read()
assert len(os.listdir("/proc/self/task")) == 1
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


def test_open_leaves_no_descriptor(passes: Passes) -> None:
    passes("""
before = set(os.listdir("/proc/self/fd"))
library()
shim.shim_before_fork()
assert facts()["spare_ready"], facts()
def kinds():
    for fd in os.listdir("/proc/self/fd"):
        try:
            yield os.readlink("/proc/self/fd/" + fd)
        except FileNotFoundError:
            pass
assert not [name for name in kinds() if "libgoloop" in name]
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
def test_a_file_that_is_no_library_is_named(passes: Passes, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "other.so"
    path.write_bytes(content)
    passes('assert os.environ["GOLIB"] in refusal()', golib=path)


def test_an_unknown_path_is_told(passes: Passes) -> None:
    passes('assert "not told where" in refusal()', golib=None)


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
assert refusal() == said and facts()["instances"] == 1, facts()
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


# ---- fork ---------------------------------------------------------------------------


def test_child_starts_the_spare(passes: Passes) -> None:
    passes("""
library()
def body():
    assert shim.shim_epoch() == 0 and facts()["mode"] == "unopened"
    alive("spare")
    assert shim.shim_epoch() == 2
for _ in range(5):
    in_child(body, fork_with_hook)
assert facts()["spare_ready"] and facts()["instances"] == 1
go()
""")


def test_spare_is_made_once(passes: Passes) -> None:
    passes("""
library()
def mapped():
    with open("/proc/self/maps") as file:
        return sum("libgoloop" in line and "r-xp" in line for line in file)
shim.shim_before_fork()
once = mapped()
shim.shim_before_fork()
assert once == mapped() == 2
""")


def test_spare_starts_no_thread_in_the_parent(passes: Passes) -> None:
    passes("""
def body():
    # The parent has no thread but this one's; a spare that had started would add some.
    shim.shim_before_fork()
    assert len(os.listdir("/proc/self/task")) == 1
library()
shim.shim_before_fork()
in_child(body)
""")


def test_child_of_a_parent_without_go_opens_the_library_first(passes: Passes) -> None:
    passes("""
in_child(lambda: alive("first"), fork_with_hook)
alive("first")
""")


@pytest.mark.parametrize("hook", [True, False], ids=["spare", "copy"])
def test_each_of_nested_forks_has_a_living_runtime(passes: Passes, hook: bool) -> None:
    passes(f"""
def descend(depth):
    alive({"'spare'" if hook else "'copy'"})
    assert facts()["instances"] == shim.shim_epoch() == depth + 1
    if depth < 6:
        in_child(lambda: descend(depth + 1), {"fork_with_hook" if hook else "os.fork"})
    go()
library()
in_child(lambda: descend(1), {"fork_with_hook" if hook else "os.fork"})
go()
""")


def test_grandchild_uses_the_spare_that_the_child_left(passes: Passes) -> None:
    passes("""
library()
in_child(lambda: in_child(lambda: alive("spare"), fork_with_hook), fork_with_hook)
""")


def test_copy_is_not_taken_for_the_spare(passes: Passes) -> None:
    # ld.so would give back what it has by the same name; both come from the same fd number.
    passes("""
library()
shim.shim_before_fork()
shim.shim_drop_spare()
in_child(lambda: alive("copy"))
""")


RAW_CLONE = """
import platform
CLONE = {"x86_64": 56, "aarch64": 220}[platform.machine()]
def raw_clone():
    return libc.syscall(CLONE, int(signal.SIGCHLD), 0, 0, 0, 0)
"""


@pytest.mark.parametrize("fork", ["libc.fork", "libc._Fork", "raw_clone"])
@pytest.mark.parametrize("spare", [True, False], ids=["spare", "copy"])
def test_forks_behind_pythons_back_get_a_living_runtime(
    passes: Passes, fork: str, spare: bool
) -> None:
    passes(
        RAW_CLONE
        + f"""
library()
if {spare}:
    shim.shim_before_fork()
def body():
    assert shim.shim_epoch() == 0
    alive({"'spare'" if spare else "'copy'"})
in_child(body, {fork})
go()
"""
    )


def test_vfork_is_no_fork(passes: Passes) -> None:
    passes("library()\nassert shim.shim_vfork_sees_epoch()")


@pytest.mark.parametrize("spare", [True, False], ids=["spare", "copy"])
def test_child_whose_descriptors_are_closed_gets_a_living_runtime(
    passes: Passes, spare: bool
) -> None:
    passes(f"""
library()
def body():
    os.closerange(3, 256)
    alive({"'spare'" if spare else "'copy'"})
in_child(body, {"fork_with_hook" if spare else "os.fork"})
""")


@pytest.mark.parametrize("how", ["unlinked", "replaced"])
def test_a_file_upgraded_on_disk_does_not_reach_the_child(
    passes: Passes, golib: Path, tmp_path: Path, how: str
) -> None:
    mine = tmp_path / "libgoloop.so"
    shutil.copy(golib, mine)
    passes(
        f"""
library()
path = os.environ["GOLIB"]
if {how!r} == "replaced":
    open(path + ".new", "w").write("of another version")
    os.replace(path + ".new", path)
else:
    os.unlink(path)
in_child(lambda: alive("copy"))
in_child(lambda: alive("spare"), fork_with_hook)
""",
        golib=mine,
    )


def test_children_live_without_proc_and_leave_no_file(
    passes: Passes, shim_without_proc: Path, tmp_path: Path
) -> None:
    passes(
        """
library()
in_child(lambda: alive("copy"))
in_child(lambda: alive("spare"), fork_with_hook)
assert os.listdir(os.environ["TMPDIR"]) == []
""",
        shim=shim_without_proc,
        TMPDIR=str(tmp_path),
    )


def test_a_copy_that_cannot_be_made_is_explained(passes: Passes) -> None:
    passes("""
import resource
library()
def body():
    # No file may grow: neither a memfd nor one on disk.
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
    shim.shim_before_fork()
    def grandchild():
        said = refusal()
        assert "spawn" in said and "forkserver" in said, said
        assert facts()["mode"] == "unopened" and shim.shim_epoch() == 0
    in_child(grandchild)
    grandchild()
in_child(body)
""")


def test_failed_spare_is_explained_and_not_tried_again(passes: Passes) -> None:
    passes("""
import resource
library()
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
shim.shim_before_fork()
assert not facts()["spare_ready"] and facts()["spare_error"], facts()
resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
in_child(lambda: alive("copy"), fork_with_hook)
""")


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
in_child(unchanged, fork_with_hook)
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
wanted = {signal.SIGINT, signal.SIGTERM, signal.SIGURG, signal.SIGPIPE, signal.SIGALRM}
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
    shim.shim_before_fork()
    pid = os.fork()
    if pid:
        pids.append(pid)
        return
    os.close(down)
    if {opens}:
        alive("spare")
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


def test_forks_beside_a_thread_that_loads_libraries_use_the_spare(passes: Passes) -> None:
    # The lock of ld.so is held for good in many of these children; the spare needs none.
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
    in_child(lambda: alive("spare"), fork_with_hook)
running = False
thread.join()
""")
