"""goloop doctor: its report on the machine, and on the loops of a program."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import ended
import pytest

import goloop
from goloop.operations import proc_stat
from goloop.operations.commands import doctor

PROGRAMS = Path(__file__).with_name("programs")

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.goloop_only("asyncio has no such command")


def report(*arguments: str | Path, cwd: Path, status: int = 0, **environ: str) -> dict[str, Any]:
    variables = {**{key: value for key, value in os.environ.items() if "GOLOOP_" not in key}}
    done = subprocess.run(
        [sys.executable, "-m", "goloop", "doctor", "--json", *map(str, arguments)],
        cwd=cwd, env={**variables, "PYTHONPATH": str(ROOT), **environ},
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == status, done.stdout + done.stderr
    told = json.loads(done.stdout)
    assert isinstance(told, dict)
    return {**told, "stderr": done.stderr}


def test_the_machine_is_examined(tmp_path: Path) -> None:
    told = report(cwd=tmp_path)
    facts = goloop.diagnostics()
    for key in ("goloop", "native", "python", "platform", "executable", "tls", "tasks"):
        assert told[key] == facts[key]
    assert told["loop"]["kind"] == "goloop.Loop"
    assert told["loop"]["poller"].startswith("epoll")
    assert told["openssl"].startswith("OpenSSL")
    assert len(told["limits"]["open_files"]) == 2
    assert told["problems"] == []
    assert "program" not in told
    assert told["stderr"] == ""


def test_a_loop_that_cannot_be_made_is_a_problem(tmp_path: Path) -> None:
    done = ended.python(PROGRAMS / "doctor_without_a_loop.py", limit=60)
    assert done.returncode == 1
    assert "a loop cannot be created or run: ImportError: The Go library can't be" in done.stdout


def test_a_misspelt_variable_is_a_problem(tmp_path: Path) -> None:
    told = report(cwd=tmp_path, status=1, GOLOOP_WATCHDOGS="3", GOLOOP_TEST_LOOP="goloop")
    assert told["problems"] == ["unknown variable GOLOOP_WATCHDOGS; did you mean GOLOOP_WATCHDOG?"]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("-m uvicorn --loop goloop app:app", "--loop goloop`: pass --loop goloop:new_event_loop"),
        ("-m uvicorn --loop=goloop.Loop", "--loop goloop.Loop`: pass --loop goloop:new_event_loop"),
        ("uvicorn.py --loop goloop app:app", "--loop goloop`: pass --loop goloop:new_event_loop"),
        (
            "-X dev -m gunicorn -k goloop app:app",
            "-k goloop`: pass --worker-class goloop.workers.GoloopWorker",
        ),
        (
            "-m gunicorn --asgi-loop goloop app:app",
            "--asgi-loop goloop`: pass --worker-class goloop.workers.GoloopWorker",
        ),
        (
            "-m hypercorn --worker-class goloop app:app",
            "--worker-class goloop`: run `python -m goloop -m hypercorn` without this option",
        ),
        (
            "-m granian app:app --loop goloop",
            "--loop goloop`: run `python -m goloop -m granian` without this option",
        ),
        ("-m uvicorn --loop goloop:new_event_loop app:app", None),
        ("-m gunicorn -k goloop.web_worker.GoloopWebWorker app:app", None),
        ("-m uvicorn app:app --loop", None),
        ("-m other --loop goloop", None),
        ("-m", None),
    ],
)
def test_option_that_a_server_does_not_accept_is_a_problem(words: str, problem: str | None) -> None:
    found = doctor._wrong_option(words.split())
    if problem is None:
        assert found is None
    else:
        assert found is not None
        assert found.endswith(problem)
        assert found.partition(" ")[0] in words


def test_report_names_the_option_of_a_server_that_failed(tmp_path: Path) -> None:
    (tmp_path / "uvicorn.py").write_text("raise SystemExit(1)")
    told = report("uvicorn.py", "--loop", "goloop", cwd=tmp_path, status=1)
    assert told["problems"][0] == (
        "uvicorn does not accept `--loop goloop`: pass --loop goloop:new_event_loop"
    )


def test_doctor_knows_the_variables_of_the_page() -> None:
    page = (ROOT / "docs" / "settings.md").read_text()
    running = page.split("\n## Running\n")[1].split("\n## ")[0]
    assert sorted(set(re.findall(r"^\| `(GOLOOP_\w+)", running, re.M))) == sorted(doctor.VARIABLES)
    others = set(re.findall(r"^\| `(GOLOOP_\w+)", page, re.M)) - set(doctor.VARIABLES)
    assert [name for name in sorted(others) if not name.startswith(doctor._OTHER_VARIABLES)] == []


def test_loops_of_a_program_are_reported_with_reasons(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text((PROGRAMS / "doctor_loops.py").read_text())
    told = report("program.py", "an", "argument", cwd=tmp_path, status=1)
    assert told["stderr"].count("printed by an argument") == 3
    program = told["program"]
    assert program["arguments"] == ["program.py", "an", "argument"]
    assert program["status"] == 3
    ours, theirs, by_hand = program["loops"]
    assert ours["loop"] == by_hand["loop"] == "goloop.Loop"
    assert ours["place"] == f"{tmp_path / 'program.py'}:10 in ours"
    assert (
        ours["why"] == "asyncio created the loop through its event loop policy, which is goloop's"
    )
    assert theirs["place"] == f"{tmp_path / 'program.py'}:15 in theirs"
    assert theirs["why"] == "loop_factory=asyncio.unix_events._UnixSelectorEventLoop"
    assert not theirs["is_goloop"]
    assert by_hand["place"] == f"{tmp_path / 'program.py'}:20 in by_hand"
    assert by_hand["why"] == "the program created the loop"
    wrong, status = told["problems"]
    assert "ran at" in wrong
    assert "instead of goloop's loop: pass loop_factory=goloop.new_event_loop" in wrong
    assert status == "the program ended with status 3"


@pytest.mark.forks
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_loops_of_child_processes_are_reported(tmp_path: Path, method: str) -> None:
    (tmp_path / "program.py").write_text(
        "import asyncio, multiprocessing\n"
        "def work():\n"
        "    asyncio.run(asyncio.sleep(0))\n"
        "if __name__ == '__main__':\n"
        "    work()\n"
        f"    child = multiprocessing.get_context({method!r}).Process(target=work)\n"
        "    child.start(); child.join(); raise SystemExit(child.exitcode)\n"
    )
    told = report("program.py", cwd=tmp_path)
    loops = told["program"]["loops"]
    assert [each["loop"] for each in loops] == ["goloop.Loop"] * 2
    assert len({each["pid"] for each in loops}) == 2


def test_a_program_without_a_loop_is_a_problem(tmp_path: Path) -> None:
    told = report("-c", "print(1)", cwd=tmp_path, status=1)
    assert told["problems"] == ["no event loop ran in the program"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT])
def test_a_server_is_ended_by_a_signal_and_then_reported(tmp_path: Path, number: int) -> None:
    program = (PROGRAMS / "doctor_server.py").read_text()
    with subprocess.Popen(
        [sys.executable, "-m", "goloop", "doctor", "-c", program],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as started:  # fmt: skip
        assert started.stderr is not None
        first = line = started.stderr.readline()
        while line not in ("serving\n", ""):
            line = started.stderr.readline()
        if number == signal.SIGINT:  # as a terminal does, to both
            os.killpg(started.pid, number)
        else:
            started.send_signal(number)
        out, err = started.communicate(timeout=60)
    assert started.returncode == 0, out + err
    assert first == (
        "goloop doctor: the report comes when the program ends (end a server with Ctrl-C).\n"
    )
    assert f"status {-number}" in out
    assert "goloop.Loop in process" in out
    assert out.endswith("no problems\n")


def test_no_process_and_no_file_outlives_a_killed_doctor(tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    program = (PROGRAMS / "doctor_killed.py").read_text()
    with subprocess.Popen(
        [sys.executable, "-m", "goloop", "doctor", "-c", program],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(temporary)},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as started:  # fmt: skip
        assert started.stderr is not None
        line = "?"
        while line and not line.startswith("serving "):
            line = started.stderr.readline()
        assert list(temporary.iterdir())
        started.kill()
        started.communicate(timeout=60)  # EOF: the program and the keeper have ended
    assert proc_stat.state(line.split()[1]) in ("", "Z")
    assert list(temporary.iterdir()) == []


def test_a_wrong_option_is_refused_and_help_is_given() -> None:
    wrong = ended.python("-m", "goloop", "doctor", "--jsn", limit=60, apart=True)
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "unknown option --jsn" in wrong.stderr
    for option in ("-h", "--help"):
        told = ended.python("-m", "goloop", "doctor", option, limit=60, apart=True)
        assert (told.returncode, told.stdout, told.stderr) == (0, doctor.USAGE, "")


def test_asyncios_loop_under_goloops_names_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import sys, types\nsys.modules['goloop._pure'] = types.ModuleType('goloop._pure')\n"
    )
    told = report(cwd=tmp_path, status=1, PYTHONPATH=f"{tmp_path}:{ROOT}")
    assert told["loop"]["kind"].startswith("asyncio.")
    assert told["problems"] == [
        f"goloop's own loop is not available, so asyncio's runs: {told['reason']}"
    ]
