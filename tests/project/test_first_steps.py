"""A new user's first steps: README and docs/start.md, followed as written, in a checkout."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pages import PAGES, blocks

import environments
import goloop
from goloop_build import address

ROOT = Path(__file__).resolve().parents[2]
NOTE = "<!-- before the first release -->"

pytestmark = [pytest.mark.timeout(600), pytest.mark.goloop_only("about goloop's pages")]


class Checkout:
    """A copy of the tree without built parts, and an environment whose pip and python it uses."""

    def __init__(self, folder: Path) -> None:
        self.tree = folder / "goloop"
        for path in environments.tree():
            copy = self.tree / path.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, copy)
        home = folder / "environment"
        made = [sys.executable, "-m", "venv", "--without-pip", str(home)]
        subprocess.run(made, check=True, timeout=100)
        self.bin = home / "bin"
        # The build's requirements are those of the tests: pip fetches nothing.
        setuptools = pytest.importorskip("setuptools", reason="the build's requirement")
        lent = folder / "lent"
        lent.mkdir()
        packages = Path(setuptools.__file__).parents[1]
        for path in [*packages.glob("setuptools*"), packages / "_distutils_hack"]:
            (lent / path.name).symlink_to(path)
        pip = shlex.join([sys.executable, "-m", "pip", f"--python={home}"])
        (self.bin / "pip").write_text(
            "#!/bin/sh\nexport PIP_NO_INDEX=1 PIP_NO_DEPS=1 PIP_NO_BUILD_ISOLATION=0\n"
            f'PYTHONPATH={shlex.quote(str(lent))} exec {pip} "$@"\n'
        )
        (self.bin / "pip").chmod(0o755)

    def run(self, command: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command of a page in the checkout, or in another folder."""
        without = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
        environ = {name: value for name, value in os.environ.items() if name not in without}
        environ["PATH"] = f"{self.bin}{os.pathsep}{environ['PATH']}"
        return subprocess.run(
            ["sh", "-c", command], cwd=cwd or self.tree, env=environ, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, check=False, timeout=500,
        )  # fmt: skip

    def succeeds(self, command: str, cwd: Path | None = None) -> str:
        done = self.run(command, cwd)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout

    def close(self) -> None:
        """Remove the parts that `pip install -e .` has built, and the installed goloop."""
        self.succeeds("pip uninstall -y goloop")
        for path in [*self.tree.glob("goloop/*.so"), *self.tree.glob("goloop/*.so.1")]:
            path.unlink()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    return Checkout(tmp_path_factory.mktemp("steps"))


@pytest.fixture
def bare(made: Checkout) -> Checkout:
    """The checkout before the first step."""
    if any(made.tree.glob("goloop/*.so")):
        made.close()
    return made


def installing() -> str:
    """The command by which README installs goloop from a checkout, while it isn't on PyPI."""
    note = (ROOT / "README.md").read_text().partition(NOTE)[2].partition("<!-- end -->")[0]
    (command,) = re.findall(r"^```sh\n(pip .*)\n```$", note, re.M) if note else ["pip install -e ."]
    return str(command)


def programs(page: str) -> dict[str, str]:
    """The programs of a page that have a name: 'Save this as `NAME`:' or 'here `NAME`:'."""
    pattern = r"`(\w+\.py)`:\n\n```python\n(.*?)^```$"
    return dict(re.findall(pattern, (ROOT / page).read_text(), re.S | re.M))


def consoles(page: str) -> list[tuple[str, str]]:
    """The commands in a page's consoles that run these programs, each with its output."""
    blocks = re.findall(r"^```console\n(.*?)^```$", (ROOT / page).read_text(), re.S | re.M)
    found = re.findall(r"^\$ (.*)\n((?:[^$].*\n)*)", "".join(blocks), re.M)
    return [(command, output) for command, output in found if command.endswith(".py")]


def test_the_first_command_of_install_works_at_the_time() -> None:
    """Before the release that is the command for a checkout; it stands on one page only."""
    working = "pip install goloop" if address.PUBLISHED else installing()
    section = (ROOT / "README.md").read_text().partition("\n## Install\n")[2]
    first = re.search(r"^(?:\$ )?(pip install .*)$", section, re.M)
    assert first is not None
    assert first[1] == working
    pages = {
        page.name
        for page in PAGES
        for block in blocks(page, "sh", "console")
        if re.search(rf"^(?:\$ )?{re.escape(working)}$", block, re.M)
    }
    assert address.PUBLISHED or pages == {"README.md"}


def test_the_start_pages_steps_work_in_the_checkout(bare: Checkout) -> None:
    bare.succeeds(installing())
    for name, program in programs("docs/start.md").items():
        (bare.tree / name).write_text(program)
    shown = consoles("docs/start.md")
    assert len(shown) == 3
    for command, output in shown:
        assert bare.succeeds(command) == output
    assert bare.succeeds("python clock.py") == ""


def test_readmes_steps_work_in_the_checkout(bare: Checkout) -> None:
    bare.succeeds(installing())
    text = (ROOT / "README.md").read_text()
    first, second = re.findall(r"^```python\n(.*?)^```$", text, re.S | re.M)[:2]
    (output,) = re.findall(r"prints `(ran on [^`]*)`", text)
    (bare.tree / "program.py").write_text(second)
    assert bare.succeeds("python program.py") == output + "\n"
    (bare.tree / "program.py").write_text(first)
    assert bare.succeeds("python program.py") == output + "\n"
    (command,) = re.findall(r"^(python -m goloop program\.py)$", text, re.M)
    (bare.tree / "program.py").write_text(first.replace("goloop.run", "asyncio.run"))
    assert bare.succeeds(command) == output + "\n"


def test_without_e_the_message_is_the_way_out(bare: Checkout, tmp_path: Path) -> None:
    assert "After `pip install .` without `-e`" in (ROOT / "README.md").read_text()
    hello = programs("docs/start.md")["hello.py"]
    for folder in (bare.tree, tmp_path):
        (folder / "hello.py").write_text(hello)
    refused = bare.run("python -m goloop hello.py")
    assert refused.returncode != 0
    assert f"in its source tree {bare.tree}. Run `pip install -e .` there" in refused.stderr

    bare.succeeds("pip install .")
    shutil.rmtree(bare.tree / "build")
    for command in ("python -m goloop hello.py", "python hello.py", "python -c 'import goloop'"):
        refused = bare.run(command)
        assert refused.returncode != 0
        message = refused.stderr.splitlines()[-1]
        assert message.startswith("ImportError: goloop's C extension is not built for this Python")
        assert f"source tree {bare.tree}, which Python found before" in message
        installed = next(bare.bin.parent.glob("lib/python*/site-packages"))
        assert f"installed in {installed}." in message
    # Each of the message's ways out.
    assert "`python -P`" in message
    assert "from a folder outside of the source tree" in message
    assert "`pip install -e .` in the source tree" in message
    expected = "running on <goloop.Loop running=True closed=False debug=False>\ndone\n"
    assert bare.succeeds("python -P -m goloop hello.py") == expected
    assert bare.succeeds("python -P hello.py") == expected
    assert bare.succeeds("goloop hello.py") == expected
    assert bare.succeeds("python -m goloop hello.py", tmp_path) == expected
    bare.succeeds("pip install -e .")
    assert bare.succeeds("python -m goloop hello.py") == expected
    version = bare.succeeds("python -m goloop --version")
    assert version == f"goloop {goloop.__version__}\n"


@pytest.mark.parametrize(
    ("server", "client"),
    [("echo_server.py", "echo_client.py"), ("aiohttp_app.py", "aiohttp_client.py")],
)
def test_an_example_serves_its_client_and_ends_by_ctrl_c(server: str, client: str) -> None:
    examples = ROOT / "examples"
    with subprocess.Popen(
        [sys.executable, examples / server, "0"], stdout=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as process:  # fmt: skip
        try:
            assert process.stdout is not None
            port = process.stdout.readline().rpartition("port ")[2].strip()
            subprocess.run([sys.executable, examples / client, port], check=True, timeout=60)
        finally:
            process.send_signal(signal.SIGINT)
    assert process.returncode == 0
