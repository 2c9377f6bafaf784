"""A program that PyInstaller made, with goloop in it: in one folder, and in one file."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import goloop
from real_programs.programs import OPTIONAL, needs

needs("PyInstaller")

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(
        not sysconfig.get_config_var("Py_ENABLE_SHARED"),
        reason="PyInstaller refuses a Python without a shared library",
    ),
]

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["onedir", "onefile"])
def test_a_frozen_program_runs_on_goloop(tmp_path: Path, kind: str) -> None:
    # The folder has all that PyInstaller finds without an option; one file of it is slow to make.
    without = OPTIONAL if kind == "onefile" else ()
    made = subprocess.run(
        [
            *(sys.executable, "-m", "PyInstaller", f"--{kind}", "--name=program", "--noconfirm"),
            # An editable goloop is not where its metadata is.
            *(f"--paths={Path(goloop.__file__).parents[1]}", "--log-level=WARN"),
            *(f"--exclude-module={name}" for name in without),
            *("--distpath=dist", "--workpath=work", "--specpath=."),
            ROOT / "tools" / "try_wheel.py",
        ],
        cwd=tmp_path, env={**os.environ, "PYINSTALLER_CONFIG_DIR": str(tmp_path / "cache")},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    assert made.returncode == 0, made.stdout
    program = tmp_path / "dist" / "program"
    if kind == "onedir":
        program /= "program"
    # Nothing of this Python's is to be found.
    (tmp_path / "tmp").mkdir()
    ran = subprocess.run(
        [program], cwd=tmp_path, env={"PATH": "", "TMPDIR": str(tmp_path / "tmp")},
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert f"goloop {goloop.__version__} on Python" in ran.stdout
    (folder,) = [line for line in ran.stdout.splitlines() if line.startswith("  from ")]
    assert str(tmp_path) in folder
