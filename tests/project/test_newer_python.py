"""A CPython newer than any that goloop knows: it is installed, runs on the stdlib's tasks,
and says so."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import ended
import pytest

from goloop_build import toolchain

PROGRAMS = Path(__file__).with_name("programs")

ROOT = Path(__file__).resolve().parents[2]

PROGRAM = (PROGRAMS / "newer_python.py").read_text()


@pytest.fixture(scope="module")
def unknown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a goloop to which this very Python is too new."""
    folder = tmp_path_factory.mktemp("newer")
    ignored = shutil.ignore_patterns("__pycache__", "*.so")
    package = Path(shutil.copytree(ROOT / "goloop", folder / "goloop", ignore=ignored))
    (package / "libgoloop.so").symlink_to(ROOT / "goloop" / "libgoloop.so")
    command = [*shlex.split(toolchain.c_compiler()), "-std=c11", "-O0", "-w", "-shared", "-fPIC"]
    command += ["-fvisibility=hidden", "-DGL_LAYOUT_UNKNOWN_FROM=PY_VERSION_HEX"]
    command += [f"-I{path}" for path in ("pybridge", "pybridge/core")]
    command += [f"-I{sysconfig.get_paths()['include']}", "pybridge/core/module.c", "-ldl"]
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    subprocess.run([*command, "-o", package / f"_core{suffix}"], cwd=ROOT, check=True)
    return folder


def run(folder: Path, program: str) -> str:
    command = ("-W", "error", "-c", program)
    done = ended.python(*command, apart=True, cwd=folder, PYTHONPATH=str(folder))
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_unknown_task_layout_falls_back_to_asyncios_tasks(unknown: Path) -> None:
    version = ".".join(map(str, sys.version_info[:3]))
    reason = f"this build of CPython {version} has a layout that goloop does not know"
    assert run(unknown, PROGRAM) == f"asyncio.Task: {reason}\n"


@pytest.mark.skipif(sys.version_info < (3, 14), reason="3.13's policies will not go")
def test_a_python_without_policies(unknown: Path) -> None:
    source = (PROGRAMS / "without_policies.py").read_text()
    expected = "asyncio of this Python version has no event loop policies: use goloop.run(), "
    assert run(unknown, source + PROGRAM).startswith(expected)
