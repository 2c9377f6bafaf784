"""Servers and children that choose a loop themselves run on goloop, told by one word.

That word is `python -m goloop` before the program, or goloop.install() in it.  uvloop is
installed, so that every server that prefers it has it at hand.
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

from real_programs.programs import LOOP, Program, Programs, free_port, get, needs

needs("uvloop")

pytestmark = pytest.mark.real

GOLOOP = ("-m", "goloop")
SAYS_NO_LOOP = "goloop was not used"


def loops(port: int, processes: int = 1) -> dict[int, str]:
    """The loop of each process that serves, by its number; asks until so many have answered."""
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


INSTALLED = """
import warnings
warnings.simplefilter("ignore", DeprecationWarning)
import goloop, sys, uvicorn
if __name__ == "__main__":
    goloop.install()
    uvicorn.run("plain_app:app", port=int(sys.argv[1]), workers=int(sys.argv[2]))
"""


@pytest.mark.parametrize("workers", [1, 2])
def test_uvicorn_after_install(programs: Programs, tmp_path: Path, workers: int) -> None:
    needs("uvicorn")
    port = free_port()
    path = tmp_path / "installed.py"
    path.write_text(INSTALLED)
    server = programs.python(path, str(port), str(workers), port=port)
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


CHILDREN = """
import asyncio, multiprocessing, pathlib, sys
from concurrent.futures import ProcessPoolExecutor

async def main():
    return repr(asyncio.get_running_loop())

def pooled():
    return asyncio.run(main())

def work(queue):
    queue.put(asyncio.run(main()))

if __name__ == "__main__":
    if sys.argv[1] == "spawn":  # forkserver itself can't pass them on
        # Imports ignore all but strings; the last is a name of bytes that are not UTF-8.
        sys.path += [pathlib.Path("/nowhere"), b"/nowhere", None, "/\\udcff"]
    context = multiprocessing.get_context(sys.argv[1])
    queue = context.SimpleQueue()
    children = [context.Process(target=work, args=(queue,)) for _ in range(2)]
    for child in children:
        child.start()
    for child in children:
        print("child", queue.get())
    for child in children:
        child.join()
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        print("child", pool.submit(pooled).result())
"""


@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
def test_children_of_multiprocessing(programs: Programs, tmp_path: Path, method: str) -> None:
    path = tmp_path / "children.py"
    path.write_text(CHILDREN)
    program = programs.python(*GOLOOP, path, method)
    program.process.wait(60)
    assert program.output.count("child <goloop.Loop running=True") == 3, program.output
    assert SAYS_NO_LOOP not in program.output


def test_a_reloaded_django_runs_on_goloop(programs: Programs, tmp_path: Path) -> None:
    """runserver serves in a child process; the views have loops of their own."""
    needs("django")
    (tmp_path / "manage.py").write_text(
        "import asyncio, os, sys\n"
        "from django.conf import settings\n"
        "from django.http import JsonResponse\n"
        "from django.urls import path\n"
        "async def view(request):\n"
        "    kind = type(asyncio.get_running_loop())\n"
        "    loop = f'{kind.__module__}.{kind.__qualname__}'\n"
        "    return JsonResponse({'loop': loop, 'pid': os.getpid()})\n"
        "urlpatterns = [path('', view)]\n"
        "settings.configure(DEBUG=True, ROOT_URLCONF=__name__, ALLOWED_HOSTS=['*'])\n"
        "from django.core.management import execute_from_command_line\n"
        "execute_from_command_line(sys.argv)\n"
    )
    port = free_port()
    server = programs.python(
        *GOLOOP, tmp_path / "manage.py", "runserver", f"127.0.0.1:{port}", port=port
    )
    found = loops(port)
    assert set(found.values()) == {LOOP}
    assert server.process.pid not in found


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


@pytest.mark.parametrize("quiet", ["no loop", "goloop's", "both", "ignored"])
def test_there_is_no_warning_without_reason(programs: Programs, tmp_path: Path, quiet: str) -> None:
    path = tmp_path / "quiet.py"
    other = (
        "with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:\n"
        "    runner.run(asyncio.sleep(0))\n"
    )
    path.write_text(
        "import asyncio\n"
        + (other if quiet in ("both", "ignored") else "")
        + ("asyncio.run(asyncio.sleep(0))\n" if quiet in ("goloop's", "both") else "")
    )
    option = ["-W", "ignore::RuntimeWarning"] if quiet == "ignored" else []
    program = programs.python(*option, *GOLOOP, path)
    program.process.wait(60)
    assert program.output == ""


def test_program_without_the_patched_function_runs_with_a_warning(
    programs: Programs, tmp_path: Path
) -> None:
    """Another uvicorn, one day, without the function that goloop replaces."""
    (tmp_path / "uvicorn" / "loops").mkdir(parents=True)
    (tmp_path / "uvicorn" / "__init__.py").write_text("")
    (tmp_path / "uvicorn" / "loops" / "__init__.py").write_text("")
    (tmp_path / "uvicorn" / "loops" / "auto.py").write_text("def another(): return 5\n")
    (tmp_path / "program.py").write_text(
        "import uvicorn.loops.auto as auto\n"
        "print(auto.another(), *(type(each).__name__ for each in (auto.__loader__,\n"
        "                                                         auto.__spec__.loader)))\n"
    )
    program = programs.python(*GOLOOP, tmp_path / "program.py")
    program.process.wait(60)
    assert "5 SourceFileLoader SourceFileLoader" in program.output
    assert "goloop cannot make uvicorn.loops.auto use its loop" in program.output


def test_a_task_of_taskiq(programs: Programs, tmp_path: Path) -> None:
    needs("taskiq")
    (tmp_path / "tasks.py").write_text(
        "import asyncio\n"
        "from taskiq import InMemoryBroker, TaskiqEvents\n"
        "broker = InMemoryBroker()\n"
        "@broker.on_event(TaskiqEvents.WORKER_STARTUP)\n"
        "async def begin(state):\n"
        "    print('worker on', repr(asyncio.get_running_loop()), flush=True)\n"
    )
    program = programs.python(
        *GOLOOP, "-m", "taskiq", "worker", "tasks:broker", "--workers", "1",
        "--app-dir", tmp_path,
    )  # fmt: skip
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
