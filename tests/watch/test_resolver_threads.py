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

SCENARIOS = Path(__file__).with_name("resolver_threads_scenarios.py")

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


def passes(name: str, library: Path, *arguments: object) -> None:
    preload = " ".join(filter(None, [os.environ.get("LD_PRELOAD"), str(library)]))
    ended.passes(SCENARIOS, name, *arguments, LD_PRELOAD=preload, SLOW=str(library))


@pytest.mark.parametrize(
    "name",
    [
        "many_look_ups_have_few_threads_that_end_with_the_loop",
        "each_loop_has_its_own_threads_which_end_with_it",
        "idle_threads_end",
        "cancelled_lookup_in_the_queue_never_starts",
        "closing_a_loop_does_not_disturb_others",
        "resolver_threads_take_no_signal",
        "child_forked_during_a_lookup_has_its_own_threads",
        "fork_at_the_start_of_a_lookup_does_not_deadlock",
        "no_thread_is_about_to_end_when_the_process_forks",
        "a_fork_does_not_wait_for_the_threads_of_another_loop",
    ],
)
def test_names_are_resolved_on_threads_of_the_loop(name: str, library: Path) -> None:
    passes(name, library)


@pytest.mark.parametrize("answered", [False, True])
@pytest.mark.parametrize("closed", [False, True])
def test_pending_lookup_does_not_keep_the_process_alive(
    library: Path, answered: bool, closed: bool
) -> None:
    # If the look-up is answered, it is when Python ends.
    passes("pending_lookup_does_not_keep_the_process_alive", library, answered, closed)


@pytest.mark.forks
def test_child_forked_during_a_lookup_starts_go(library: Path) -> None:
    # The child has the memory of threads that looked up names for threads of its own, and
    # glibc's lock as it was.
    passes("child_forked_during_a_lookup_starts_go", library)


@pytest.mark.skipif(os.geteuid() != 0, reason="the limit counts all threads of a user")
def test_a_lookup_without_a_thread_is_an_error(library: Path) -> None:
    passes("a_lookup_without_a_thread_is_an_error", library)


@pytest.mark.skipif(os.geteuid() != 0, reason="the limit counts all threads of a user")
def test_single_resolver_thread_answers_all_lookups(library: Path) -> None:
    passes("single_resolver_thread_answers_all_lookups", library)
