"""goloop in a Python that is itself inside a Go program (examples/embed)."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import environments

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "embed"
README = EXAMPLE / "README.md"

pytestmark = [
    pytest.mark.skipif(
        sys.version_info[:2] != (3, 12), reason="the example's Go package builds on CPython 3.12"
    ),
    pytest.mark.skipif(
        not sysconfig.get_config_var("Py_ENABLE_SHARED"), reason="needs a shared libpython"
    ),
    pytest.mark.skipif(
        shutil.which("go") is None or shutil.which("pkg-config") is None,
        reason="needs go and pkg-config",
    ),
]


def make(*words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run make in the example's folder."""
    return subprocess.run(
        ["make", *words], cwd=EXAMPLE, env=environ or None, capture_output=True, text=True,
        check=False, timeout=100,
    )  # fmt: skip


def test_one_command_builds_and_runs_the_program(tmp_path: Path) -> None:
    """Two Go runtimes in one process, both collecting garbage, and Python between."""
    pytest.importorskip("setuptools", reason="the build's requirement")
    made = tmp_path / "made"
    # The requirements of the build are those of the tests; nothing else names Python's folders.
    others = ("CGO_LDFLAGS", "LD_LIBRARY_PATH", "PKG_CONFIG_PATH", "PYTHONHOME", "PYTHONPATH")
    environment = {name: value for name, value in os.environ.items() if name not in others}
    environment |= {"PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "0"}
    download = subprocess.run(
        ["go", "mod", "download"], cwd=EXAMPLE, env=environment, capture_output=True, text=True
    )
    if download.returncode:
        pytest.skip(f"the Go module can't be had: {download.stderr.strip()}")
    with environments.locked("install"):  # pip writes into the tree's build/
        done = make("-s", f"BUILD={made}", f"PYTHON={sys.executable}", **environment)
    assert done.returncode == 0, done.stderr
    version = sys.version.split()[0]
    (shown,) = re.findall(r"^\$ make\n\.\.\.\n(.*?)```$", README.read_text(), re.S | re.M)
    assert done.stdout == re.sub(r"Python [\d.]+", f"Python {version}", shown)
    assert (made / "packages" / "goloop" / "libgoloop.so.1").exists()
    assert make(f"BUILD={made}", "clean").returncode == 0
    assert not made.exists()


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("PYTHON", "no-such-python", "there is no no-such-python; name a CPython 3.12"),
        ("PYTHON", "false", "false is no CPython 3.12"),
        ("GO", "no-such-go", "there is no no-such-go on PATH"),
    ],
)
def test_a_missing_program_is_named(variable: str, value: str, words: str, tmp_path: Path) -> None:
    python = () if variable == "PYTHON" else (f"PYTHON={sys.executable}",)
    done = make(f"{variable}={value}", f"BUILD={tmp_path / 'made'}", *python)
    assert done.returncode != 0
    assert f"embed: {words}" in done.stderr
