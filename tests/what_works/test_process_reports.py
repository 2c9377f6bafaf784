"""Public bug reports about child processes: each program of a report ends as on asyncio."""

from __future__ import annotations

import asyncio
import getpass
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

PIPE = asyncio.subprocess.PIPE
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the programs look into /proc")


def child(program: str) -> tuple[str, str, str]:
    return sys.executable, "-c", program


@pytest.mark.report("MagicStack/uvloop#40")
async def test_starting_a_child_leaves_the_standard_streams_inheritable(
    loop: asyncio.AbstractEventLoop,
) -> None:
    before = [os.get_inheritable(fd) for fd in range(3)]
    process = await asyncio.create_subprocess_exec("true", stdin=None, stdout=None)
    assert await process.wait() == 0
    assert [os.get_inheritable(fd) for fd in range(3)] == before


@pytest.mark.report("MagicStack/uvloop#90")
async def test_cwd_of_a_child_can_be_a_path(
    loop: asyncio.AbstractEventLoop, tmp_path: Path
) -> None:
    process = await asyncio.create_subprocess_exec("pwd", "-P", cwd=tmp_path, stdout=PIPE)
    said, _ = await process.communicate()
    assert said.decode().rstrip() == str(tmp_path.resolve())


@pytest.mark.report("MagicStack/uvloop#136")
async def test_stdout_of_a_child_can_be_an_open_file(
    loop: asyncio.AbstractEventLoop, tmp_path: Path
) -> None:
    with (tmp_path / "out").open("w") as out:
        process = await asyncio.create_subprocess_exec("echo", "1", stdout=out)
        await process.communicate()
    assert (tmp_path / "out").read_text() == "1\n"


@pytest.mark.report("MagicStack/uvloop#185")
async def test_failed_starts_leave_no_descriptors(loop: asyncio.AbstractEventLoop) -> None:
    before = os.listdir("/proc/self/fd")
    for _ in range(50):
        with pytest.raises(FileNotFoundError):
            await asyncio.create_subprocess_exec("/nonexistent", stdin=PIPE, stdout=PIPE)
    await asyncio.sleep(0)
    assert len(os.listdir("/proc/self/fd")) <= len(before) + 1


@pytest.mark.report("MagicStack/uvloop#328")
async def test_program_and_arguments_can_be_paths(
    loop: asyncio.AbstractEventLoop, tmp_path: Path
) -> None:
    (tmp_path / "text").write_text("found")
    cat = Path("/bin/cat")
    process = await asyncio.create_subprocess_exec(cat, tmp_path / "text", stdout=PIPE)
    assert await process.communicate() == (b"found", None)


@pytest.mark.report("MagicStack/uvloop#363")
async def test_communicate_sends_more_than_a_pipe_can_hold(loop: asyncio.AbstractEventLoop) -> None:
    sent = b"x" * 300_001
    process = await asyncio.create_subprocess_exec("cat", stdin=PIPE, stdout=PIPE, stderr=PIPE)
    said, errors = await asyncio.wait_for(process.communicate(sent), 30)
    assert (len(said), errors) == (len(sent), b"")


@pytest.mark.report("MagicStack/uvloop#414")
async def test_failing_preexec_fn_closes_no_descriptor_of_others(
    loop: asyncio.AbstractEventLoop,
) -> None:
    def fail() -> None:
        raise ValueError

    for _ in range(5):
        with pytest.raises(subprocess.SubprocessError):
            await asyncio.create_subprocess_exec("true", preexec_fn=fail)
        with Path("/dev/null").open() as other:  # has the lowest free descriptor
            await asyncio.sleep(0.001)
            assert os.readlink(f"/proc/self/fd/{other.fileno()}") == "/dev/null"


@pytest.mark.report("MagicStack/uvloop#505")
async def test_child_can_open_its_output_by_name(loop: asyncio.AbstractEventLoop) -> None:
    program = "open('/proc/self/fd/1', 'w').write('test')"
    process = await asyncio.create_subprocess_exec(*child(program), stdout=PIPE, stderr=PIPE)
    assert await process.communicate() == (b"test", b"")


@pytest.mark.report("MagicStack/uvloop#618")
async def test_child_can_run_as_a_named_user(loop: asyncio.AbstractEventLoop) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can choose a child's user")
    user = getpass.getuser()
    process = await asyncio.create_subprocess_shell("id -un", user=user, stdout=PIPE)
    said, _ = await process.communicate()
    assert said.decode().rstrip() == user


@pytest.mark.report("python/asyncio#209")
async def test_child_with_close_fds_false_sees_the_end_of_its_input(
    loop: asyncio.AbstractEventLoop,
) -> None:
    process = await asyncio.create_subprocess_exec(
        "cat", stdin=PIPE, stdout=PIPE, stderr=PIPE, close_fds=False
    )
    assert await asyncio.wait_for(process.communicate(b"in"), 30) == (b"in", b"")


@pytest.mark.report("python/cpython#76296")
@pytest.mark.goloop_only("the start fails if the kernel has reaped the child already")
def test_child_is_awaited_while_sigchld_is_ignored(loop: asyncio.AbstractEventLoop) -> None:
    async def main() -> None:
        process = await asyncio.create_subprocess_exec("true")
        await asyncio.wait_for(process.wait(), 30)

    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        loop.run_until_complete(main())
    finally:
        signal.signal(signal.SIGCHLD, before)


@pytest.mark.report("python/cpython#79802")
def test_loop_of_another_thread_starts_children(loop: asyncio.AbstractEventLoop) -> None:
    found: list[int] = []

    async def main() -> None:
        process = await asyncio.create_subprocess_exec("false")
        found.append(await process.wait())

    thread = threading.Thread(target=lambda: loop.run_until_complete(main()))
    thread.start()
    thread.join(60)
    assert found == [1]


@pytest.mark.report("python/cpython#133536")
async def test_start_ends_beside_a_task_that_fails(loop: asyncio.AbstractEventLoop) -> None:
    process: Any = None

    async def start() -> None:
        nonlocal process
        process = await asyncio.create_subprocess_exec("cat", stdin=PIPE, stdout=PIPE, stderr=PIPE)

    async def fail() -> None:
        raise ZeroDivisionError

    starting = loop.create_task(start())
    with pytest.raises(ZeroDivisionError):
        await asyncio.gather(starting, fail())
    await asyncio.wait_for(starting, 30)
    assert await asyncio.wait_for(process.communicate(b""), 30) == (b"", b"")
