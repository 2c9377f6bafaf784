"""pytest's option --loop: goloop's, unless another plugin or a conftest.py has one of that name."""

from __future__ import annotations

import importlib.util
import os
import subprocess
from pathlib import Path

import ended
import pytest

PROGRAMS = Path(__file__).with_name("programs")

# An option that another plugin or a conftest.py adds.
OTHER = """
def pytest_addoption(parser):
    parser.addoption("--loop", default="theirs")
"""
# A variable of the environment has the expected value of the option.
THEIRS = """
import os

def test_value(request):
    assert request.config.getoption("--loop") == os.environ["EXPECTED"]
"""
RUNNING = (PROGRAMS / "loop_option.py").read_text()
TAKEN = "goloop: another plugin or conftest.py has --loop; pass --goloop-loop=goloop for goloop"


def project(folder: Path, files: dict[str, str], *, ini: str = "") -> None:
    """Make the files of a project, and its pytest.ini."""
    (folder / "pytest.ini").write_text(f"[pytest]\n{ini}\n")
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def add_plugin(folder: Path, name: str) -> None:
    """Install a plugin that has an option --loop, with an entry point of this name."""
    installed = folder / f"{name}-1.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
    (installed / "entry_points.txt").write_text("[pytest11]\nother = other\n")
    (folder / "other.py").write_text(OTHER)


def run(
    folder: Path, *options: str, expected: str, path: str = "", disabled: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run pytest in the folder; its modules can be imported from `path`, relative to the folder."""
    environment = {"PYTEST_ADDOPTS": "", "EXPECTED": expected}
    folders = [str(folder / path) if path else "", os.environ.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, folders))
    if disabled:
        environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    words = ("-m", "pytest", "-p", "no:cacheprovider", *options)
    return ended.python(*words, cwd=folder, apart=True, **environment)


def passes(ran: subprocess.CompletedProcess[str]) -> None:
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "1 passed" in ran.stdout


@pytest.mark.parametrize(
    ("place", "ini", "options", "expected"),
    [
        pytest.param("conftest.py", "", (), "theirs", id="of-the-root"),
        pytest.param("conftest.py", "", ("--loop", "goloop"), "goloop", id="with-goloop-s-value"),
        pytest.param("tests/conftest.py", "testpaths = tests", ("--loop=7",), "7", id="testpaths"),
        pytest.param("conftest.py", "addopts = --loop=7", (), "7", id="addopts"),
    ],
)
def test_option_of_an_initial_conftest_is_kept(
    tmp_path: Path, place: str, ini: str, options: tuple[str, ...], expected: str
) -> None:
    project(tmp_path, {place: OTHER, "tests/test_it.py": THEIRS}, ini=ini)
    ran = run(tmp_path, *options, expected=expected)
    passes(ran)
    assert TAKEN in ran.stdout


def test_option_of_a_conftest_that_is_an_argument_is_kept(tmp_path: Path) -> None:
    project(tmp_path, {"tests/conftest.py": OTHER, "tests/test_it.py": THEIRS})
    passes(run(tmp_path, "tests/test_it.py", "--loop=7", expected="7"))


@pytest.mark.parametrize("option", [(), ("--loop=asyncio",)])
def test_option_of_a_conftest_that_is_loaded_later_is_kept(
    tmp_path: Path, option: tuple[str, ...]
) -> None:
    """A conftest.py in a folder below is loaded when the command line has been parsed."""
    project(tmp_path, {"some/where/conftest.py": OTHER, "some/where/test_it.py": THEIRS})
    ran = run(tmp_path, *option, expected="theirs")
    passes(ran)
    assert TAKEN not in ran.stdout


# Entry points are loaded in the order of the folders on sys.path: this one comes before goloop's
# unless -p loads goloop's plugin first.
@pytest.mark.parametrize("options", [(), ("-p", "goloop")])
def test_option_of_a_plugin_is_kept(tmp_path: Path, options: tuple[str, ...]) -> None:
    project(tmp_path, {"test_it.py": THEIRS})
    (tmp_path / "site").mkdir()
    add_plugin(tmp_path / "site", "other")
    ran = run(tmp_path, *options, "--loop=7", expected="7", path="site")
    passes(ran)
    assert TAKEN in ran.stdout


def test_option_of_a_plugin_that_a_conftest_names_is_kept(tmp_path: Path) -> None:
    files = {"conftest.py": "pytest_plugins = ['other']\n", "other.py": OTHER}
    project(tmp_path, {**files, "test_it.py": THEIRS})
    passes(run(tmp_path, "--loop=7", expected="7", path="."))


XDIST = pytest.mark.skipif(not importlib.util.find_spec("xdist"), reason="needs pytest-xdist")


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(("--loop=goloop",), id="loop"),
        pytest.param(("--loop", "goloop"), id="two-words"),
        pytest.param(("--goloop-loop=goloop",), id="goloop-loop"),
        pytest.param(("--loop=goloop", "-n2"), marks=XDIST, id="xdist"),
    ],
)
def test_option_chooses_goloop(tmp_path: Path, options: tuple[str, ...]) -> None:
    project(tmp_path, {"test_it.py": RUNNING})
    ran = run(tmp_path, *options, expected="goloop")
    passes(ran)
    assert "loop: goloop " in ran.stdout


@pytest.mark.parametrize("workers", [(), pytest.param(("-n2",), marks=XDIST)], ids=["", "xdist"])
def test_long_option_chooses_goloop_beside_another_option_loop(
    tmp_path: Path, workers: tuple[str, ...]
) -> None:
    project(tmp_path, {"conftest.py": OTHER, "test_it.py": RUNNING})
    ran = run(tmp_path, "--loop=7", "--goloop-loop=goloop", *workers, expected="goloop")
    passes(ran)
    assert "loop: goloop " in ran.stdout
    assert TAKEN not in ran.stdout


def test_value_after_the_option_is_not_taken_for_a_path(tmp_path: Path) -> None:
    """With a path pytest would load no conftest.py of `testpaths` before it parses the options."""
    slow = "def pytest_addoption(parser):\n    parser.addoption('--slow', action='store_true')\n"
    project(
        *(tmp_path, {"checks/conftest.py": slow, "checks/test_it.py": RUNNING}),
        ini="testpaths = checks\naddopts = --loop goloop",
    )
    passes(run(tmp_path, "--slow", expected="goloop"))


def test_plugin_that_a_conftest_names_has_the_option(tmp_path: Path) -> None:
    project(
        tmp_path, {"conftest.py": "pytest_plugins = ['pytest_goloop']\n", "test_it.py": RUNNING}
    )
    ran = run(tmp_path, "--loop=goloop", expected="goloop", disabled=True)
    passes(ran)


def test_help_shows_the_options(tmp_path: Path) -> None:
    project(tmp_path, {})
    assert "  --loop={asyncio,goloop}" in run(tmp_path, "--help", expected="").stdout
    (tmp_path / "conftest.py").write_text(OTHER)
    told = run(tmp_path, "--help", expected="").stdout
    assert "  --goloop-loop={asyncio,goloop}" in told
    assert "  --loop={asyncio,goloop}" not in told
    assert "  --loop=" in told
    (tmp_path / "conftest.py").write_text("raise ValueError\n")
    assert "  --loop={asyncio,goloop}" in run(tmp_path, "--help", expected="").stdout
