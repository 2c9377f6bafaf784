"""The limits of a process: goloop changes none, and meets each with an exception.

Each scenario is a program of its own, since it lowers a limit for good.
"""

from __future__ import annotations

import os
import platform
import sys

import ended
import pytest

TIME_LIMIT = 100  # seconds

PRELUDE = """
import asyncio, os, resource, sys
LOOP = sys.argv[1]

def new_loop():
    if LOOP == "asyncio":
        return asyncio.SelectorEventLoop()
    import goloop
    return goloop.new_event_loop()
"""


def run(program: str, loop: str, *arguments: str) -> tuple[int, str]:
    """Runs a program; its exit code (negative: the signal it died of) and its output."""
    done = ended.python("-c", PRELUDE + program, loop, *arguments, limit=TIME_LIMIT)
    return done.returncode, done.stdout


def passes(program: str, loop: str, *arguments: str) -> None:
    """Runs a program that must end well."""
    code, output = run(program, loop, *arguments)
    assert code == 0, f"ended with {code}\n{output}"


# ---- the limit of open files -------------------------------------------------------


@pytest.mark.forks
def test_the_limit_of_open_files_stays(loop_name: str) -> None:
    passes(
        """
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (123, hard))
loop = new_loop()
loop.run_until_complete(asyncio.sleep(0))
assert resource.getrlimit(resource.RLIMIT_NOFILE) == (123, hard)

async def child():
    script = "import resource; print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", script, stdout=-1)
    out, _ = await process.communicate()
    assert out == b"123\\n", out

loop.run_until_complete(child())
loop.close()
pid = os.fork()
if pid == 0:
    new_loop().close()
    os._exit(resource.getrlimit(resource.RLIMIT_NOFILE) != (123, hard))
assert os.waitpid(pid, 0)[1] == 0
""",
        loop_name,
    )


def test_the_limit_that_was_found_stays(loop_name: str) -> None:
    passes(
        """
before = resource.getrlimit(resource.RLIMIT_NOFILE)
new_loop().close()
assert resource.getrlimit(resource.RLIMIT_NOFILE) == before
""",
        loop_name,
    )


# ---- the stack of a thread ---------------------------------------------------------

# A thread with CPython's least stack, of which `deep` calls take some 500 bytes each.
SMALL_STACK = """
import threading

async def echo(reader, writer):
    writer.write(await reader.read(10))
    writer.close()

async def main():
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    writer.write(b"question")
    assert await reader.read() == b"question"
    writer.close()
    server.close()

def body():
    loop = new_loop()
    loop.run_until_complete(main())
    loop.close()

def call(deep, function):
    return next(map(call, [deep - 1], [function])) if deep else function()

def in_small_thread(deep, function):
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

deep = int(sys.argv[2])
if LOOP == "goloop":
    import goloop  # which takes more stack than a loop does
if sys.argv[3] == "opened":
    new_loop().close()
"""


@pytest.mark.parametrize("when", ["first", "opened"])
def test_a_loop_runs_in_a_thread_of_32_kib(loop_name: str, when: str) -> None:
    if sys.version_info >= (3, 14):
        pytest.skip("CPython keeps more than that in reserve")
    passes(SMALL_STACK + "print(in_small_thread(0, body))", loop_name, "0", when)


@pytest.mark.parametrize("when", ["first", "opened"])
@pytest.mark.parametrize("deep", [8, 16, 24, 32])
def test_a_stack_that_is_too_small_is_refused(deep: int, when: str) -> None:
    if sys.version_info >= (3, 14):
        pytest.skip("CPython keeps more than that in reserve")
    program = SMALL_STACK + "print(in_small_thread(deep, body))"
    code, output = run(program, "goloop", str(deep), when)
    assert code == 0, f"ended with {code}\n{output}"
    assert output == "None\n" or output.startswith("RuntimeError: This thread has less stack")


def test_a_run_on_a_stack_that_is_too_small_is_refused() -> None:
    if sys.version_info >= (3, 14):
        pytest.skip("CPython keeps more than that in reserve")
    passes(
        SMALL_STACK
        + """
loop = new_loop()
wrong = in_small_thread(deep, lambda: loop.run_forever())
assert wrong.startswith("RuntimeError: This thread has less stack"), wrong
loop.run_until_complete(main())
loop.close()
""",
        "goloop",
        "30",
        "first",
    )


# ---- requirements of Go at its start -------------------------------------------------

# Prints the outcome of a loop: "fine", or an exception of a kind that a program may expect.
TRY = """
async def main():
    async def echo(reader, writer):
        writer.write(await reader.read(10))
        writer.close()
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    writer.write(b"question")
    assert await reader.read() == b"question"
    writer.close()
    server.close()
    await asyncio.sleep(0.001)

def attempt():
    try:
        loop = new_loop()
        try:
            loop.run_until_complete(main())
        finally:
            loop.close()
    except (ImportError, MemoryError, OSError, RuntimeError) as exc:
        return f"{type(exc).__name__}: {exc}"
    return "fine"

import goloop, ctypes, re, warnings
warnings.simplefilter("ignore")  # of a coroutine that no loop has run
"""


def test_a_limit_of_address_space_is_met_by_an_exception(loop_name: str) -> None:
    """A limit of any size is met by an exception, and lifting it helps."""
    program = (
        TRY
        + """
status = open("/proc/self/status").read()
size = int(re.search(r"VmSize:\\s+(\\d+)", status).group(1)) << 10
hard = resource.getrlimit(resource.RLIMIT_AS)[1]
resource.setrlimit(resource.RLIMIT_AS, (size + (int(sys.argv[2]) << 20), hard))
outcome = attempt()
resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
assert attempt() == "fine"
print(outcome)
"""
    )
    sizes = [1, 2, 3, 4, 8, 16, 40, 100, 300, 600, 700, 800, 1000, 1100, 1200, 1400, 1700, 2500]
    outcomes = {}
    for size in sizes:
        code, outcomes[size] = run(program, loop_name, str(size))
        assert code == 0, f"{size} MB: ended with {code}\n{outcomes[size]}"
    assert outcomes[2500] == "fine\n", outcomes
    if loop_name == "goloop":
        assert "address space" in outcomes[300], outcomes


def test_locked_memory_is_met_by_an_exception(loop_name: str) -> None:
    """If all mapped memory has to be locked, and may not be, Go would end the process."""
    program = (
        TRY
        + """
import encodings.idna
hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]
resource.setrlimit(resource.RLIMIT_MEMLOCK, (8 << 20, hard))
if os.geteuid() == 0:
    os.setresuid(65534, 65534, 65534)  # root may lock as much as it likes
libc = ctypes.CDLL(None, use_errno=True)
assert libc.mlockall(2) == 0, ctypes.get_errno()  # MCL_FUTURE
print(attempt())
"""
    )
    code, outcome = run(program, loop_name)
    assert code == 0, outcome
    if loop_name == "goloop":
        assert "RLIMIT_MEMLOCK after mlockall" in outcome


SECCOMP = (
    TRY
    + """
import struct

def refuse(number, errno):
    # A filter of the kernel's: this system call fails, all others are made.
    instructions = [
        (0x20, 0, 0, 0),                      # the number of the call
        (0x15, 0, 1, number),                 # this one?
        (0x06, 0, 0, 0x00050000 | errno),     # SECCOMP_RET_ERRNO
        (0x06, 0, 0, 0x7FFF0000),             # SECCOMP_RET_ALLOW
    ]
    code = b"".join(struct.pack("HBBI", *each) for each in instructions)
    buffer = ctypes.create_string_buffer(code, len(code))
    class Program(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]
    program = Program(len(instructions), ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(38, 1, 0, 0, 0) == 0
    assert libc.prctl(22, 2, ctypes.byref(program), 0, 0) == 0, ctypes.get_errno()

when, errno = sys.argv[2], int(sys.argv[3])
if when == "later":
    assert attempt() == "fine"
for number in sys.argv[4:]:
    refuse(int(number), errno)
print(attempt())
print(attempt())
"""
)

# The numbers of x86-64.
REFUSED = {
    "sigaltstack": 131,
    "clone3": 435,
    "eventfd2": 290,
    "epoll_create1": 291,
    "epoll_pwait2": 441,
    "timerfd_create": 283,
}


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the numbers are x86-64's")
@pytest.mark.parametrize("errno", [1, 38], ids=["EPERM", "ENOSYS"])
@pytest.mark.parametrize("when", ["first", "later"])
@pytest.mark.parametrize("call", [*REFUSED, "epoll_pwait2+timerfd_create"])
def test_a_refused_system_call_is_survived_or_an_exception(
    call: str, when: str, errno: int
) -> None:
    numbers = [str(REFUSED[each]) for each in call.split("+")]
    code, output = run(SECCOMP, "goloop", when, str(errno), *numbers)
    assert code == 0, f"ended with {code}\n{output}"
    first, second = output.splitlines()
    assert first == second, output
    unharmed = {"epoll_pwait2", "timerfd_create"}
    if unharmed.issuperset(call.split("+")) or (
        call == "clone3" and (errno == 38 or when == "later")
    ):
        assert first == "fine"
    else:
        assert first.startswith(("ImportError", "OSError", "RuntimeError", "PermissionError"))


@pytest.mark.parametrize("free", range(12))
def test_too_few_descriptors_are_met_by_an_exception(loop_name: str, free: int) -> None:
    passes(
        TRY
        + """
async def main():
    await asyncio.sleep(0.001)

soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
fd = os.dup(0)
os.close(fd)
resource.setrlimit(resource.RLIMIT_NOFILE, (fd + int(sys.argv[2]), hard))
outcomes = [attempt(), attempt()]
assert resource.getrlimit(resource.RLIMIT_NOFILE) == (fd + int(sys.argv[2]), hard)
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
assert attempt() == "fine"
print(outcomes)
""",
        loop_name,
        str(free),
    )


# A poller and a pair of sockets that wakes it; or a poller, its wakeup, and a pipe for signals.
NEEDED = {"asyncio": 3, "goloop": 4}


@pytest.mark.forks
@pytest.mark.parametrize("forks", [False, True], ids=["here", "in a child"])
@pytest.mark.parametrize("free", range(5))
def test_a_first_loop_without_free_descriptors_is_an_oserror(
    loop_name: str, free: int, forks: bool
) -> None:
    passes(
        """
import errno
if LOOP == "goloop":
    import goloop
if sys.argv[3] == "True":
    new_loop().close()
    if os.fork():
        sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
fd = os.dup(0)
os.close(fd)
resource.setrlimit(resource.RLIMIT_NOFILE, (fd + int(sys.argv[2]), hard))
try:
    loop = new_loop()
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    error = None
except OSError as exc:
    error = exc.errno
assert error == (None if int(sys.argv[2]) >= int(sys.argv[4]) else errno.EMFILE), error
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
loop = new_loop()
loop.run_until_complete(asyncio.sleep(0))
loop.close()
""",
        *(loop_name, str(free), str(forks), str(NEEDED[loop_name])),
    )


def test_a_loop_runs_where_no_memory_may_be_locked(loop_name: str) -> None:
    passes(
        TRY + "resource.setrlimit(resource.RLIMIT_MEMLOCK, (0, 0)); assert attempt() == 'fine'",
        loop_name,
    )


NPROC = (
    TRY
    + """
import threading
# A user that nobody else is, for the limit counts all threads of a user; root has none.
if os.geteuid() == 0:
    import goloop.watchdog  # what is read from files of root's is read before
    user = 1_000_000 + os.getpid()
    os.setresuid(user, user, user)

def limit(threads):
    hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    resource.setrlimit(resource.RLIMIT_NPROC, (threads, hard))
"""
)


@pytest.mark.parametrize("threads", range(1, 12))
def test_too_few_threads_are_met_by_an_exception(threads: int) -> None:
    if os.geteuid() != 0:
        pytest.skip("the limit counts all threads of a user: only root can be another user")
    code, output = run(
        NPROC
        + """
import socket
limit(int(sys.argv[2]))
outcome = attempt()
if outcome != "fine":
    assert outcome.startswith("ImportError: The Go library can't be started here: "), outcome
    limit(100)
    assert attempt() == "fine"
print(outcome)
""",
        "goloop",
        str(threads),
    )
    assert code == 0, f"ended with {code}\n{output}"
    assert threads < 11 or output == "fine\n", output


# ---- descriptors of a loop that somebody closes --------------------------------------


@pytest.mark.parametrize("kind", ["anon_inode:[eventpoll]", "anon_inode:[eventfd]"])
def test_a_loop_closes_no_number_that_is_somebody_elses(kind: str) -> None:
    passes(
        """
def numbers():
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{name}") == sys.argv[2]:
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

if "eventpoll" in sys.argv[2]:
    assert attempt() == 9
other = os.open("/dev/null", os.O_RDONLY)
os.dup2(other, lost)
os.close(other) if other != lost else None
if "eventpoll" in sys.argv[2]:
    assert attempt() == 9
loop.close()
os.fstat(lost)
""",
        "goloop",
        kind,
    )
