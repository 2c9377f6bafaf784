"""Builds the files of the native tests: library_shim.c, and files that are not Go libraries."""

from __future__ import annotations

import importlib.util
import os
import shlex
import subprocess
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent


Compile = Callable[..., Path]


def _compile(target: Path, source: Path, *flags: str) -> Path:
    """A shared library from one C file, by the compiler that extensions are built with."""
    compiler = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    command = [*shlex.split(compiler), "-std=c11", "-O1", "-g", "-Wall", "-Wextra", "-Werror"]
    command += ["-fPIC", "-shared", "-fvisibility=hidden", "-pthread"]
    command += [f"-I{ROOT / 'pybridge'}", f"-I{ROOT / 'pybridge' / 'core'}", *flags]
    subprocess.run([*command, str(source), "-o", str(target), "-ldl"], check=True)
    return target


@pytest.fixture(scope="session")
def native(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory for the files that the tests compile."""
    return tmp_path_factory.mktemp("native")


@pytest.fixture(scope="session")
def compile_shared() -> Compile:
    """Compiles a shared library: (target, source, *flags)."""
    return _compile


@pytest.fixture(scope="session")
def shim(native: Path) -> Path:
    """The runtime room as it is."""
    return _compile(native / "shim.so", HERE / "library_shim.c")


@pytest.fixture(scope="session")
def golib() -> Path:
    """The Go library of the goloop that is being tested."""
    spec = importlib.util.find_spec("goloop")
    assert spec is not None, "goloop is not built: make build"
    assert spec.origin is not None, spec
    library = Path(spec.origin).parent / "libgoloop.so.1"
    assert library.exists(), f"there is no {library}: make build"
    return library
