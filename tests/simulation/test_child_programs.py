"""sim.program(): coroutine functions stand for the child processes of a simulation."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from goloop import testing

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="simulated kernels are Linux's")

PIPE, DEVNULL, STDOUT = subprocess.PIPE, subprocess.DEVNULL, subprocess.STDOUT
exec_, shell = asyncio.create_subprocess_exec, asyncio.create_subprocess_shell
ended: list[str] = []


async def upper(process: testing.Process) -> int:
    process.stderr.write(f"{process.args[1:]} {process.env.get('MODE')}".encode())
    async for line in process.stdin:
        process.stdout.write(line.upper())
        await process.stdout.drain()
    return 3


async def fails(process: testing.Process) -> None:
    process.stdout.write(b"before")
    raise ValueError("it fails")


async def exits(process: testing.Process) -> None:
    sys.exit(process.args[1] if len(process.args) > 1 else 7)


async def sleeper(process: testing.Process) -> None:
    process.stdout.write(b"begun\n")
    await process.stdout.drain()
    try:
        await asyncio.sleep(1000)
    finally:
        ended.append("finally")


async def graceful(process: testing.Process) -> int:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    process.stdout.write(b"ready\n")
    await stop.wait()
    process.stdout.write(b"stopped\n")
    return 0


async def large(process: testing.Process) -> None:
    process.stdout.write(bytes(1_000_000))  # more than a pipe's capacity, without drain()


simulated = testing.simulate(seeds=3, max_time=10_000)


def add_programs(sim: testing.Simulation) -> None:
    """Add all programs above to a simulation, and clear their notes."""
    ended.clear()
    for function in (upper, fails, exits, sleeper, graceful, large):
        sim.program(function.__name__, function)


@pytest.mark.parametrize("loop", ["goloop", "asyncio"])
def test_a_program_has_words_an_environment_and_pipes(loop: str) -> None:
    async def main(sim: testing.Simulation) -> None:
        add_programs(sim)
        child = await exec_(
            "upper", "-a", "b", stdin=PIPE, stdout=PIPE, stderr=PIPE, env={"MODE": "x"}
        )
        out, err = await child.communicate(b"one\ntwo\n")
        assert (out, err) == (b"ONE\nTWO\n", b"('-a', 'b') x")
        assert child.returncode == 3
        assert await child.wait() == 3
        child = await exec_("/usr/bin/upper", stdin=PIPE, stdout=PIPE, stderr=STDOUT)
        out, err = await child.communicate(b"one\n")
        assert out == b"() NoneONE\n"
        assert err is None

    testing.simulate(seeds=3, max_time=10_000, loop=loop)(main)()


@simulated
async def test_an_exception_is_exit_1_with_a_traceback_on_stderr(sim: testing.Simulation) -> None:
    add_programs(sim)
    child = await exec_("fails", stdout=PIPE, stderr=PIPE)
    out, err = await child.communicate()
    assert (child.returncode, out) == (1, b"before")
    assert err.startswith(b"Traceback")
    assert err.endswith(b"ValueError: it fails\n")


@simulated
async def test_exit_code_is_the_argument_of_sys_exit(sim: testing.Simulation) -> None:
    add_programs(sim)
    assert await (await exec_("exits")).wait() == 7
    child = await exec_("exits", "with words", stderr=PIPE)
    assert await child.communicate() == (None, b"with words\n")
    assert child.returncode == 1


@pytest.mark.parametrize("way", ["kill", "terminate", "send_signal", "os.kill"])
def test_a_signal_ends_a_program_at_once(way: str) -> None:
    async def main(sim: testing.Simulation) -> None:
        add_programs(sim)
        child = await exec_("sleeper", stdout=PIPE)
        assert child.stdout is not None
        assert await child.stdout.readline() == b"begun\n"
        assert child.returncode is None
        match way:
            case "send_signal":
                child.send_signal(signal.SIGINT)
            case "os.kill":
                os.kill(child.pid, 0)  # the process exists
                os.kill(child.pid, signal.SIGUSR1)
            case _:
                getattr(child, way)()
        code = {"kill": -9, "terminate": -15, "send_signal": -2, "os.kill": -signal.SIGUSR1}[way]
        assert await child.wait() == code
        assert await child.stdout.read() == b""
        with pytest.raises(ProcessLookupError):
            os.kill(child.pid, 0)

    simulated(main)()
    assert ended == []


@simulated
async def test_a_program_may_handle_a_signal(sim: testing.Simulation) -> None:
    add_programs(sim)
    child = await exec_("graceful", stdout=PIPE)
    assert child.stdout is not None
    await child.stdout.readline()
    child.send_signal(signal.SIGWINCH)  # nothing comes of it
    await asyncio.sleep(1)
    child.terminate()
    assert await child.communicate() == (b"stopped\n", None)
    assert child.returncode == 0


@simulated
async def test_last_output_arrives_though_the_pipe_is_full(sim: testing.Simulation) -> None:
    add_programs(sim)
    child = await exec_("large", stdout=PIPE)
    assert await child.communicate() == (bytes(1_000_000), None)


@simulated
async def test_programs_are_joined_by_a_pipe(sim: testing.Simulation) -> None:
    add_programs(sim)
    reads, writes = os.pipe()
    first = await exec_("upper", "x", stdin=PIPE, stdout=writes, stderr=DEVNULL)
    os.close(writes)
    second = await exec_("upper", stdin=reads, stdout=PIPE, stderr=DEVNULL)
    os.close(reads)
    await first.communicate(b"hello\n")
    assert await second.communicate() == (b"HELLO\n", None)


def test_output_without_a_pipe_goes_to_the_tests_output_or_a_file(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    async def main(sim: testing.Simulation) -> None:
        add_programs(sim)
        child = await exec_("upper", stdin=PIPE)
        await child.communicate(b"hello\n")
        with (tmp_path / "out").open("wb") as file:
            child = await exec_("upper", stdin=PIPE, stdout=file, stderr=DEVNULL)
            await child.communicate(b"in a file\n")
            await asyncio.sleep(1)

    testing.simulate(seeds=1)(main)()
    assert capsys.readouterr() == ("HELLO\n", "() None")
    assert (tmp_path / "out").read_bytes() == b"IN A FILE\n"


@simulated
async def test_a_simple_command_of_a_shell_is_words_and_others_are_the_shells(
    sim: testing.Simulation,
) -> None:
    add_programs(sim)

    async def sh(process: testing.Process) -> None:
        process.stdout.write(" ".join(process.args).encode())

    child = await shell("upper 'a b' c", stdin=DEVNULL, stderr=PIPE)
    assert await child.communicate() == (None, b"('a b', 'c') None")
    with pytest.raises(testing.EscapedSimulation, match=r"sim.program\('sh'"):
        await shell("upper | upper")
    sim.program("sh", sh)
    child = await shell("upper | upper", stdout=PIPE)
    assert await child.communicate() == (b"/bin/sh -c upper | upper", None)
    child = await shell("upper 'a b", stdout=PIPE)
    assert await child.communicate() == (b"/bin/sh -c upper 'a b", None)


def test_unknown_program_error_names_the_registration() -> None:
    async def main() -> None:
        await exec_("/usr/bin/git", "status")

    with pytest.raises(testing.EscapedSimulation, match=r"sim.program\('git', function\)"):
        testing.run(main)


def test_children_run_on_the_host_of_their_parent_and_end_with_it() -> None:
    seen = []

    async def names(process: testing.Process) -> None:
        import socket

        seen.append(socket.gethostname())
        async with await asyncio.start_server(lambda _, writer: writer.close(), None, 80):
            try:
                await asyncio.sleep(1000)
            finally:
                seen.append("finally")

    async def parent() -> None:
        await (await exec_("names")).wait()

    async def reaches(host: str) -> bool:
        try:
            _, writer = await asyncio.open_connection(host, 80)
        except ConnectionRefusedError:
            return False
        writer.close()
        return True

    async def main(sim: testing.Simulation) -> None:
        sim.program("names", names)
        a, b = sim.host("a"), sim.host("b")
        a.spawn(parent)
        await asyncio.sleep(5)
        assert seen == ["a"]
        assert await reaches("a")
        assert not await reaches("b")
        a.pause()
        a.resume()
        assert b.is_up
        a.kill()
        await asyncio.sleep(5)
        assert not await reaches("a")
        a.restart()
        await asyncio.sleep(5)
        assert seen == ["a", "a"]
        assert await reaches("a")

    testing.run(main)
    assert "finally" not in seen


def test_killed_program_closes_its_sockets() -> None:
    async def serves(process: testing.Process) -> None:
        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(ConnectionError):
                writer.write(await reader.readline())
                await reader.read()
            ended.append("talk")

        async with await asyncio.start_server(talk, "localhost", 80):
            process.stdout.write(b"ready\n")
            await asyncio.Event().wait()

    async def main(sim: testing.Simulation) -> None:
        add_programs(sim)
        sim.program("serves", serves)
        child = await exec_("serves", stdout=PIPE)
        assert child.stdout is not None
        await child.stdout.readline()
        reader, writer = await asyncio.open_connection("localhost", 80)
        writer.write(b"hello\n")
        assert await reader.readline() == b"hello\n"
        child.kill()
        assert await reader.read() == b""
        assert await child.wait() == -9
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("localhost", 80)
        writer.close()

    simulated(main)()
    assert ended == []


def test_running_child_program_is_a_leftover() -> None:
    @testing.simulate(seeds=1)
    async def program(sim: testing.Simulation) -> None:
        sim.program("sleeper", sleeper)
        await exec_("sleeper")

    with pytest.raises(testing.LeftBehind) as raised:
        program()
    tasks, child = raised.value.findings
    assert "program sleeper" in tasks
    assert child == "a child runs: sleeper"


@simulated
async def test_loops_own_calls_and_a_start_that_is_given_up(sim: testing.Simulation) -> None:
    add_programs(sim)

    class Protocol(asyncio.SubprocessProtocol):
        def __init__(self) -> None:
            self.data = b""
            self.exited = asyncio.get_running_loop().create_future()

        def pipe_data_received(self, fd: int, data: bytes) -> None:
            self.data += data

        def process_exited(self) -> None:
            self.exited.set_result(None)

    loop = asyncio.get_running_loop()
    transport, protocol = await loop.subprocess_exec(Protocol, "upper", stdin=DEVNULL)
    assert transport.get_pid() > 4_194_304  # no process of the host's has such a number
    await protocol.exited
    assert transport.get_returncode() == 3
    assert b"()" in protocol.data
    transport.close()
    starting = asyncio.create_task(exec_("sleeper", stdin=PIPE))
    await asyncio.sleep(0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting


@simulated
async def test_a_child_of_a_child(sim: testing.Simulation) -> None:
    add_programs(sim)

    async def outer(process: testing.Process) -> int:
        inner = await exec_("upper", stdin=PIPE, stdout=PIPE)
        out, _ = await inner.communicate(await process.stdin.read())
        process.stdout.write(out)
        return inner.returncode or 0

    sim.program("outer", outer)
    child = await exec_("outer", stdin=PIPE, stdout=PIPE)
    assert await child.communicate(b"hello\n") == (b"HELLO\n", None)
    assert child.returncode == 3


def test_a_child_outlives_its_parent() -> None:
    done = []

    async def inner(process: testing.Process) -> None:
        await asyncio.sleep(5)
        done.append(process.args)

    async def outer(process: testing.Process) -> None:
        await exec_("inner")

    async def main(sim: testing.Simulation) -> None:
        add_programs(sim)
        sim.program("inner", inner)
        sim.program("outer", outer)
        assert await (await exec_("outer")).wait() == 0
        await asyncio.sleep(10)

    simulated(main)()
    assert done == [("inner",)] * 3


def test_a_seed_gives_the_same_run_of_programs() -> None:
    async def main(sim: testing.Simulation) -> None:
        sim.program("upper", upper)
        children = [await exec_("upper", stdin=PIPE, stdout=PIPE, stderr=PIPE) for _ in range(4)]
        await asyncio.gather(*(each.communicate(b"x\n") for each in children))

    assert testing.run(main, seed=1).trace == testing.run(main, seed=1).trace
    assert testing.run(main, seed=1).time != testing.run(main, seed=2).time


def test_handlers_of_the_signal_module_are_a_hosts_own() -> None:
    got = []

    async def program() -> None:
        def handle(sig: int, frame: object) -> None:
            got.append(sig)

        assert signal.signal(signal.SIGTERM, handle) is signal.SIG_DFL
        assert signal.getsignal(signal.SIGTERM) is handle
        assert signal.signal(signal.SIGUSR1, signal.SIG_IGN) is signal.SIG_DFL
        assert signal.signal(signal.SIGUSR1, signal.SIG_IGN) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        with pytest.raises(TypeError, match="a handler"):
            signal.signal(signal.SIGUSR1, None)
        signal.raise_signal(signal.SIGTERM)
        await asyncio.sleep(10)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        await asyncio.sleep(1000)

    async def main(sim: testing.Simulation) -> None:
        a = sim.host("a")
        a.spawn(program)
        await asyncio.sleep(1)
        a.signal(signal.SIGTERM)
        a.signal(signal.SIGUSR1)
        await asyncio.sleep(1)
        assert got == [signal.SIGTERM] * 2
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        await asyncio.sleep(10)
        assert a.is_up
        a.signal(signal.SIGTERM)
        assert not a.is_up
        signal.raise_signal(signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(testing.EscapedSimulation, match="would end the main function"):
        testing.run(main)
    assert signal.getsignal(signal.SIGTERM) is before
