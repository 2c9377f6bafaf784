"""Methods of a loop import nothing, so that no fork, interrupt or patch can make them fail."""

from __future__ import annotations

from pathlib import Path

import ended
import pytest
from tls_tools import identity

WALK = Path(__file__).with_name("import_walk.py")
pytestmark = pytest.mark.goloop_only("asyncio's loop is the comparison, in each test")


def imported(loop: str) -> set[str]:
    """The modules that a walk over the loop's methods imports."""
    it = identity()
    done = ended.python(WALK, loop, it.certificate, it.key, limit=100)
    assert done.returncode == 0, done.stdout
    found = [line for line in done.stdout.splitlines() if line.startswith("imported:")]
    return set(found[0].split()[1:])


def test_a_loop_imports_only_what_asyncio_imports_at_the_same_place() -> None:
    assert imported("goloop") - imported("asyncio") == set()


# ---- forks ------------------------------------------------------------------------------------

FORK_INSIDE = """
import asyncio, os, sys, threading, warnings
warnings.simplefilter("ignore")  # of os.fork() beside threads
inside, forked = threading.Event(), threading.Event()

def hook(event, args):
    if event == "exec" and args[0].co_filename.endswith(FILE) and not inside.is_set():
        inside.set()
        forked.wait(0.2)  # which os.fork() outlasts, because it waits for the import

def run():
    import goloop
    return goloop.run(asyncio.sleep(0, "ran"))

sys.addaudithook(hook)
importing = threading.Thread(target=run)
importing.start()
inside.wait()
child = os.fork()
forked.set()
if child == 0:
    os._exit(run() != "ran")
assert os.waitpid(child, 0)[1] == 0
importing.join()
print(run())
"""


@pytest.mark.forks
@pytest.mark.parametrize("file", ["loop/library.py", "tls/protocol.py", "goloop/watchdog.py"])
def test_child_of_a_fork_during_the_import_can_import_goloop(file: str) -> None:
    done = ended.python("-c", f"FILE = {file!r}\n{FORK_INSIDE}", limit=60)
    assert (done.returncode, done.stdout) == (0, "ran\n"), done.stdout


# ---- interrupted imports -------------------------------------------------------------------------

INTERRUPTED = """
import asyncio, codecs, encodings.idna, json, os, sys

events = 0
at = -1

def hook(event, args):
    global events, at
    events += 1
    if events == at:
        at = -1
        raise ERROR

def tracer(frame, event, arg):
    # CPython ignores an exception in this callback of importlib's locks, and the lock stays.
    if frame.f_code.co_name != "remove":
        hook(event, arg)
    return tracer

def run():
    import goloop
    assert goloop.watchdog.subscribe and goloop.run(asyncio.sleep(0, 1)) == 1
    assert goloop.diagnostics()["tasks"] == TASKS
    assert goloop.diagnostics()["tls"] == TLS

def watch():
    if BY == "audit":
        sys.addaudithook(hook)
    else:
        sys.settrace(tracer)

def in_child(function):
    pid = os.fork()
    if pid == 0:
        try:
            function()
        except BaseException:
            import traceback
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitpid(pid, 0)[1]

def count():
    watch()
    import goloop
    sys.settrace(None)
    os.write(1, f"{events}\\n".encode())

def interrupted():
    watch()
    try:
        import goloop
    except BaseException as error:
        assert isinstance(error, ERROR) or at == -1, error
    sys.settrace(None)
    run()

def facts():
    import goloop
    os.write(1, repr(goloop.diagnostics()).encode())

read, write = os.pipe()
keep = os.dup(1)
os.dup2(write, 1)
in_child(facts)
known = eval(os.read(read, 10000))
in_child(count)
total = int(os.read(read, 100))
os.dup2(keep, 1)
TASKS, TLS = known["tasks"], known["tls"]
failed = []
step = max(1, total // POINTS)
for point in range(1, total, step):
    at = point
    if in_child(interrupted):
        failed.append(point)
print(total > POINTS, failed)
"""


@pytest.mark.forks
@pytest.mark.parametrize("by", ["audit", "trace"])
@pytest.mark.parametrize("error", ["KeyboardInterrupt", "MemoryError"])
def test_goloop_can_be_imported_after_an_interrupted_import(error: str, by: str) -> None:
    words = f"ERROR, BY, POINTS = {error}, {by!r}, 40\n"
    # Without the compiled modules each of the imports would take half a second.
    kept = {"PYTHONDONTWRITEBYTECODE": ""}
    done = ended.python("-c", words + INTERRUPTED, limit=100, apart=True, **kept)
    assert (done.returncode, done.stdout) == (0, "True []\n"), done.stdout + done.stderr


# ---- sys.modules ---------------------------------------------------------------------------------

MODULES = """
import asyncio, logging, sys
from unittest import mock
import import_walk

logging.disable(logging.CRITICAL)
both = import_walk.contexts(CERTIFICATE, KEY)

def walk(loop):
    loop.run_until_complete(import_walk.walk(loop, both))

def drop():
    for name in list(sys.modules):
        if name.partition(".")[0] == "goloop":
            del sys.modules[name]
"""
CASES = {
    "first imported within a patch of sys.modules": """
with mock.patch.dict(sys.modules):
    import goloop
    loop = goloop.new_event_loop()
assert "goloop" not in sys.modules
walk(loop)
import goloop
import_walk.run(loop, both)
import_walk.run(goloop.new_event_loop(), both)
""",
    "dropped and imported again": """
import goloop
first, loop = goloop, goloop.new_event_loop()
seen = []
first.watchdog.subscribe(seen.append)
for _ in range(3):
    drop()
    import goloop
    assert goloop is first and sys.modules["goloop._internal.tls.protocol"]
    assert isinstance(loop, goloop.Loop)
import_walk.run(loop, both)
assert seen
import_walk.run(goloop.new_event_loop(), both)
""",
    "reloaded": """
import goloop, importlib
loop = goloop.new_event_loop()
assert importlib.reload(goloop) is goloop
assert isinstance(loop, goloop.Loop)
import_walk.run(loop, both)
import_walk.run(goloop.new_event_loop(), both)
""",
    "dropped, with a loop that is used on": """
import goloop
loop = goloop.new_event_loop()
drop()
walk(loop)
loop.close()
assert not [name for name in sys.modules if name.startswith("goloop")]
""",
    "dropped within a patch, with late modules": """
import goloop
first = goloop.run_threads, goloop.SharedListener
late = sys.modules["goloop._internal.process.threads"]
with mock.patch.dict(sys.modules):
    drop()
    import goloop
    assert sys.modules["goloop._internal.process.threads"] is late
    assert (goloop.run_threads, goloop.SharedListener) == first
""",
}


@pytest.mark.parametrize("case", CASES)
def test_goloop_works_when_sys_modules_was_changed(case: str) -> None:
    it = identity()
    words = f"CERTIFICATE, KEY = {it.certificate!r}, {it.key!r}\n"
    done = ended.python(
        "-c", words + MODULES + CASES[case] + "print('fine')", limit=100,
        PYTHONPATH=str(WALK.parent), apart=True,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "fine\n"), done.stdout + (done.stderr or "")
