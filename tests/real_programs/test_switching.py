"""Servers and children that choose a loop themselves run on goloop by one word.

That word is `python -m goloop` before the program, or goloop.install() in it.  uvloop is
installed, so that servers that prefer it could use it.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from pathlib import Path

import pytest

from real_programs.programs import APPS, LOOP, Program, Programs, free_port, get, needs

needs("uvloop")

pytestmark = pytest.mark.real

GOLOOP = ("-m", "goloop")
SAYS_NO_LOOP = "goloop was not used"


def loops(port: int, processes: int = 1) -> dict[int, str]:
    """Ask until this number of processes have answered; return their loops by process id."""
    found: dict[int, str] = {}
    deadline = time.monotonic() + 60
    while len(found) < processes:
        told = json.loads(get(f"http://127.0.0.1:{port}"))
        found[told["pid"]] = told["loop"]
        assert time.monotonic() < deadline, found
    return found


def serves_on_goloop(server: Program, port: int, processes: int = 1, **expected: object) -> str:
    """Ask every process, and end the server; return its output."""
    found = loops(port, processes)
    assert set(found.values()) == {LOOP}
    if processes > 1 or expected.get("children"):
        assert server.process.pid not in found
    output = server.end(status=None)
    assert SAYS_NO_LOOP not in output
    return output


ASGI = "plain_app:app --workers {workers}"
GUNICORN = f"gunicorn {ASGI} --no-control-socket --bind 127.0.0.1:{{port}} -k"
# Servers: the modules that they need, their words, and how many workers they have.
SERVERS = [
    ("uvicorn", f"uvicorn {ASGI} --port {{port}}", (1, 2)),
    ("hypercorn", f"hypercorn {ASGI} --bind 127.0.0.1:{{port}}", (1, 2)),
    ("granian", f"granian {ASGI} --port {{port}} --interface asgi", (1, 2)),
    ("gunicorn.workers.gasgi", f"{GUNICORN} asgi", (2,)),
    ("gunicorn uvicorn_worker", f"{GUNICORN} uvicorn_worker.UvicornWorker", (2,)),
    ("gunicorn.workers.gasgi", f"{GUNICORN} goloop.workers.GoloopWorker", (2,)),
    ("aiohttp", "aiohttp.web -H 127.0.0.1 -P {port} plain_web:make", (1,)),
]


@pytest.mark.parametrize(
    ("modules", "words", "workers"),
    [(modules, words, count) for modules, words, counts in SERVERS for count in counts],
)
def test_a_server_runs_on_goloop(
    programs: Programs, modules: str, words: str, workers: int
) -> None:
    needs(*modules.split())
    port = free_port()
    filled = words.format(port=port, workers=workers).split()
    server = programs.python(*GOLOOP, "-m", *filled, port=port)
    # Hypercorn and granian have a main process beside their only worker.
    serves_on_goloop(server, port, workers, children=modules in ("hypercorn", "granian"))


def test_uvicorn_reloads_on_goloop(programs: Programs, tmp_path: Path) -> None:
    needs("uvicorn")
    port = free_port()
    changed = tmp_path / "changed.py"
    changed.write_text("x = 1\n")
    server = programs.python(
        *GOLOOP, "-m", "uvicorn", "plain_app:app", "--port", str(port), "--reload",
        "--reload-dir", tmp_path, port=port,
    )  # fmt: skip
    first = loops(port)
    deadline = time.monotonic() + 60
    while True:
        changed.write_text(f"x = {time.monotonic()}\n")
        try:
            second = loops(port)
        except OSError:  # between two of them
            second = first
        if second != first:
            break
        assert time.monotonic() < deadline, server.output
        time.sleep(0.2)
    assert set(first.values()) == set(second.values()) == {LOOP}
    server.end(status=None)


@pytest.mark.parametrize("workers", [1, 2])
def test_uvicorn_after_install(programs: Programs, workers: int) -> None:
    needs("uvicorn")
    port = free_port()
    server = programs.python(APPS / "uvicorn_installed.py", str(port), str(workers), port=port)
    serves_on_goloop(server, port, workers)


def test_gunicorn_reexecutes_itself_on_goloop(programs: Programs) -> None:
    """USR2: a second master, with workers of its own; the first may go."""
    needs("gunicorn.workers.gasgi")
    port = free_port()
    server = programs.python(
        *GOLOOP, "-m", "gunicorn", "plain_app:app", "-k", "asgi", "--no-control-socket",
        "--bind", f"127.0.0.1:{port}", "--pid", "gunicorn.pid", "--chdir", programs.directory,
        "--pythonpath", os.environ.get("PYTHONPATH", "") or ".", port=port,
    )  # fmt: skip
    old = loops(port)
    server.process.send_signal(signal.SIGUSR2)
    server.until_says("Listening at", 2)
    server.until_says("Booting worker", 2)
    server.process.send_signal(signal.SIGTERM)
    server.process.wait(60)
    new = loops(port)
    assert set(new) != set(old)
    assert set(old.values()) | set(new.values()) == {LOOP}
    pid = programs.directory / "gunicorn.pid"  # the new master's, once it has seen the old one go
    deadline = time.monotonic() + 60
    while not pid.exists():
        assert time.monotonic() < deadline, server.output
        time.sleep(0.05)
    os.kill(int(pid.read_text()), signal.SIGTERM)


@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
def test_children_of_multiprocessing(programs: Programs, method: str) -> None:
    said = programs.ends_well(*GOLOOP, APPS / "loops_of_children.py", method)
    assert said.count("child <goloop.Loop running=True") == 3, said
    assert SAYS_NO_LOOP not in said


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["-m", "uvicorn", "plain_app:app", "--loop", "uvloop"], "--loop goloop:new_event_loop"),
        (["-m", "uvicorn", "plain_app:app", "--loop", "asyncio", "--workers", "2"], "--loop"),
        # With two it ends the first one by a signal where the second one was faster.
        (["-m", "hypercorn", "plain_app:app", "-k", "uvloop", "-w", "1"], "--worker-class asyncio"),
        (["-m", "granian", "--interface", "asgi", "plain_app:app", "--loop", "uvloop"], "auto"),
    ],
    ids=["uvicorn", "uvicorn-workers", "hypercorn-worker", "granian"],
)
def test_program_with_its_own_loop_gets_one_warning(
    programs: Programs, words: list[str], hint: str
) -> None:
    needs(words[1])
    port = free_port()
    bind = ["--bind", f"127.0.0.1:{port}"] if words[1] == "hypercorn" else ["--port", str(port)]
    server = programs.python(*GOLOOP, *words, *bind, port=port)
    (loop,) = set(loops(port, 2 if words[-1] == "2" else 1).values())
    assert loop != LOOP
    output = server.end(status=None)
    assert output.count(SAYS_NO_LOOP) == 1, output
    (line,) = (line for line in output.splitlines() if SAYS_NO_LOOP in line)
    assert loop in line
    assert hint in line


def rejected() -> list[tuple[str, str]]:
    """The commands of the page that servers reject, and the errors that it quotes."""
    page = Path(__file__).resolve().parents[2] / "docs" / "troubleshooting.md"
    section = page.read_text().split("\n## The server rejects `goloop`\n")[1].split("\n## ")[0]
    return re.findall(r"^\| `([^`]+)`: `([^`]+)` \|", section, re.MULTILINE)


@pytest.mark.parametrize(("command", "error"), rejected())
def test_server_rejects_the_option_with_the_words_of_the_page(
    programs: Programs, command: str, error: str
) -> None:
    needs(command.split()[0])
    words = [*command.split(), "plain_app:app"]
    if words[0] == "granian":
        words += ["--interface", "asgi"]
    program = programs.python("-m", *words)
    assert program.process.wait(60) != 0
    output = re.sub(r"\s+", " ", program.output.replace("│", " "))
    assert error.removesuffix("...") in output


def test_the_page_has_the_errors_of_all_servers() -> None:
    assert {command.split()[0] for command, _ in rejected()} == {
        *("granian", "gunicorn", "hypercorn", "uvicorn")
    }


@pytest.mark.parametrize(
    ("loops", "options"),
    [
        ((), ()),
        (("default",), ()),
        (("asyncio", "default"), ()),
        (("asyncio",), ("-W", "ignore::RuntimeWarning")),
    ],
)
def test_there_is_no_warning_without_reason(
    programs: Programs, loops: tuple[str, ...], options: tuple[str, ...]
) -> None:
    assert programs.ends_well(*options, *GOLOOP, APPS / "short_runs.py", *loops) == ""


def test_program_without_the_patched_function_runs_with_a_warning(
    programs: Programs, tmp_path: Path
) -> None:
    """Another uvicorn, one day, without the function that goloop replaces."""
    (tmp_path / "uvicorn" / "loops").mkdir(parents=True)
    (tmp_path / "uvicorn" / "__init__.py").write_text("")
    (tmp_path / "uvicorn" / "loops" / "__init__.py").write_text("")
    (tmp_path / "uvicorn" / "loops" / "auto.py").write_text("def another(): return 5\n")
    said = programs.ends_well(*GOLOOP, APPS / "loader_of_uvicorn.py", PYTHONPATH=str(tmp_path))
    assert "5 SourceFileLoader SourceFileLoader" in said
    assert "goloop cannot make uvicorn.loops.auto use its loop" in said


def test_a_task_of_taskiq(programs: Programs) -> None:
    needs("taskiq")
    program = programs.python(
        *GOLOOP, "-m", "taskiq", "worker", "taskiq_in_memory:broker", "--workers", "1"
    )
    program.until_says("worker on")
    assert "worker on <goloop.Loop running=True" in program.output


@pytest.mark.skipif(sys.version_info >= (3, 16), reason="policies have gone")
def test_the_console_script_switches_too(programs: Programs, tmp_path: Path) -> None:
    needs("uvicorn")
    port = free_port()
    script = tmp_path / "goloop"
    script.write_text("import sys\nfrom goloop.__main__ import command\nsys.exit(command())\n")
    server = programs.python(
        script, "-m", "uvicorn", "plain_app:app", "--port", str(port), port=port
    )
    serves_on_goloop(server, port)
