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

ROOT = Path(__file__).resolve().parents[2]

PROGRAM = """
import asyncio, goloop
async def child(n):
    await asyncio.sleep(0)
    return n
async def main():
    assert type(asyncio.current_task()) is asyncio.Task is goloop.Task
    assert type(asyncio.get_running_loop().create_future()) is asyncio.Future
    server = await asyncio.start_server(lambda r, w: w.close(), "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    assert await reader.read() == b""
    writer.close()
    server.close()
    return await asyncio.gather(*(child(n) for n in range(3)))
assert goloop.run(main()) == [0, 1, 2]
print(goloop.diagnostics()["tasks"])
"""


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
    source = """
import asyncio.unix_events
del asyncio.unix_events._DefaultEventLoopPolicy
import goloop
from goloop import *
assert not hasattr(goloop, "EventLoopPolicy") and "EventLoopPolicy" not in dir()
try:
    goloop.install()
except RuntimeError as error:
    print(error)
"""
    expected = "asyncio of this Python version has no event loop policies: use goloop.run(), "
    assert run(unknown, source + PROGRAM).startswith(expected)
