"""`goloop compare` with real processes: structure, failures and ends, but no measured values.

The values depend on the machine; test_compare_verdicts.py tests the conclusions from them.
"""

from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from goloop.operations import server_ports
from goloop.operations.compare import arguments, launch, loops, rounds, servers
from goloop.operations.compare.measuring.turns import Failure
from tests.support import ended, tls_tools

PROGRAMS = Path(__file__).with_name("programs")

pytestmark = pytest.mark.goloop_only("asyncio has no such command")

# A short measurement, which has an interval.
SHORT = ("--rounds", "6", "--bursts", "1", "--seconds", "0.05", "--connections", "2")

SERVER = (PROGRAMS / "compared_server.py").read_text()

# A server that ignores SIGTERM, with a child in a process group of its own.
STUBBORN = (PROGRAMS / "compared_stubborn_server.py").read_text()

# Another program takes the server's port, at the server's first start only.
TAKEN = (PROGRAMS / "compared_taken_port.py").read_text()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a server, and a module of loops."""
    (tmp_path / "server.py").write_text(SERVER)
    (tmp_path / "made.py").write_text((PROGRAMS / "compared_slow_server.py").read_text())
    return tmp_path


def compare(
    folder: Path, *words: str, loops: str = "goloop,asyncio", **environ: str
) -> subprocess.CompletedProcess[str]:
    command = ("-m", "goloop", "compare", "--loops", loops, *words)
    path = os.pathsep.join(filter(None, [str(folder), *sys.path]))
    return ended.python(*command, cwd=folder, limit=120, apart=True, PYTHONPATH=path, **environ)


def results(done: subprocess.CompletedProcess[str], status: int = 0) -> dict[str, Any]:
    assert done.returncode == status, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def is_alive(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def place(path: Path) -> str:
    with contextlib.suppress(OSError):
        return os.readlink(path)
    return ""


def assert_ended(folder: Path) -> None:
    pids = [int(line) for line in (folder / "pids").read_text().split()]
    assert pids
    assert [pid for pid in pids if is_alive(pid)] == []
    # A process that has not written its number yet is in the folder, too.
    assert [path for path in Path("/proc").glob("[0-9]*/cwd") if place(path) == str(folder)] == []


# ---- measurements --------------------------------------------------------------------------------


def test_servers_are_compared_and_written_as_json_and_text(folder: Path) -> None:
    done = compare(folder, "server.py", *SHORT, "--rate", "500", "--json", "found.json")
    assert (done.returncode, done.stderr) == (0, "")
    assert "2 connections, full load" in done.stdout
    assert "2 connections, 500 requests/s" in done.stdout
    assert "all servers at once" in done.stdout
    found = json.loads((folder / "found.json").read_text())
    assert (found["rounds"], found["interrupted"], found["failures"]) == (6, False, {})
    for load in found["loads"]:
        assert set(load["loops"]) == {"goloop", "asyncio"}
        for row in load["loops"].values():
            assert row["bursts"] == 6
            assert row["rate"] > 0
            assert row["p50"] <= row["p99"]
        assert {each["loop"] for each in load["comparisons"]} == {"goloop"}
        words = ("faster", "slower", "no difference", "can't tell")
        assert {each["verdict"] for each in load["comparisons"]} <= set(words)
    assert_ended(folder)


def test_a_loop_that_sleeps_is_never_called_fast_or_equal(folder: Path) -> None:
    words = ("server.py", *SHORT, "--seconds", "0.2", "--json", "-")
    done = compare(folder, *words, loops="asyncio,slow=made:Slow")
    (load,) = results(done)["loads"]
    rate = next(each for each in load["comparisons"] if each["quantity"] == "rate")
    assert (rate["loop"], rate["reference"]) == ("slow", "asyncio")
    assert rate["verdict"] in ("slower", "can't tell")
    assert load["loops"]["slow"]["rate"] <= 2 / 0.01


def test_a_server_of_a_fixed_port_is_run_on_one_loop_at_a_time(folder: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    done = compare(folder, "--port", port, *SHORT, "--", "server.py", port)
    assert done.returncode == 0, done.stdout
    assert "one server at a time" in done.stdout


def test_an_echo_server_is_measured_by_its_bytes(folder: Path) -> None:
    done = compare(folder, "--tcp", "--size", "200000", *SHORT, "server.py", "echo", "--json", "-")
    found = results(done)
    assert found["kind"] == "tcp"
    assert found["loads"][0]["loops"]["asyncio"]["rate"] > 0


def test_tls_is_verified_unless_the_user_asks_otherwise(folder: Path) -> None:
    identity = tls_tools.identity("localhost")
    own = {"CERTIFICATE": identity.certificate, "KEY": identity.key}
    words = ("server.py", *SHORT, "--rounds", "1", "--host", "localhost", "--start-limit", "15")
    trusted = compare(folder, *words, "--tls", SSL_CERT_FILE=identity.certificate, **own)
    assert trusted.returncode == 0, trusted.stdout
    insecure = compare(folder, *words, "--insecure", **own)
    assert insecure.returncode == 0, insecure.stdout
    refused = compare(folder, *words[:-1], "2", "--tls", **own)
    assert refused.returncode == 1
    message = "failed: certificate verify failed: self-signed certificate: pass --insecure to"
    assert message in refused.stdout
    plain = compare(folder, *words, **own)
    assert plain.returncode == 1
    assert "failed: the server uses TLS: pass --tls, or --insecure" in plain.stdout
    without = compare(folder, *words, "--insecure")
    assert without.returncode == 1
    assert "failed: the TLS handshake failed (WRONG_VERSION_NUMBER): omit --tls" in without.stdout


def test_requests_of_a_file_are_sent(folder: Path) -> None:
    (folder / "requests.http").write_text("POST /a\n\n{}\n###\nGET /none\n")
    done = compare(folder, "server.py", *SHORT, "--requests", "requests.http")
    assert done.returncode == 1
    assert "answers with status 404: choose another --path, or --requests" in done.stdout


def test_programs_that_end_are_compared(folder: Path) -> None:
    (folder / "bench.py").write_text("import asyncio\nasyncio.run(asyncio.sleep(0.01))\n")
    done = compare(folder, "--run", "bench.py", "--rounds", "6", "--json", "-")
    (load,) = results(done)["loads"]
    assert {each["quantity"] for each in load["comparisons"]} == {"seconds", "cpu"}
    assert load["loops"]["goloop"]["seconds"] > 0.01
    assert load["loops"]["goloop"]["cpu"] > 0


def test_a_report_for_an_encoding_without_its_signs_is_ascii(folder: Path) -> None:
    (folder / "bench.py").write_text("import asyncio\nasyncio.run(asyncio.sleep(0))\n")
    ascii = {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = compare(folder, "--run", "bench.py", "--rounds", "1", **ascii)
    assert done.returncode == 0, done.stderr
    assert "time / asyncio" in done.stdout
    assert done.stdout.isascii()
    assert "\\x" not in done.stdout


def test_processes_that_multiprocessing_starts_use_the_loop(folder: Path) -> None:
    (folder / "bench.py").write_text(
        textwrap.dedent((PROGRAMS / "compared_multiprocessing.py").read_text())
    )
    done = compare(folder, "--run", "bench.py", "--rounds", "1", loops="asyncio,slow=made:Slow")
    assert done.returncode == 0, done.stdout
    assert sorted((folder / "loops").read_text().split()) == ["Slow", "_UnixSelectorEventLoop"]


# ---- failures ------------------------------------------------------------------------------------


def test_a_server_that_ends_at_its_start_is_shown_with_its_last_output(folder: Path) -> None:
    done = compare(folder, "server.py", *SHORT, loops="goloop,asyncio,none=made:broken")
    assert done.returncode == 1
    assert "none failed: the server ended at its start, with status 1\n" in done.stdout
    assert "  | RuntimeError: no loop today" in done.stdout
    assert "goloop and asyncio" in done.stdout or "goloop is" in done.stdout  # the others go on


def test_one_loop_that_works_is_no_comparison(folder: Path) -> None:
    done = compare(folder, "server.py", *SHORT, loops="asyncio,none=made:broken")
    assert done.returncode == 1
    assert "none failed" in done.stdout


def test_a_port_in_use_is_an_error_with_a_way_out(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        done = compare(folder, "server.py", "--port", port, *SHORT)
    assert done.returncode == 1
    assert f"goloop, asyncio failed: port {port} is in use by another program" in _sorted(done)


@pytest.fixture
def thief(folder: Path) -> Iterator[None]:
    """Ends the program that has taken the server's port."""
    yield
    with contextlib.suppress(FileNotFoundError):
        os.kill(int((folder / "thief").read_text()), signal.SIGKILL)


@pytest.mark.forks
@pytest.mark.usefixtures("thief")
def test_a_server_whose_port_another_program_takes_gets_another_one(folder: Path) -> None:
    (folder / "taken.py").write_text(TAKEN + SERVER)
    done = compare(folder, "taken.py", *SHORT, "--rounds", "2")
    assert (done.returncode, "failed" in done.stdout) == (0, False), done.stdout
    assert len((folder / "pids").read_text().split()) == 2 * 2 + 1


@pytest.mark.forks
@pytest.mark.usefixtures("thief")
def test_another_program_on_the_port_is_not_taken_for_the_server(folder: Path) -> None:
    idle = "if not LISTENS:\n    import asyncio\n    asyncio.run(asyncio.sleep(1000))\n"
    (folder / "taken.py").write_text(TAKEN + idle + SERVER)
    done = compare(folder, "taken.py", *SHORT, "--rounds", "2")
    assert (done.returncode, "failed" in done.stdout) == (0, False), done.stdout
    assert len((folder / "pids").read_text().split()) == 2 * 2


@pytest.mark.forks
@pytest.mark.usefixtures("thief")
def test_another_program_on_a_fixed_port_is_an_error(folder: Path) -> None:
    with server_ports.Port("127.0.0.1", reserve=False) as free:
        port = str(free.number)
    idle = "if not LISTENS:\n    import asyncio\n    asyncio.run(asyncio.sleep(1000))\n"
    (folder / "taken.py").write_text(TAKEN + idle + SERVER)
    done = compare(folder, "taken.py", *SHORT, "--rounds", "1", "--port", port, PORT=port)
    assert done.returncode == 1
    assert f"another program listens on the server's port {port}: end it" in done.stdout


def test_a_server_that_does_not_share_a_reserved_port_is_measured(folder: Path) -> None:
    (folder / "alone.py").write_text(SERVER.replace("port, ssl", "port, reuse_address=False, ssl"))
    done = compare(folder, "alone.py", *SHORT, "--rounds", "2")
    assert (done.returncode, "failed" in done.stdout) == (0, False), done.stdout


def test_a_reserved_port_is_for_servers_only() -> None:
    with server_ports.Port("127.0.0.1", reserve=True) as port:
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", port.number))
        for host in ("127.0.0.1", "0.0.0.0"):
            with socket.create_server((host, port.number)):
                pass
    with socket.socket() as other:
        other.bind(("127.0.0.1", port.number))


@pytest.mark.parametrize("bound", ["127.0.0.1", "0.0.0.0", "::", "::1"])
def test_the_listening_process_is_known(bound: str) -> None:
    family = socket.AF_INET6 if ":" in bound else socket.AF_INET
    with socket.create_server((bound, 0), family=family, dualstack_ipv6=bound == "::") as server:
        port = server.getsockname()[1]
        host = "::1" if bound == "::1" else "127.0.0.1"
        address = server_ports.accepting_address(host, port)
        assert address is not None
        assert address[:2] == (host, port)
        assert server_ports.is_listener(address, [os.getpid()]) is True
        assert server_ports.is_listener(address, [os.getppid()]) is False
    assert server_ports.accepting_address(host, port) is None
    assert server_ports.is_listener(address, [os.getpid()]) is None


def test_the_listener_of_an_address_hides_that_of_all_addresses() -> None:
    with (
        server_ports.Port("127.0.0.1", reserve=True) as port,
        socket.create_server(("0.0.0.0", port.number), reuse_port=True),
    ):
        program = f"import socket; s = socket.create_server(('127.0.0.1', {port.number}), "
        program += "reuse_port=True); print(flush=True); input()"
        with subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as other:
            assert other.stdout is not None
            assert other.stdout.readline() == b"\n"
            assert server_ports.is_listener(("127.0.0.1", port.number), [other.pid]) is True
            assert server_ports.is_listener(("127.0.0.1", port.number), [os.getpid()]) is False
            other.communicate(b"\n")


def _sorted(done: subprocess.CompletedProcess[str]) -> str:
    return done.stdout.replace("asyncio, goloop failed", "goloop, asyncio failed")


def test_a_server_that_listens_elsewhere_is_an_error_with_a_way_out(folder: Path) -> None:
    (folder / "elsewhere.py").write_text("import asyncio\nasyncio.run(asyncio.sleep(60))\n")
    done = compare(folder, "elsewhere.py", *SHORT, "--start-limit", "0.5")
    assert done.returncode == 1
    assert "does not listen on port" in done.stdout
    assert "read the variable PORT, or pass its port by --port" in done.stdout


def test_a_server_of_its_own_port_is_an_error_with_that_port(folder: Path) -> None:
    with server_ports.Port("127.0.0.1", reserve=False) as free:
        port = str(free.number)
    done = compare(folder, *SHORT, "--start-limit", "6", "--", "server.py", port)
    assert done.returncode == 1
    assert f"the server listens on port {port}, not on " in done.stdout
    assert f" after 6 s: pass --port {port}, or write {{port}} in its arguments" in done.stdout
    # The other loop's server gets neither that port nor a new one.
    assert "The port in use is not " in done.stdout
    assert "pass the server's own port by --port" in done.stdout


def test_a_server_of_another_address_is_an_error_with_that_host(folder: Path) -> None:
    (folder / "other.py").write_text(SERVER.replace('"127.0.0.1"', '"127.0.0.2"'))
    done = compare(folder, "other.py", *SHORT, "--start-limit", "6")
    assert done.returncode == 1
    assert " of 127.0.0.2, not of 127.0.0.1: pass --host 127.0.0.2" in done.stdout


@pytest.mark.parametrize("program", ["import asyncio\nasyncio.run(asyncio.sleep(0))", "print(1)"])
def test_a_program_that_is_not_a_server_is_an_error_with_the_option_run(
    folder: Path, program: str
) -> None:
    (folder / "client.py").write_text(program)
    done = compare(folder, "client.py", *SHORT)
    assert done.returncode == 1
    assert "ended by itself, with status 0, before it listened on a port" in done.stdout
    assert "measure a program that is not a server by --run" in done.stdout


def test_a_server_without_http_is_an_error_with_the_option_tcp(folder: Path) -> None:
    done = compare(folder, "server.py", "echo", *SHORT)
    assert done.returncode == 1
    assert "the server does not speak HTTP/1.1 (not an answer of HTTP/1.1: b'GET" in done.stdout
    assert "pass --tcp if it sends back" in done.stdout
    assert "1 of 6 rounds" in done.stdout  # the first burst is enough
    assert "full load" not in done.stdout  # no table of zeros
    other = compare(folder, "server.py", "--tcp", *SHORT, "--rounds", "1")
    assert other.returncode == 1
    assert "failed: the server speaks HTTP: omit --tcp" in other.stdout


def test_a_silent_server_is_an_error_with_the_ways_out(folder: Path) -> None:
    silent = SERVER.replace("self.transport.write(b", "print(b")
    (folder / "silent.py").write_text(silent)
    done = compare(folder, "silent.py", *SHORT, "--rounds", "1")
    assert done.returncode == 1
    assert "no answer in 0.05 s: for slow requests pass a larger --seconds" in done.stdout
    assert "full load" not in done.stdout


@pytest.mark.parametrize(
    ("end", "words"),
    [("os._exit(7)", "with status 7"), ("os.kill(os.getpid(), 9)", "killed by SIGKILL")],
)
def test_a_server_that_ends_under_load_is_shown_with_its_last_output(
    folder: Path, end: str, words: str
) -> None:
    lines = f"print('last words', flush=True), {end}"
    (folder / "fragile.py").write_text(SERVER.replace("status = 404 if", f"{lines}; status = 0 if"))
    done = compare(folder, "fragile.py", *SHORT)
    assert done.returncode == 1
    assert f"failed: the server ended during a burst, {words}\n  | last words" in done.stdout
    assert "connect" not in done.stdout
    assert "full load" not in done.stdout


def test_the_end_of_a_server_is_told_before_an_error_of_the_load_generator() -> None:
    class Ended:
        loop = loops.ASYNCIO

        def pids(self) -> list[int]:
            return []

        def check_running(self, when: str, wait: float = 0.0) -> None:
            raise Failure(f"the server ended {when}, after at most {wait:g} s")

    class Refused:
        def run(self, order: object) -> None:
            raise Failure("cannot connect")

    scenario = rounds.Scenario(4)
    plan = arguments.Plan(["server.py"], [loops.ASYNCIO], "http")
    found = rounds.Measurement(plan, [scenario], [], [])
    client: Any = Refused()
    program: Any = Ended()
    with pytest.raises(Failure, match="the server ended during a burst, after at most 1 s"):
        rounds._burst(found, client, program, (scenario, 1, 0.0))


def test_too_many_connections_are_an_error_with_the_ways_out(folder: Path) -> None:
    limited = "import os, resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)); "
    before = [sys.executable, "-c", limited + "os.execv(sys.argv[1], sys.argv[1:])"]
    words = ("server.py", *SHORT, "--connections", "200")
    with running(folder, *words, before=before) as (process, _):
        shown = process.communicate(timeout=100)[0]
    assert process.returncode == 1
    assert "200 connections need more open files than the system allows: pass fewer" in shown


def test_a_server_that_is_run_to_its_end_is_an_error_that_omits_run(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PORT", "0")
    monkeypatch.setattr(rounds, "_LOOK_SECONDS", 0.05)
    words = ["--run", "server.py", "--loops", "goloop,asyncio", "--start-limit", "0.5"]
    plan = arguments.parse(words)
    found = rounds.measure(plan, lambda words: None)
    assert set(found.failures) == {"goloop", "asyncio"}
    for failure in found.failures.values():
        assert "has neither ended nor worked for 0.5 s: omit --run for a server" in str(failure)


def test_a_program_that_chooses_its_loop_is_not_compared(folder: Path) -> None:
    (folder / "own.py").write_text(
        "import asyncio\n"
        "runner = asyncio.Runner(loop_factory=asyncio.SelectorEventLoop)\n"
        "runner.run(asyncio.sleep(0))\n"
    )
    done = compare(folder, "--run", "own.py", "--rounds", "1")
    assert done.returncode == 1
    assert "the program chooses its loop itself (asyncio.unix_events._Unix" in done.stdout


def test_a_program_that_fails_or_runs_no_loop_is_not_compared(folder: Path) -> None:
    (folder / "fails.py").write_text("import sys\nprint('last words')\nsys.exit(3)\n")
    done = compare(folder, "--run", "fails.py", "--rounds", "1")
    assert done.returncode == 1
    assert "the program ended with status 3\n  | last words" in done.stdout
    (folder / "plain.py").write_text("print('no loop')\n")
    assert "no event loop ran" in compare(folder, "--run", "plain.py", "--rounds", "1").stdout


# ---- the end -------------------------------------------------------------------------------------


@contextlib.contextmanager
def running(
    folder: Path, *words: str, before: Sequence[str] = ()
) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """The command with a terminal as its standard error, and the terminal's other end.

    Its temporary files are in the folder "temporary"; `before` stands before the command.
    """
    ours, theirs = pty.openpty()
    temporary = folder / "temporary"
    temporary.mkdir()
    path = os.pathsep.join(filter(None, sys.path))
    process = subprocess.Popen(
        [*before, sys.executable, "-m", "goloop", "compare", "--loops", "goloop,asyncio", *words],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=theirs,
        text=True,
        env={**os.environ, "PYTHONPATH": path, "TERM": "xterm", "TMPDIR": str(temporary)},
    )
    os.close(theirs)
    try:
        yield process, ours
    finally:
        process.kill()
        process.communicate()
        os.close(ours)


def wait_for(fd: int, words: Sequence[bytes]) -> None:
    """Read from a terminal until it has shown one of the words."""
    shown = b""
    end = time.monotonic() + 60
    while not any(word in shown for word in words):
        assert time.monotonic() < end, shown
        shown += os.read(fd, 4096)


def wait_until_ended(folder: Path) -> None:
    """Wait until no process of the command is left, and no file; assert_ended() then passes."""
    end = time.monotonic() + 60
    while True:
        left = [path for path in Path("/proc").glob("[0-9]*/cwd") if place(path) == str(folder)]
        files = list((folder / "temporary").iterdir())
        if not left and not files:
            return assert_ended(folder)
        assert time.monotonic() < end, (left, files)
        time.sleep(0.02)


ENDING = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT]


@pytest.mark.parametrize("number", ENDING)
def test_ctrl_c_ends_with_the_results_up_to_then(folder: Path, number: signal.Signals) -> None:
    words = ("server.py", *SHORT, "--rounds", "1000", "--json", "found.json")
    with running(folder, *words) as (process, terminal):
        wait_for(terminal, [b"round 3 of 1000, "])
        process.send_signal(number)
        shown = process.communicate(timeout=60)[0]
    assert process.returncode == 130
    assert "of 1000 rounds" in shown
    assert "interrupted" in shown
    assert "2 connections, full load" in shown
    found = json.loads((folder / "found.json").read_text())
    assert found["interrupted"]
    assert found["rounds"] >= 2
    assert_ended(folder)
    assert list((folder / "temporary").iterdir()) == []


def test_a_second_signal_does_not_interrupt_the_end(folder: Path) -> None:
    (folder / "slow_end.py").write_text(
        "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + SERVER
    )
    with running(folder, "slow_end.py", *SHORT, "--rounds", "1000") as (process, terminal):
        wait_for(terminal, [b"round 1 of 1000: 2 connections"])
        for number in [signal.SIGINT, signal.SIGINT, signal.SIGHUP, signal.SIGTERM] * 5:
            process.send_signal(number)  # the end takes 3 s for each server
            time.sleep(0.05)
        shown = process.communicate(timeout=60)[0]
    assert process.returncode == 130
    assert "interrupted" in shown
    wait_until_ended(folder)


def test_a_hangup_that_nohup_ignores_does_not_end_the_command(folder: Path) -> None:
    nohup = [sys.executable, "-c", "import os, signal, sys; signal.signal(signal.SIGHUP, "
             "signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"]  # fmt: skip
    with running(folder, "server.py", *SHORT, before=nohup) as (process, terminal):
        wait_for(terminal, [b"round 2 of 6, "])
        process.send_signal(signal.SIGHUP)
        assert "6 of 6 rounds" in process.communicate(timeout=100)[0]
    assert process.returncode == 0


@pytest.mark.parametrize("program", ["server.py", "stubborn.py", "bench.py"])
def test_no_process_and_no_file_outlives_a_killed_command(folder: Path, program: str) -> None:
    (folder / "stubborn.py").write_text(STUBBORN + SERVER)
    (folder / "bench.py").write_text(
        "import asyncio, os\nopen('pids', 'a').write(f'{os.getpid()}\\n')\n"
        "asyncio.run(asyncio.sleep(1000))\n"
    )
    words = (program, "--run") if program == "bench.py" else (program, *SHORT, "--rounds", "1000")
    with running(folder, *words) as (process, terminal):
        if program == "bench.py":
            while not (folder / "pids").exists():
                time.sleep(0.02)
        else:
            wait_for(terminal, [b"round 1 of 1000: 2 connections"])
        process.kill()
        process.wait()
        wait_until_ended(folder)


def test_a_program_that_starts_after_the_command_was_killed_ends_at_once(tmp_path: Path) -> None:
    words = launch.arguments("asyncio:SelectorEventLoop", str(tmp_path / "removed"), [])
    done = ended.python(*words, "-m", "this", apart=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "goloop compare has ended\n"


def test_a_server_that_ignores_sigterm_ends_with_its_children(folder: Path) -> None:
    (folder / "stubborn.py").write_text(STUBBORN + SERVER)
    done = compare(folder, "stubborn.py", *SHORT, "--rounds", "1")
    assert done.returncode == 0, done.stdout
    assert_ended(folder)


def test_a_signal_while_a_process_starts_or_ends_is_deferred() -> None:
    reached = []

    def start() -> None:
        with servers.uninterrupted():
            signal.raise_signal(signal.SIGINT)
            reached.append(True)

    with pytest.raises(KeyboardInterrupt):
        start()
    assert reached
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
