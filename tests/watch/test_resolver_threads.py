"""Names are looked up on few threads of a loop, which end, and without which there is an error.

Each scenario is a program of its own, in which getaddrinfo(3) waits until it is told to go
on: a library in front of libc (LD_PRELOAD) has it.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sysconfig
from pathlib import Path

import ended
import pytest

TIME_LIMIT = 100  # seconds

SLOW = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <pthread.h>
#include <resolv.h>
#include <string.h>
#include <unistd.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t change = PTHREAD_COND_INITIALIZER;
static int open_, inside, most, calls;

/* What a thread that has looked up a name holds while it ends: as glibc's lock of resolv.conf,
   but for longer. */
static pthread_mutex_t held_at_the_end = PTHREAD_MUTEX_INITIALIZER;
static pthread_key_t ending;
static pthread_once_t ending_once = PTHREAD_ONCE_INIT;

static void end(void *value)
{
    pthread_mutex_lock(&held_at_the_end);
    usleep(100000);
    pthread_mutex_unlock(&held_at_the_end);
}

static void make_ending(void) { pthread_key_create(&ending, end); }

int slow_is_held(void)
{
    int err = pthread_mutex_trylock(&held_at_the_end);
    if (err == 0)
        pthread_mutex_unlock(&held_at_the_end);
    return err != 0;
}

int getaddrinfo(const char *host, const char *service, const struct addrinfo *hints,
                struct addrinfo **list)
{
    int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **) =
        dlsym(RTLD_NEXT, "getaddrinfo");
    if (host == NULL || strncmp(host, "slow", 4) != 0 || hints == NULL ||
        (hints->ai_flags & AI_NUMERICHOST))
        return real(host, service, hints, list);
    pthread_once(&ending_once, make_ending);
    pthread_setspecific(ending, &ending);
    pthread_mutex_lock(&mutex);
    calls++;
    if (++inside > most)
        most = inside;
    pthread_cond_broadcast(&change);
    while (!open_)
        pthread_cond_wait(&change, &mutex);
    inside--;
    pthread_mutex_unlock(&mutex);
    return real("127.0.0.1", service, hints, list);
}

void slow_open(int value)
{
    pthread_mutex_lock(&mutex);
    open_ = value;
    pthread_cond_broadcast(&change);
    pthread_mutex_unlock(&mutex);
}

void slow_wait_inside(int n)
{
    pthread_mutex_lock(&mutex);
    while (inside < n)
        pthread_cond_wait(&change, &mutex);
    pthread_mutex_unlock(&mutex);
}

/* A thread that uses libc's resolver, and its lock, for as long as the process lives. */
static void *resolve(void *unused)
{
    struct addrinfo *list = NULL;
    if (getaddrinfo("localhost", "80", NULL, &list) == 0)
        freeaddrinfo(list);
    for (;;)
        res_init();
    return unused;
}

void slow_resolve(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, resolve, NULL) == 0)
        pthread_detach(thread);
}

int slow_most(void) { return most; }
int slow_calls(void) { return calls; }
"""

PRELUDE = """
import asyncio, ctypes, gc, os, resource, signal, socket, sys, threading, time, warnings
import goloop
slow = ctypes.CDLL(os.environ["SLOW"])

def resolvers():
    # The resolver's threads, by their ids.
    found = []
    for tid in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{tid}/comm") as file:
                if file.read() == "goloop-resolve\\n":
                    found.append(int(tid))
        except (FileNotFoundError, ProcessLookupError):
            pass
    return found

def until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)

async def ask(n, port=80):
    loop = asyncio.get_running_loop()
    return await asyncio.gather(*(loop.getaddrinfo(f"slow{i}", port) for i in range(n)))

def begin(loop, n, port=80):
    # The look-ups are asked for when this returns.
    task = loop.create_task(ask(n, port))
    for _ in range(3):
        loop.run_until_complete(asyncio.sleep(0))
    return task

# Read from files while they can be read.
"slow".encode("idna")
import goloop.watchdog
MOST = min(32, (os.cpu_count() or 1) + 4)
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library in front of libc."""
    folder = tmp_path_factory.mktemp("slow")
    source, target = folder / "slow.c", folder / "slow.so"
    source.write_text(SLOW)
    compiler = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    command = [*shlex.split(compiler), "-fPIC", "-shared", "-pthread", str(source), "-ldl"]
    subprocess.run([*command, "-o", str(target)], check=True)
    folder.chmod(0o755)
    return target


def passes(program: str, library: Path) -> None:
    """Runs a program that must end well."""
    preload = " ".join(filter(None, [os.environ.get("LD_PRELOAD"), str(library)]))
    environ = {"LD_PRELOAD": preload, "SLOW": str(library)}
    done = ended.python("-c", PRELUDE + program, limit=TIME_LIMIT, **environ)
    assert done.returncode == 0, f"ended with {done.returncode}\n{done.stdout}"


def test_many_look_ups_have_few_threads_that_end_with_the_loop(library: Path) -> None:
    passes(
        """
def body():
    loop = goloop.new_event_loop()
    task = begin(loop, 200, 81)
    slow.slow_wait_inside(MOST)
    loop.run_until_complete(asyncio.sleep(0.05))  # in which no more of them begin
    assert len(resolvers()) == MOST
    slow.slow_open(1)
    answers = loop.run_until_complete(task)
    assert len(answers) == 200
    assert all(answer[0][4] == ("127.0.0.1", 81) for answer in answers)
    assert slow.slow_most() == MOST and slow.slow_calls() == 200
    loop.close()
    until(lambda: not resolvers())
    slow.slow_open(0)

body()
""",
        library,
    )


def test_each_loop_has_its_own_threads_which_end_with_it(library: Path) -> None:
    passes(
        """
slow.slow_open(1)
first, second = goloop.new_event_loop(), goloop.new_event_loop()
first.run_until_complete(ask(1))
assert len(resolvers()) == 1
second.run_until_complete(ask(1))
assert len(resolvers()) == 2
first.close()
until(lambda: len(resolvers()) == 1)
second.run_until_complete(ask(1))
second.close()
until(lambda: not resolvers())
""",
        library,
    )


def test_idle_threads_end(library: Path) -> None:
    passes(
        """
from goloop._internal.net import resolver_threads
resolver_threads._IDLE_SECONDS = 0.01
slow.slow_open(1)
loop = goloop.new_event_loop()
for n in (1, 3):  # and they come again
    assert len(loop.run_until_complete(ask(n))) == n
    until(lambda: not resolvers())
loop.close()
""",
        library,
    )


def test_cancelled_lookup_in_the_queue_never_starts(library: Path) -> None:
    passes(
        """
loop = goloop.new_event_loop()
held = begin(loop, MOST)
slow.slow_wait_inside(MOST)
waiting = begin(loop, 20)
waiting.cancel()
try:
    loop.run_until_complete(waiting)
except asyncio.CancelledError:
    pass
assert loop.metrics().dns_in_flight == MOST
slow.slow_open(1)
loop.run_until_complete(held)
assert len(loop.run_until_complete(ask(1))) == 1
assert slow.slow_calls() == MOST + 1
assert loop.metrics().dns_in_flight == 0
loop.close()
""",
        library,
    )


@pytest.mark.parametrize("answered", [False, True])
@pytest.mark.parametrize("closed", [False, True])
def test_pending_lookup_does_not_keep_the_process_alive(
    library: Path, answered: bool, closed: bool
) -> None:
    # If the look-up is answered, it is when Python ends.
    passes(
        f"""
import atexit
warnings.simplefilter("ignore")
loop = goloop.new_event_loop()
task = begin(loop, 5)
slow.slow_wait_inside(5 if MOST >= 5 else MOST)
if {answered}:
    atexit.register(slow.slow_open, 1)
if {closed}:
    task.cancel()
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
""",
        library,
    )


def test_closing_a_loop_does_not_disturb_others(library: Path) -> None:
    passes(
        """
warnings.simplefilter("ignore")
async def give_up():
    future = asyncio.ensure_future(ask(50))
    for _ in range(3):
        await asyncio.sleep(0)
    slow.slow_wait_inside(MOST)
    future.cancel()

other = goloop.new_event_loop()
loop = goloop.new_event_loop()
loop.run_until_complete(give_up())
loop.close()
del loop
gc.collect()
slow.slow_open(1)
assert len(other.run_until_complete(ask(2))) == 2
assert slow.slow_calls() == MOST + 2, slow.slow_calls()
other.close()
until(lambda: not resolvers())
""",
        library,
    )


def test_resolver_threads_take_no_signal(library: Path) -> None:
    passes(
        """
loop = goloop.new_event_loop()
task = begin(loop, 1)
slow.slow_wait_inside(1)
with open(f"/proc/self/task/{resolvers()[0]}/status") as file:
    mask = next(int(line.split()[1], 16) for line in file if line.startswith("SigBlk"))
blocked = {n for n in range(1, 65) if mask >> (n - 1) & 1}
assert blocked >= signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}, blocked
assert not signal.pthread_sigmask(signal.SIG_BLOCK, [])
slow.slow_open(1)
loop.run_until_complete(task)
loop.close()
""",
        library,
    )


def test_child_forked_during_a_lookup_has_its_own_threads(library: Path) -> None:
    passes(
        """
loop = goloop.new_event_loop()
task = begin(loop, 10)
slow.slow_wait_inside(MOST)
pid = os.fork()
if pid == 0:
    code = 1
    try:
        assert not resolvers()
        child = goloop.new_event_loop()
        answer = child.run_until_complete(child.getaddrinfo("localhost", 82))
        assert answer[0][4][1] == 82
        assert len(resolvers()) == 1
        child.close()
        until(lambda: not resolvers())
        code = 0
    finally:
        os._exit(code)
assert os.waitpid(pid, 0)[1] == 0
slow.slow_open(1)
assert len(loop.run_until_complete(task)) == 10
loop.close()
""",
        library,
    )


def test_fork_at_the_start_of_a_lookup_does_not_deadlock(library: Path) -> None:
    # Between any two lines a signal's handler may run, or a collection, and fork.
    passes(
        """
warnings.simplefilter("ignore")
slow.slow_open(1)
from goloop._internal.net import resolver_threads
forks = 0
def strike(frame, event, argument):
    global left, forks
    if frame.f_code.co_filename != resolver_threads.__file__:
        return None
    left -= event == "line"
    if left == 0:
        sys.settrace(None)
        pid = os.fork()
        if pid == 0:
            child = goloop.new_event_loop()
            child.run_until_complete(child.getaddrinfo("localhost", 80))
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        forks += 1
    return strike
for which in range(1, 12):
    left = which
    loop = goloop.new_event_loop()
    asking = loop.getaddrinfo("slow", 80)
    sys.settrace(strike)
    asking.send(None)
    sys.settrace(None)
    asking.close()
    loop.close()
assert forks == 11, forks
""",
        library,
    )


def test_no_thread_is_about_to_end_when_the_process_forks(library: Path) -> None:
    passes(
        """
slow.slow_open(1)
for n in (1, 3, 1):
    loop = goloop.new_event_loop()
    assert len(loop.run_until_complete(ask(n))) == n
    loop.close()  # the threads end now
    until(lambda: slow.slow_is_held() or not resolvers())
    pid = os.fork()
    if pid == 0:
        os._exit(slow.slow_is_held())
    until(lambda: not resolvers())  # /proc lists a thread for a moment after it was joined
    assert os.waitpid(pid, 0)[1] == 0
""",
        library,
    )


def test_a_fork_does_not_wait_for_the_threads_of_another_loop(library: Path) -> None:
    passes(
        """
idle = goloop.new_event_loop()
slow.slow_open(1)
idle.run_until_complete(ask(2))
slow.slow_open(0)
task = begin(idle, 1)
slow.slow_wait_inside(1)
before = resolvers()
pid = os.fork()  # one thread looks up a name for as long as the program likes, others wait
if pid == 0:
    os._exit(slow.slow_is_held())
assert os.waitpid(pid, 0)[1] == 0
assert set(before) <= set(resolvers())
slow.slow_open(1)
assert len(idle.run_until_complete(task)) == 1
idle.close()
until(lambda: not resolvers())
""",
        library,
    )


@pytest.mark.forks
def test_child_forked_during_a_lookup_starts_go(library: Path) -> None:
    # The child has the memory of threads that looked up names for threads of its own, and
    # glibc's lock as it was.
    passes(
        """
warnings.simplefilter("ignore")
goloop.run(asyncio.sleep(0))
for _ in range(4):
    slow.slow_resolve()
for n in range(60):
    pid = os.fork()
    if pid == 0:
        goloop.run(asyncio.sleep(0))
        os._exit(0)
    ended = []
    def has_ended():
        ended[:] = os.waitpid(pid, os.WNOHANG)
        return ended[0] == pid
    try:
        until(has_ended)
    except AssertionError:
        os.kill(pid, signal.SIGKILL)
        raise
    assert ended[1] == 0, n
""",
        library,
    )


LIMITED = """
user = 1_000_000 + os.getpid()
os.setresuid(user, user, user)
loop = goloop.new_event_loop()
loop.run_until_complete(asyncio.sleep(0))

def limit(more):
    now = len(os.listdir("/proc/self/task"))
    hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    resource.setrlimit(resource.RLIMIT_NPROC, (now + more, hard))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="the limit counts all threads of a user")
def test_a_lookup_without_a_thread_is_an_error(library: Path) -> None:
    passes(
        LIMITED
        + """
limit(0)
for _ in range(3):
    try:
        loop.run_until_complete(ask(1))
    except RuntimeError as exc:
        assert str(exc) == "can't start new thread"
    else:
        raise AssertionError("a thread was started")
limit(1)
slow.slow_open(1)
assert len(loop.run_until_complete(ask(20))) == 20
loop.close()
until(lambda: not resolvers())
""",
        library,
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="the limit counts all threads of a user")
def test_single_resolver_thread_answers_all_lookups(library: Path) -> None:
    passes(
        LIMITED
        + """
limit(1)
task = begin(loop, 20)
slow.slow_wait_inside(1)
loop.run_until_complete(asyncio.sleep(0.05))
assert len(resolvers()) == 1
slow.slow_open(1)
assert len(loop.run_until_complete(task)) == 20
assert slow.slow_most() == 1
loop.close()
""",
        library,
    )
