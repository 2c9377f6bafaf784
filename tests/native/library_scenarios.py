"""The scenarios of test_library.py: `python library_scenarios.py NAME` runs one."""

from __future__ import annotations

import ctypes
import json
import os
import platform
import resource
import shutil
import signal
import sys
import threading

shim = ctypes.CDLL(os.environ["SHIM"])
libc = ctypes.CDLL(None)


class Facts(ctypes.Structure):
    _fields_ = [
        ("mode", ctypes.c_char_p),
        ("path", ctypes.c_char_p),
        ("epoch", ctypes.c_uint64),
        ("instances", ctypes.c_uint64),
        ("open_ns", ctypes.c_int64),
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
    """Runs Go code in the live runtime."""
    out = ctypes.create_string_buffer(65536)
    n = shim.shim_go(out, len(out))
    assert n > 0, n
    return json.loads(out.raw[:n])


def alive(mode):
    library()
    assert facts()["mode"] == mode, facts()
    go()


def in_child(body, fork=os.fork):
    """Runs body() in a forked child and fails as it failed."""
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
    """The signals that the process catches (SigCgt) or ignores (SigIgn)."""
    with open("/proc/self/status") as file:
        mask = next(int(line.split()[1], 16) for line in file if line.startswith(word))
    # 32 and 33 are libc's own.
    return {n for n in range(1, 65) if mask >> (n - 1) & 1} - {32, 33}


def thread_keys():
    return {key for key in range(1024) if libc.pthread_getspecific(key)}


CLONE = {"x86_64": 56, "aarch64": 220}[platform.machine()]


def raw_clone():
    return libc.syscall(CLONE, int(signal.SIGCHLD), 0, 0, 0, 0)


FORKS = {
    "os.fork": os.fork,
    "libc.fork": libc.fork,
    "libc._Fork": getattr(libc, "_Fork", None),
    "raw_clone": raw_clone,
}

# Signal handlers, which are called until the process ends.
kept = []


def loading_the_library_runs_no_go() -> None:
    assert facts()["mode"] == "unopened" and shim.shim_epoch() == 0
    with open("/proc/self/maps") as file:
        assert "libgoloop" in file.read()
    assert len(os.listdir("/proc/self/task")) == 1
    assert int(signal.SIGURG) not in caught()


def first_open_is_remembered() -> None:
    table = library()
    assert library() == table
    assert facts()["mode"] == "first" and facts()["instances"] == 1
    assert shim.shim_epoch() == facts()["epoch"] == 1
    assert facts()["open_ns"] > 0 and facts()["path"] == os.environ["GOLIB"]
    go()


def neither_loading_nor_starting_leaves_a_descriptor() -> None:
    before = os.listdir("/proc/self/fd")
    library()
    go()
    assert os.listdir("/proc/self/fd") == before


def starting_needs_no_descriptor() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    library()
    in_child(library)


def missing_file_is_named() -> None:
    said = refusal()
    assert os.environ["GOLIB"] in said and "No such file" in said, said
    assert refusal() == said


def a_later_call_tries_again() -> None:
    refusal()
    shutil.copy(os.environ["REAL"], os.environ["GOLIB"])
    alive("first")
    assert facts()["instances"] == 1


def invalid_library_file_is_named_in_the_error() -> None:
    assert os.environ["GOLIB"] in refusal()


def missing_library_path_is_an_error() -> None:
    assert "path of the Go library is not set" in refusal()


def a_library_of_another_build_is_refused(number: str) -> None:
    said = refusal()
    assert f"number {number} of its ABI is 77" in said and os.environ["GOLIB"] in said, said
    assert refusal() == said and facts()["instances"] == 0, facts()


def a_library_without_the_table_is_refused() -> None:
    assert "goloop_table" in refusal()


def a_library_that_no_child_can_start_again_is_named_there() -> None:
    library()

    def body():
        said = refusal()
        assert "spawn" in said and "forkserver" in said, said
        assert facts()["mode"] == "unopened" and shim.shim_epoch() == 0

    in_child(body)


def child_has_a_runtime_of_its_own() -> None:
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


def child_of_a_parent_without_go_starts_the_library_first() -> None:
    in_child(lambda: alive("first"))
    alive("first")


def each_of_nested_forks_has_a_living_runtime() -> None:
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


def fork_without_python_hooks_gets_a_working_runtime(fork: str) -> None:
    library()

    def body():
        assert shim.shim_epoch() == 0
        alive("restarted")

    in_child(body, FORKS[fork])
    go()


def the_forking_thread_may_meet_the_new_runtime_late(ends: str, thread: str) -> None:
    library()

    def body():
        other = threading.Thread(target=lambda: alive("restarted"))
        other.start()
        other.join()
        if ends == "False":
            shim.shim_bind_thread()
            go()

    if thread == "first":
        in_child(body, raw_clone)
    else:
        thread = threading.Thread(target=in_child, args=(body,))
        thread.start()
        thread.join()
    go()


def vfork_does_not_count_as_a_fork() -> None:
    library()
    assert shim.shim_vfork_sees_epoch()


def child_with_closed_descriptors_gets_a_working_runtime() -> None:
    library()

    def body():
        os.closerange(3, 256)
        alive("restarted")

    in_child(body)


def child_with_locked_memory_gets_a_working_runtime() -> None:
    library()
    MCL_CURRENT = 1

    def body():
        # A limit of the machine's may forbid it.
        libc.mlockall(MCL_CURRENT)
        alive("restarted")

    in_child(body)


def a_file_upgraded_on_disk_does_not_reach_the_process(started: str, how: str) -> None:
    if started == "True":
        library()
    path = os.environ["GOLIB"]
    if how == "replaced":
        with open(path + ".new", "w") as file:
            file.write("of another version")
        os.replace(path + ".new", path)
    else:
        os.unlink(path)
    in_child(lambda: alive("restarted" if started == "True" else "first"))
    alive("first")
    in_child(lambda: alive("restarted"))


def dispositions_and_mask_survive(python: str) -> None:
    got = []
    if python == "True":
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
    if python == "True":
        sent = [signal.SIGURG, signal.SIGPIPE, signal.SIGUSR1, signal.SIGINT]
        for number in sent:
            os.kill(os.getpid(), number)
        assert got == sent, got


def mask_of_a_further_thread_survives() -> None:
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


def go_threads_take_no_signal_of_the_process() -> None:
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


def foreign_handler_gets_the_signal_stack() -> None:
    class Action(ctypes.Structure):
        _fields_ = [
            ("handler", ctypes.c_void_p),
            ("mask", ctypes.c_uint64 * 16),
            ("flags", ctypes.c_int),
            ("restorer", ctypes.c_void_p),
        ]

    SA_ONSTACK = 0x08000000
    hits = []
    handler = ctypes.CFUNCTYPE(None, ctypes.c_int)(hits.append)
    kept.append(handler)
    address = ctypes.cast(handler, ctypes.c_void_p).value
    for number in (signal.SIGURG, signal.SIGUSR1):
        assert libc.sigaction(number, ctypes.byref(Action(handler=address)), None) == 0
    library()
    for number in (signal.SIGURG, signal.SIGUSR1):
        now = Action()
        libc.sigaction(number, None, ctypes.byref(now))
        assert now.handler == address and now.flags & SA_ONSTACK, (number, now.flags)


def crash_in_c() -> None:
    library()
    go()
    ctypes.string_at(8)


def handler_in_the_dead_runtime_is_reset(fork: str) -> None:
    library()
    libc.signal(signal.SIGUSR2, shim.shim_table())
    libc.signal(signal.SIGUSR1, 1)

    def body():
        library()
        assert int(signal.SIGUSR2) not in caught()
        assert int(signal.SIGUSR1) in caught("SigIgn")

    in_child(body, FORKS[fork])
    assert int(signal.SIGUSR2) in caught()


def forking_thread_is_unknown_to_the_dead_runtime() -> None:
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


def child_forked_by_a_thread_ends_with_it(opens: str, threads: str) -> None:
    library()
    pids = []
    down, up = os.pipe()

    def body():
        pid = os.fork()
        if pid:
            pids.append(pid)
            return
        os.close(down)
        if opens == "True":
            alive("restarted")
        if threads == "True":
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
    assert os.read(down, 100) == (b"finished" if threads == "True" else b"")
    assert os.waitpid(pids[0], 0)[1] == 0


def forks_during_library_loading_survive() -> None:
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


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
