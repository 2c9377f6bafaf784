"""No thread that goloop has started runs when Python ends; each scenario is a program of its own.

CPython 3.13 without the GIL frees the states of threads that run then, which crashes now and then.
"""

from __future__ import annotations

from pathlib import Path

import ended
import pytest

import goloop

pytestmark = pytest.mark.skipif(not goloop.native, reason="asyncio's loop has no such threads")

# The first function of atexit is the last one to be called: after goloop's.
PRELUDE = """
import atexit, os, sys, threading, time, warnings

warnings.simplefilter("ignore")

def others():
    return [name for name in map(name_of, sys._current_frames()) if name]

def name_of(ident):
    if ident == threading.get_ident():
        return None
    return next((each.name for each in threading.enumerate() if each.ident == ident), "nameless")

def until(condition):
    deadline = time.monotonic() + 30
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.001)
    return True

@atexit.register
def at_the_end():
    # Up to 3.12 a thread may be seen for a moment after its last line.
    print("ended" if until(lambda: not others()) else others(), flush=True)

import asyncio, logging, queue, signal, socket
logging.disable()  # of unfinished tasks and of blocks
import goloop
import goloop.guest
from goloop._internal.net import resolver_threads

resolver_threads._IDLE_SECONDS = 1000.0
loop = goloop.new_event_loop()
run = loop.run_until_complete
"""

SCENARIOS = {
    "idle resolvers of an open loop": """
async def main():
    await asyncio.gather(*(loop.getaddrinfo("localhost", 80) for _ in range(3)))
run(main())
assert others()
""",
    "resolvers of a loop that was closed just now": """
async def main():
    asking = [loop.create_task(loop.getaddrinfo("localhost", 80)) for _ in range(6)]
    await asyncio.sleep(0)
    for each in asking:
        each.cancel()
run(main())
loop.close()
""",
    "resolvers of a loop of a daemon thread": """
ready = threading.Event()
stop = threading.Event()
async def main():
    await asyncio.get_running_loop().getaddrinfo("localhost", 80)
    ready.set()
    while not stop.is_set():
        await asyncio.sleep(0.001)
thread = threading.Thread(target=goloop.run, args=(main(),), daemon=True)
thread.start()
ready.wait()
atexit.register(lambda: (stop.set(), thread.join()))
""",
    "the reporter of a blocked loop": """
from goloop import watchdog
reported = threading.Event()
watchdog.subscribe(lambda blocked: reported.set())
loop.set_watchdog(0.01)
async def main():
    assert reported.wait(30)
run(main())
""",
    "a guest without finish()": """
calls = queue.SimpleQueue()
guest = goloop.guest.start(asyncio.sleep(60), run_sync_soon_threadsafe=calls.put)
calls.get()()
assert others() == ["goloop-guest"]
""",
    "the introspection server": """
from goloop.operations import introspection
introspection.introspect()
assert others() == ["goloop-introspect"]
""",
    "the introspection server with a client that asks nothing": """
from goloop.operations import introspection
introspection._REQUEST_SECONDS = 1000
introspection.introspect()
client = socket.socket(socket.AF_UNIX)
client.connect(introspection.address(os.getpid()))
assert until(lambda: introspection._client is not None)
""",
}


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.goloop_only("asyncio's loop has no such threads")
def test_no_thread_of_goloop_runs_when_python_ends(scenario: str) -> None:
    done = ended.python("-c", PRELUDE + SCENARIOS[scenario], limit=100)
    assert set(done.stdout.split("\n")) == {"ended", ""}, done.stdout
    assert done.returncode == 0


@pytest.mark.forks
@pytest.mark.goloop_only("asyncio's loop has no such threads")
@pytest.mark.parametrize("fork", ["os.fork", "ctypes.PyDLL(None).fork"])
def test_forked_child_ends_its_own_threads_only(fork: str) -> None:
    scenario = """
import ctypes
async def main():
    await loop.getaddrinfo("localhost", 80)
run(main())
if pid := FORK():
    assert os.waitpid(pid, 0)[1] == 0
else:
    loop = goloop.new_event_loop()
    loop.run_until_complete(loop.getaddrinfo("localhost", 80))
    atexit.unregister(at_the_end)  # a fork by C leaves the parent's thread states there
    print("ended", flush=True)
"""
    done = ended.python("-c", PRELUDE + scenario.replace("FORK", fork), limit=100)
    assert (done.stdout, done.returncode) == ("ended\nended\n", 0), done.stdout


@pytest.mark.goloop_only("asyncio's loop has no such threads")
def test_thread_that_writes_metrics_ends_before_python(tmp_path: Path) -> None:
    pytest.importorskip("prometheus_client")
    scenario = f"""
from pathlib import Path
from goloop.operations import prometheus
prometheus._share_of(Path({str(tmp_path)!r}), 1000.0)
assert others() == ["goloop-prometheus"]
"""
    done = ended.python("-c", PRELUDE + scenario, limit=100)
    assert (done.stdout.splitlines()[-1:], done.returncode) == (["ended"], 0), done.stdout


@pytest.mark.goloop_only("asyncio's loop has no such threads")
def test_exit_does_not_wait_for_the_end_of_a_child() -> None:
    scenario = """
from goloop._internal import helper_threads
def refuse(pid, flags=0):
    raise OSError(38, "no pidfd")
os.pidfd_open = refuse
async def main():
    waits_for_this_process = "import sys; sys.stdin.read()"
    pipe, null = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    return await asyncio.create_subprocess_exec(
        sys.executable, "-c", waits_for_this_process, stdin=pipe, stdout=null, stderr=null
    )
child = run(main())
[name] = others()
assert name.startswith("goloop-waitpid")
if not helper_threads.THREADS_MUST_END:
    atexit.unregister(at_the_end)
    print("ended")
"""
    done = ended.python("-c", PRELUDE + scenario, limit=100)
    assert (done.stdout, done.returncode) == ("ended\n", 0), done.stdout


@pytest.mark.goloop_only("asyncio's loop has no such threads")
def test_exit_does_not_wait_for_a_closed_introspection_socket() -> None:
    scenario = """
from goloop.operations import introspection
introspection.introspect()
introspection._serving.close()
atexit.unregister(at_the_end)
"""
    done = ended.python("-c", PRELUDE + scenario, limit=100)
    assert (done.stdout, done.returncode) == ("", 0), done.stdout


@pytest.mark.goloop_only("asyncio's loop has no such threads")
def test_lookup_after_the_end_of_all_threads_is_an_error() -> None:
    before = """
import atexit
@atexit.register
def late():
    late_loop = goloop.new_event_loop()
    try:
        late_loop.run_until_complete(late_loop.getaddrinfo("localhost", 80))
    except RuntimeError as error:
        print(error)
    assert late_loop.run_until_complete(late_loop.getaddrinfo("127.0.0.1", 80))
    late_loop.close()
"""
    done = ended.python("-c", before + PRELUDE + "run(asyncio.sleep(0))", limit=100)
    refused = "can't start new thread at interpreter shutdown"
    assert (done.stdout, done.returncode) == (f"ended\n{refused}\n", 0), done.stdout
