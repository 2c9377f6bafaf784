"""pytest's plugins for asyncio: each runs tests and fixtures of a small project on goloop."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

import goloop
from real_programs.programs import APPS, ASYNCIO_LOOP, LOOP, Programs, needs

needs("pytest_asyncio", "pytest_aiohttp", "anyio")

pytestmark = pytest.mark.real

PROJECTS = Path(__file__).with_name("projects")
AUTO = ("-o", "asyncio_mode=auto")
NO_PLUGINS = ("-p", "no:asyncio", "-p", "no:aiohttp")


def passed(
    programs: Programs, folder: Path, tests: str, conftest: str | None, *options: str
) -> tuple[int, str]:
    """Run a project's tests, with a conftest: their number, all of them passed, and the output."""
    (folder / "pytest.ini").write_text("[pytest]\n")
    if conftest is not None:
        shutil.copy(PROJECTS / f"conftest_{conftest}.py", folder / "conftest.py")
    shutil.copy(PROJECTS / f"{tests}_tests.py", folder / "test_project.py")
    said = programs.ends_well(
        *("-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", "-v", *options),
        *("--rootdir", folder, folder),
        PYTHONPATH=os.pathsep.join([str(APPS), str(PROJECTS)]),
        LOOP=LOOP if "--loop=goloop" in options else ASYNCIO_LOOP,
    )
    found = re.search(r"=+ (\d+) passed(?:, \d+ warnings?)? in", said)
    assert found is not None, said
    return int(found[1]), said


@pytest.mark.parametrize(
    ("tests", "conftest", "count", "options"),
    [
        ("asyncio_plugin", "factory", 3, ()),
        # The fixture is deprecated, and so are policies from 3.14 on.
        ("asyncio_plugin", "policy", 3, ()),
        ("anyio", "anyio", 2, ()),
        ("aiohttp", "factory", 2, AUTO),
        ("aiohttp_own_plugin", "aiohttp", 2, (*NO_PLUGINS, "-p", "aiohttp.pytest_plugin")),
        ("simulated", None, 3, ("--goloop-seeds=2", *AUTO)),
        # A loop that a test names is not replaced by the option.
        ("two_loops", "two_loops", 3, ("--loop=goloop",)),
        # -p is read before entry points are: the plugin's option hides goloop's.
        ("other_option", None, 1, ("-p", "other_option", "--loop=7")),
        ("imports", None, 1, ()),
    ],
)
def test_a_project_runs_with_its_plugin(
    programs: Programs,
    tmp_path: Path,
    tests: str,
    conftest: str | None,
    count: int,
    options: tuple[str, ...],
) -> None:
    found, said = passed(programs, tmp_path, tests, conftest, *options)
    assert found == count
    assert "warning" not in said or conftest != "factory"


def test_pytest_asyncio_runs_a_test_on_each_of_two_loops(
    programs: Programs, tmp_path: Path
) -> None:
    count, said = passed(programs, tmp_path, "two_loops", "two_loops")
    assert count == 3
    assert said.count("test_loop[goloop]") == said.count("test_loop[asyncio]") == 1


@pytest.mark.parametrize(
    ("tests", "count", "options"),
    [
        pytest.param("asyncio_plugin", 3, (), id="pytest-asyncio"),
        pytest.param("anyio", 2, ("-k", "asyncio"), id="anyio"),
        pytest.param("aiohttp", 2, AUTO, id="pytest-aiohttp"),
        pytest.param("stdlib", 3, NO_PLUGINS, id="stdlib"),
    ],
)
def test_the_option_loop_puts_tests_of_every_plugin_on_goloop(
    programs: Programs, tmp_path: Path, tests: str, count: int, options: tuple[str, ...]
) -> None:
    found, said = passed(programs, tmp_path, tests, None, "--loop=goloop", *options)
    assert found == count
    assert f"loop: goloop {goloop.__version__}\n" in said
    assert "DeprecationWarning" not in said


@pytest.mark.parametrize("options", [(), ("--loop=asyncio",)], ids=["none", "asyncio"])
def test_without_the_option_tests_run_on_asyncio(
    programs: Programs, tmp_path: Path, options: tuple[str, ...]
) -> None:
    found, said = passed(programs, tmp_path, "stdlib", None, *options)
    assert found == 3
    assert "loop: goloop" not in said
