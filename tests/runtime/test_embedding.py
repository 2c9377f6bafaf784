"""goloop in a Python that is itself inside a Go program (examples/embed)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "embed"

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


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example, built against the interpreter that runs the tests."""
    library = sysconfig.get_config_var("LIBDIR")
    built = tmp_path_factory.mktemp("embed") / "embed"
    environment = os.environ | {
        "PKG_CONFIG_PATH": sysconfig.get_config_var("LIBPC"),
        "CGO_LDFLAGS": f"-Wl,-rpath,{library}",
    }
    download = subprocess.run(
        ["go", "mod", "download"], cwd=EXAMPLE, env=environment, capture_output=True, text=True
    )
    if download.returncode:
        pytest.skip(f"the Go module can't be had: {download.stderr.strip()}")
    done = subprocess.run(
        ["go", "build", "-o", str(built), "."],
        cwd=EXAMPLE,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return built


def test_a_go_program_hosts_an_application(program: Path) -> None:
    """Two Go runtimes in one process, both collecting garbage, and Python between."""
    import goloop

    packages = [str(Path(goloop.__file__).parent.parent)]
    packages += [entry for entry in sys.path if entry.endswith("site-packages")]
    done = subprocess.run(
        [str(program)],
        env=os.environ | {"PYTHONHOME": sys.base_prefix, "PYTHONPATH": os.pathsep.join(packages)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        f"Python {sys.version.split()[0]} on goloop.Loop",
        "Go: 1000 lines came back",
    ]
