"""The program that runs other projects' own tests: its servers, its versions, its ends."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import suites
from suite_servers import SERVERS
from suite_table import SUITES, Service, Suite

import proof
from benchmarks import real_servers
from goloop.operations import proc_stat

ROOT = Path(__file__).resolve().parents[2]
ADDRESS = {"port": "5000", "path": "/tmp/socket"}


def test_recorded_suites_ran_in_the_pinned_versions() -> None:
    recorded = {name: suite["version"] for name, suite in proof.read()["suites"].items()}
    del recorded["anyio"]  # anyio_suite.py runs the installed version
    assert recorded == {name: SUITES[name].version for name in recorded}


def test_services_name_known_servers() -> None:
    named = {service.server for suite in SUITES.values() for service in suite.services}
    assert named <= set(SERVERS)


def test_a_line_names_the_missing_server_and_its_package(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    absent = real_servers.Program(("no-such-server",), (), SERVERS["redis"].prepare, "no-package")
    monkeypatch.setitem(SERVERS, "mariadb", absent)
    monkeypatch.setitem(
        SERVERS, "postgres", real_servers.Program(("sh",), (), absent.prepare, "dash")
    )
    found = suites.usable_services("sqlalchemy", SUITES["sqlalchemy"])
    assert [service.server for service in found] == ["postgres"]
    assert capsys.readouterr().out == (
        "sqlalchemy: without mariadb: no-such-server is not installed: apt-get install no-package\n"
    )


def test_a_suite_without_its_only_server_does_not_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    absent = real_servers.Program(("no-such-server",), (), SERVERS["redis"].prepare, "no-package")
    monkeypatch.setitem(SERVERS, "redis", absent)
    monkeypatch.setattr(sys, "argv", ["suites.py", "--install", "redis"])
    handlers = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)]
    try:
        assert suites.main() == 0
    finally:
        for number, handler in zip((signal.SIGTERM, signal.SIGHUP), handlers, strict=True):
            signal.signal(number, handler)
    assert capsys.readouterr().out.endswith("redis: not run\n")


def test_an_address_is_written_into_the_tests(tmp_path: Path) -> None:
    file = tmp_path / "test_it.py"
    file.write_text('HOST = "example.org"\nconnect(HOST)\n')
    edits = {"test_it.py": {'HOST = "example.org"': "", "HOST": '"127.0.0.1", {port}'}}
    suites.edit(tmp_path, Service("redis", edits=edits), ADDRESS)
    assert file.read_text() == '\nconnect("127.0.0.1", 5000)\n'
    with pytest.raises(SystemExit, match=r"test_it\.py has no 'HOST' to be replaced"):
        suites.edit(tmp_path, Service("redis", edits={"test_it.py": {"HOST": ""}}), ADDRESS)


def test_braces_beside_an_address_stay() -> None:
    assert suites.with_address("{port} {path} {other}", ADDRESS) == "5000 /tmp/socket {other}"


def test_the_servers_of_a_suite_end_with_it(tmp_path: Path) -> None:
    if reason := real_servers.missing("redis"):
        pytest.skip(reason)
    place = {"PLACE": "{path}"}
    redis = Service("redis", "--url={port}", place, prepare="touch {path}.prepared")
    unused = Service("redis", "--unused", started=False)
    with suites.running([redis, unused], tmp_path) as ((argument,), variables):
        port = int(argument.removeprefix("--url="))
        assert real_servers.is_ready(port, None, b"")
        assert Path(variables["PLACE"]).is_socket()
        assert Path(f"{variables['PLACE']}.prepared").exists()
    assert not real_servers.is_ready(port, None, b"")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("def test_it(): assert 0", "made-up: no test passes on asyncio"),
        ("import os\ndef test_it(): pass\ndef test_end(): os._exit(3)", "status 3"),
    ],
)
def test_a_suite_without_a_result_is_an_error(
    text: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "test_it.py").write_text(text)
    (tmp_path / "goloop_suite.py").touch()
    monkeypatch.setitem(suites.SUITES, "made-up", Suite("1", "", tests="test_it.py"))
    with pytest.raises(SystemExit, match=words):
        suites.compare("made-up", tmp_path, [], [], recorded=False)


# ---- the end of a run -----------------------------------------------------------------------

RUN = """
import sys
sys.path.append("tests/external")
import suites
from suite_table import Service, Suite

suites.SUITES.clear()
redis = Service("redis", variables={"REDIS": "{port} {path}"})
suites.SUITES["made-up"] = Suite("1", "", services=(redis,))
folder = suites.Path(sys.argv.pop())
suites.fetch = lambda *_: folder
sys.exit(suites.main())
"""
TESTS = """
import os, pathlib, signal

def test_that_waits():
    told = pathlib.Path("told.new")
    told.write_text(f"{os.getpid()} {os.environ['REDIS']}")
    told.rename("told")
    signal.pause()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the end of a parent is Linux's")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_an_ended_run_ends_its_server_and_its_tests(number: signal.Signals, tmp_path: Path) -> None:
    if reason := real_servers.missing("redis"):
        pytest.skip(reason)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_it.py").write_text(TESTS)
    (tmp_path / "goloop_suite.py").touch()
    told = tmp_path / "told"
    with subprocess.Popen([sys.executable, "-c", RUN, "made-up", tmp_path], cwd=ROOT) as run:
        while not told.exists():
            assert run.poll() is None
            os.sched_yield()
        process, port, path = told.read_text().split()
        run.send_signal(number)
    assert run.returncode == (-number if number == signal.SIGKILL else 128 + number)
    while proc_stat.state(process) not in ("", "Z"):
        os.sched_yield()
    while real_servers.is_ready(int(port), None, b""):
        os.sched_yield()
    folder = Path(path).parent
    if number == signal.SIGKILL:
        shutil.rmtree(folder)  # which a killed program can't remove
    assert not folder.exists()
