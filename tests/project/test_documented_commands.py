"""The commands of README and of the pages: each block runs, in bash, in a folder with its files.

A block of kind `sh`, `console` or `bash` is one script.  CHANGES has changes of it, so that it
ends soon; NOT_RUN has the blocks that do not run here, with the reason.  Files that a block
needs are in FILES, or are programs of its page.  test_docs.py runs the programs, and compares the
output that getting started shows.
"""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest
from observed_programs import running
from pages import PAGES, ROOT, blocks

PROGRAMS = Path(__file__).with_name("programs")

pytestmark = [
    pytest.mark.goloop_only("about pages of goloop's"),
    pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash"),
]

# Blocks that do not run here: a pattern that is searched in the block, and the reason.
NOT_RUN = {
    r"\bpip install goloop\b": "there is no release on PyPI yet",
    r"\bpip install\b": "needs the network",
    r"\bmake (demo|bench|build)\b": "takes minutes",
    r"-m benchmarks(\.\w+)? (?!list\b)": "takes minutes",
    r"\bnuitka\b": "compiles for minutes",
    r"\bjupyter kernelspec\b": "writes into the user's home",
    r"\bcelery\b": "needs a broker; tests/real_programs/test_celery.py has one",
    r"\bgoloop compare\b": "measures for minutes; tests/project/test_compare.py runs each form",
    r"project\.asgi": "needs Django; tests/real_programs/test_django.py has a project",
    r"\bgdb\b": "needs a debugger and a process that hangs",
    r"tests/what_works/": "tests/what_works runs these programs",
}

# Servers run until they have printed this text; then they get Ctrl-C.
ENDLESS = {
    r"python -m goloop -m uvicorn|uvicorn --loop|python -m uvicorn": "Application startup complete",
    r"(?:python -m )?goloop doctor -m uvicorn": "Application startup complete",
    r"gunicorn --worker-class": "Booting worker",
    r"goloop export(?! --once)": "http://",
}

# Replacements in a block, which do not change the meaning of a command.
CHANGES = [
    (r"\b4711\b|\bPID\b", "$PROGRAM"),
    (r" --seconds \d+", ""),
    (r"\bgoloop (profile|trace)\b", r"goloop \1 --seconds 0.2"),
    (r"\bgoloop top\b", "goloop top -n 1"),
    # The command repeats a failure, so its status is 1.
    (r"(?m)(--goloop-replay=\S+)$", r"\1 || [ $? = 1 ]"),
]

APP = (PROGRAMS / "documented_app.py").read_text()
RUNS = "import asyncio\nasyncio.run(asyncio.sleep(0.01))\n"
SERVES = "import asyncio\nasyncio.run(asyncio.sleep(100))\n"
FILES = {
    "app.py": APP, "program.py": RUNS, "prog.py": RUNS, "server.py": SERVES,
    "package/__init__.py": "", "package/module.py": RUNS,
    "test_of_the_reader.py": (PROGRAMS / "documented_test.py").read_text(),
}  # fmt: skip

# until.py TEXT COMMAND...: the command, which is ended by Ctrl-C when its output has the text, once
# for each of its --workers.


def script(block: str) -> str:
    """The commands of a block, without prompts and the output of commands."""
    if not re.search(r"^\$ ", block, re.MULTILINE):
        return block
    lines = re.findall(r"^\$ ((?:.*\\\n)*.*)$", block, re.MULTILINE)
    return "".join(f"{line}\n" for line in lines)


def reason(commands: str) -> str | None:
    """Why a script does not run here; None if it runs."""
    return next((why for shape, why in NOT_RUN.items() if re.search(shape, commands)), None)


def changed(commands: str) -> str:
    """The script with CHANGES, and with until.py before servers."""
    for shape, text in CHANGES:
        commands = re.sub(shape, text, commands)
    lines = []
    for line in commands.splitlines():
        for shape, text in ENDLESS.items():
            if re.match(rf"(?:{shape})\b", line):
                line = f"python until.py {shlex.quote(text)} {line}"
                break
        lines.append(line)
    return "\n".join(lines) + "\n"


def scripts() -> list[tuple[Path, int, str]]:
    """Each block of commands: its page, its number there, and its commands."""
    return [
        (page, number, script(block))
        for page in PAGES
        for number, block in enumerate(blocks(page, "sh", "console", "bash"))
    ]


# Modules of packages that a reader may have, and the command that needs each.
NEEDED = {
    "uvicorn": r"\buvicorn\b",
    "gunicorn": r"\bgunicorn\b",
    "pytest_asyncio": r"\bpytest --loop\b",
}


@pytest.fixture(scope="module")
def program() -> Iterator[int]:
    """The id of a program that answers commands."""
    text = "import asyncio, goloop\nasync def main():\n    print('ready', flush=True)\n"
    with running(text + "    await asyncio.sleep(600)\ngoloop.run(main())\n") as process:
        yield process.pid


def run(commands: str, page: Path, folder: Path, pid: int) -> subprocess.CompletedProcess[str]:
    """Run a script in a folder with FILES and the blocks to which the page gives a file name."""
    for name, text in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    for before, text in re.findall(
        r"([^\n]*)\n*^```python\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE
    ):
        named = re.findall(r"`(\w+\.py)`", before) or re.findall(r"^# (\w+\.py)\n", text)
        if named:
            (folder / named[0]).write_text(text)
    (folder / "until.py").write_text((PROGRAMS / "documented_until.py").read_text())
    (folder / "bin").mkdir()
    for name in ("python", "goloop", "pytest", "uvicorn", "gunicorn"):
        (folder / "bin" / name).write_text(
            f'#!/bin/sh\nexec {sys.executable} {"" if name == "python" else f"-m {name}"} "$@"\n'
        )
        (folder / "bin" / name).chmod(0o755)
    paths = [str(folder / "bin"), sysconfig.get_path("scripts"), os.environ["PATH"]]
    environ = {
        **os.environ,
        "PATH": os.pathsep.join(paths),
        "PYTHONPATH": str(ROOT),
        "PROGRAM": str(pid),
        "UVICORN_PORT": "0",
        "GUNICORN_CMD_ARGS": "--bind 127.0.0.1:0 --no-control-socket",
    }
    process = subprocess.Popen(
        ["bash", "-e", "-o", "pipefail", "-c", commands],
        cwd=folder, env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        process.wait(100)
    finally:
        # Jobs in the background are killed, too; until then they keep the pipe open.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    output = process.communicate(timeout=10)[0]
    return subprocess.CompletedProcess(commands, process.returncode, output)


@pytest.mark.parametrize(
    ("page", "commands"),
    [
        pytest.param(page, text, id=f"{page.relative_to(ROOT).with_suffix('')}-{number}")
        for page, number, text in scripts()
        if reason(text) is None
    ],
)
def test_the_documented_commands_run(
    page: Path, commands: str, program: int, tmp_path: Path
) -> None:
    for module, shape in NEEDED.items():
        if importlib.util.find_spec(module) is None:
            commands = "".join(
                line for line in commands.splitlines(True) if not re.search(shape, line)
            )
            if not commands.strip():
                pytest.skip(f"{module} is not installed")
    if "| jq" in commands and shutil.which("jq") is None:
        commands = re.sub(r"\| jq .*", "| grep processes", commands)
    done = run(changed(commands), page, tmp_path, program)
    assert done.returncode == 0, f"{done.args}\n{done.stdout}"


def test_each_reason_and_change_is_used() -> None:
    every = [text for _, _, text in scripts()]
    run_here = [text for text in every if reason(text) is None]
    assert len(run_here) > 20
    assert [shape for shape in NOT_RUN if not any(re.search(shape, text) for text in every)] == []
    known = "\n".join(run_here)
    assert [shape for shape, _ in CHANGES if not re.search(shape, known)] == []
    assert [shape for shape in ENDLESS if not re.search(shape, known)] == []


def test_commands_are_read_out_of_a_block() -> None:
    assert script("$ one \\\n  two\nprinted\n$ three\n") == "one \\\n  two\nthree\n"
    assert script("one\ntwo\n") == "one\ntwo\n"
    assert changed("goloop top 4711\n") == "goloop top -n 1 $PROGRAM\n"
    assert changed("goloop export\n").startswith("python until.py http:// goloop export")


def test_fragments_of_programs_are_python() -> None:
    """Blocks of kind `text` that begin as a program does; they may lack names, but are Python."""
    begins = re.compile(r"(?:# \w+\.py\n)?(?:import |from \w+ import |def |async def |@|class )")
    found = [
        (page.relative_to(ROOT), text)
        for page in PAGES
        for text in blocks(page, "text")
        if begins.match(text)
    ]
    assert len(found) > 5
    wrong = []
    for page, text in found:
        try:
            ast.parse(text)
        except SyntaxError as error:
            wrong.append((page, error))
    assert wrong == []
