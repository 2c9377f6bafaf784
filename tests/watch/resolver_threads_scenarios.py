"""The scenarios of test_resolver_threads.py, each run by its name."""

from __future__ import annotations

import asyncio
import atexit
import ctypes
import gc
import os
import resource
import signal
import sys
import time
import warnings

import goloop
import goloop.watchdog

slow = ctypes.CDLL(os.environ["SLOW"])


def resolvers():
    """The resolver's threads, by their ids."""
    found = []
    for tid in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{tid}/comm") as file:
                if file.read() == "goloop-resolve\n":
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
    """The look-ups are asked for when this returns."""
    task = loop.create_task(ask(n, port))
    for _ in range(3):
        loop.run_until_complete(asyncio.sleep(0))
    return task


# Read from files while they can be read.
"slow".encode("idna")
MOST = min(32, (os.cpu_count() or 1) + 4)


def limited_loop():
    """A loop of a user without other threads, so that limit() counts those of this process."""
    user = 1_000_000 + os.getpid()
    os.setresuid(user, user, user)
    loop = goloop.new_event_loop()
    loop.run_until_complete(asyncio.sleep(0))
    return loop


def limit(more):
    """Let the process start so many more threads."""
    now = len(os.listdir("/proc/self/task"))
    hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    resource.setrlimit(resource.RLIMIT_NPROC, (now + more, hard))


def many_look_ups_have_few_threads_that_end_with_the_loop() -> None:
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


def each_loop_has_its_own_threads_which_end_with_it() -> None:
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


def idle_threads_end() -> None:
    from goloop._internal.net import resolver_threads

    resolver_threads._IDLE_SECONDS = 0.01
    slow.slow_open(1)
    loop = goloop.new_event_loop()
    for n in (1, 3):  # and they come again
        assert len(loop.run_until_complete(ask(n))) == n
        until(lambda: not resolvers())
    loop.close()


def cancelled_lookup_in_the_queue_never_starts() -> None:
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


def pending_lookup_does_not_keep_the_process_alive(answered: str, closed: str) -> None:
    warnings.simplefilter("ignore")
    loop = goloop.new_event_loop()
    task = begin(loop, 5)
    slow.slow_wait_inside(5 if MOST >= 5 else MOST)
    if answered == "True":
        atexit.register(slow.slow_open, 1)
    if closed == "True":
        task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()


def closing_a_loop_does_not_disturb_others() -> None:
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


def resolver_threads_take_no_signal() -> None:
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


def child_forked_during_a_lookup_has_its_own_threads() -> None:
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


def fork_at_the_start_of_a_lookup_does_not_deadlock() -> None:
    # Between any two lines a signal's handler may run, or a collection, and fork.
    warnings.simplefilter("ignore")
    slow.slow_open(1)
    from goloop._internal.net import resolver_threads

    forks = 0

    def strike(frame, event, argument):
        nonlocal left, forks
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


def no_thread_is_about_to_end_when_the_process_forks() -> None:
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


def a_fork_does_not_wait_for_the_threads_of_another_loop() -> None:
    idle = goloop.new_event_loop()
    slow.slow_open(1)
    idle.run_until_complete(ask(2))
    slow.slow_open(0)
    task = begin(idle, 1)
    slow.slow_wait_inside(1)
    before = resolvers()
    pid = os.fork()  # while a thread looks up a name, and others wait
    if pid == 0:
        os._exit(slow.slow_is_held())
    assert os.waitpid(pid, 0)[1] == 0
    assert set(before) <= set(resolvers())
    slow.slow_open(1)
    assert len(idle.run_until_complete(task)) == 1
    idle.close()
    until(lambda: not resolvers())


def child_forked_during_a_lookup_starts_go() -> None:
    warnings.simplefilter("ignore")
    goloop.run(asyncio.sleep(0))
    for _ in range(4):
        slow.slow_resolve()
    for n in range(60):
        pid = os.fork()
        if pid == 0:
            goloop.run(asyncio.sleep(0))
            os._exit(0)
        end = time.monotonic() + 60
        while (ended := os.waitpid(pid, os.WNOHANG))[0] != pid:
            if time.monotonic() >= end:
                os.kill(pid, signal.SIGKILL)
                raise AssertionError(n)
            time.sleep(0.01)
        assert ended[1] == 0, n


def a_lookup_without_a_thread_is_an_error() -> None:
    loop = limited_loop()
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


def single_resolver_thread_answers_all_lookups() -> None:
    loop = limited_loop()
    limit(1)
    task = begin(loop, 20)
    slow.slow_wait_inside(1)
    loop.run_until_complete(asyncio.sleep(0.05))
    assert len(resolvers()) == 1
    slow.slow_open(1)
    assert len(loop.run_until_complete(task)) == 20
    assert slow.slow_most() == 1
    loop.close()


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
