"""The scenarios of test_limits.py: `python limits_scenarios.py NAME` runs one."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import os
import re
import resource
import struct
import sys
import threading
import warnings

LOOP = sys.argv[2]


def new_loop():
    if LOOP == "asyncio":
        return asyncio.SelectorEventLoop()
    import goloop

    return goloop.new_event_loop()


async def echo(reader, writer):
    writer.write(await reader.read(10))
    writer.close()


async def asks_and_answers():
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    writer.write(b"question")
    assert await reader.read() == b"question"
    writer.close()
    server.close()


def body():
    loop = new_loop()
    loop.run_until_complete(asks_and_answers())
    loop.close()


def call(deep, function):
    """Calls the function below `deep` calls, which take some 500 bytes each."""
    return next(map(call, [deep - 1], [function])) if deep else function()


def in_small_thread(deep, function):
    """The result of a function, or its exception, in a thread with CPython's least stack."""
    outcome = []

    def guarded():
        try:
            outcome.append(function())
        except Exception as exc:
            outcome.append(f"{type(exc).__name__}: {exc}")

    old = threading.stack_size(32768)
    thread = threading.Thread(target=call, args=(deep, guarded))
    thread.start()
    thread.join()
    threading.stack_size(old)
    return outcome[0]


async def works():
    """A server with a client, and a timer."""
    await asks_and_answers()
    await asyncio.sleep(0.001)


def attempt(main=works):
    """The outcome of a loop: "fine", or an exception of a kind that a program may expect."""
    warnings.simplefilter("ignore")  # of a coroutine that no loop has run
    try:
        loop = new_loop()
        try:
            loop.run_until_complete(main())
        finally:
            loop.close()
    except (ImportError, MemoryError, OSError, RuntimeError) as exc:
        return f"{type(exc).__name__}: {exc}"
    return "fine"


def refuse(number, errno):
    """A filter of the kernel's: this system call fails, all others are made."""
    instructions = [
        (0x20, 0, 0, 0),  # the number of the call
        (0x15, 0, 1, number),  # the refused one?
        (0x06, 0, 0, 0x00050000 | errno),  # SECCOMP_RET_ERRNO
        (0x06, 0, 0, 0x7FFF0000),  # SECCOMP_RET_ALLOW
    ]
    code = b"".join(struct.pack("HBBI", *each) for each in instructions)
    buffer = ctypes.create_string_buffer(code, len(code))

    class Program(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]

    program = Program(len(instructions), ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(38, 1, 0, 0, 0) == 0
    assert libc.prctl(22, 2, ctypes.byref(program), 0, 0) == 0, ctypes.get_errno()


def limit_threads(threads):
    hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    resource.setrlimit(resource.RLIMIT_NPROC, (threads, hard))


def the_limit_of_open_files_stays() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (123, hard))
    loop = new_loop()
    loop.run_until_complete(asyncio.sleep(0))
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (123, hard)

    async def child():
        script = "import resource; print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", script, stdout=-1)
        out, _ = await process.communicate()
        assert out == b"123\n", out

    loop.run_until_complete(child())
    loop.close()
    pid = os.fork()
    if pid == 0:
        new_loop().close()
        os._exit(resource.getrlimit(resource.RLIMIT_NOFILE) != (123, hard))
    assert os.waitpid(pid, 0)[1] == 0


def the_limit_that_was_found_stays() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    new_loop().close()
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == before


def a_first_loop_without_free_descriptors_is_an_oserror() -> None:
    if LOOP == "goloop":
        import goloop  # noqa: F401
    if sys.argv[4] == "True":
        new_loop().close()
        if os.fork():
            sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    fd = os.dup(0)
    os.close(fd)
    resource.setrlimit(resource.RLIMIT_NOFILE, (fd + int(sys.argv[3]), hard))
    try:
        loop = new_loop()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
        error = None
    except OSError as exc:
        error = exc.errno
    assert error == (None if int(sys.argv[3]) >= int(sys.argv[5]) else errno.EMFILE), error
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    loop = new_loop()
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()


def a_loop_closes_no_number_that_is_somebody_elses() -> None:
    def numbers():
        found = set()
        for name in os.listdir("/proc/self/fd"):
            try:
                if os.readlink(f"/proc/self/fd/{name}") == sys.argv[3]:
                    found.add(int(name))
            except FileNotFoundError:
                pass
        return found

    async def main():
        await asyncio.sleep(0.001)

    new_loop().close()
    before = numbers()
    loop = new_loop()
    loop.run_until_complete(main())
    (lost,) = numbers() - before
    os.close(lost)

    def attempt():
        coroutine = main()
        try:
            loop.run_until_complete(coroutine)
        except OSError as exc:
            print(exc)
            coroutine.close()
            return exc.errno
        return 0

    if "eventpoll" in sys.argv[3]:
        assert attempt() == 9
    other = os.open("/dev/null", os.O_RDONLY)
    os.dup2(other, lost)
    os.close(other) if other != lost else None
    if "eventpoll" in sys.argv[3]:
        assert attempt() == 9
    loop.close()
    os.fstat(lost)


def a_loop_in_a_small_thread() -> None:
    deep = int(sys.argv[3])
    if LOOP == "goloop":
        import goloop  # noqa: F401  (which takes more stack than a loop does)
    if sys.argv[4] == "opened":
        new_loop().close()
    print(in_small_thread(deep, body))


def a_run_on_a_stack_that_is_too_small_is_refused() -> None:
    deep = int(sys.argv[3])
    if LOOP == "goloop":
        import goloop  # noqa: F401  (which takes more stack than a loop does)
    if sys.argv[4] == "opened":
        new_loop().close()
    loop = new_loop()
    wrong = in_small_thread(deep, lambda: loop.run_forever())
    assert wrong.startswith("RuntimeError: This thread has less stack"), wrong
    loop.run_until_complete(asks_and_answers())
    loop.close()


def a_limit_of_address_space() -> None:
    import goloop  # noqa: F401

    with open("/proc/self/status") as file:
        status = file.read()
    size = int(re.search(r"VmSize:\s+(\d+)", status).group(1)) << 10
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (size + (int(sys.argv[3]) << 20), hard))
    outcome = attempt()
    resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
    assert attempt() == "fine"
    print(outcome)


def locked_memory() -> None:
    import encodings.idna  # noqa: F401

    import goloop  # noqa: F401

    hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (8 << 20, hard))
    if os.geteuid() == 0:
        os.setresuid(65534, 65534, 65534)  # root may lock as much as it likes
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mlockall(2) == 0, ctypes.get_errno()  # MCL_FUTURE
    print(attempt())


def refused_system_calls() -> None:
    import goloop  # noqa: F401

    when, errno = sys.argv[3], int(sys.argv[4])
    if when == "later":
        assert attempt() == "fine"
    for number in sys.argv[5:]:
        refuse(int(number), errno)
    print(attempt())
    print(attempt())


def too_few_descriptors_are_met_by_an_exception() -> None:
    import goloop  # noqa: F401

    async def sleeps():
        await asyncio.sleep(0.001)

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    fd = os.dup(0)
    os.close(fd)
    resource.setrlimit(resource.RLIMIT_NOFILE, (fd + int(sys.argv[3]), hard))
    outcomes = [attempt(sleeps), attempt(sleeps)]
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (fd + int(sys.argv[3]), hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert attempt(sleeps) == "fine"
    print(outcomes)


def a_loop_runs_where_no_memory_may_be_locked() -> None:
    import goloop  # noqa: F401

    resource.setrlimit(resource.RLIMIT_MEMLOCK, (0, 0))
    assert attempt() == "fine"


def too_few_threads_are_met_by_an_exception() -> None:
    import goloop

    # A user that no other process has, for the limit counts all threads of a user; root has none.
    if os.geteuid() == 0:
        import goloop.watchdog  # noqa: F401  (reads files of root's)

        user = 1_000_000 + os.getpid()
        os.setresuid(user, user, user)
    limit_threads(int(sys.argv[3]))
    outcome = attempt()
    if outcome != "fine":
        assert outcome.startswith("ImportError: The Go library can't be started here: "), outcome
        limit_threads(100)
        assert attempt() == "fine"
    print(outcome)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
