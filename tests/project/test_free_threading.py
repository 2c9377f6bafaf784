"""A free-threaded Python: goloop leaves its GIL off, and the tools find it and its races."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import environments

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.skipif(
    not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="this Python always has a GIL"
)
def test_the_gil_stays_off() -> None:
    program = "import sys, goloop; goloop.new_event_loop().close(); print(sys._is_gil_enabled())"
    env = {name: value for name, value in os.environ.items() if name != "PYTHON_GIL"}
    command = [sys.executable, "-W", "error", "-c", program]
    assert subprocess.run(command, env=env, capture_output=True, text=True).stdout == "False\n"


# ---- tools/environments.py ---------------------------------------------------------------


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder on PATH, whose files print their interpreter's kind; it is the only one."""
    known = environments.Interpreter

    def interpreter(program: str) -> object:
        version, tag = Path(program).read_text().split()
        return known(program, tuple(map(int, version.split("."))), tag)

    monkeypatch.setattr(environments, "interpreter", interpreter)
    default = known("default", (3, 13, 0), "3.13")
    monkeypatch.setattr(environments, "default_interpreter", lambda: default)
    monkeypatch.setenv("GOLOOP_PYTHONS", "")
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "none"))
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def test_free_threaded_interpreters_are_versions_of_their_own(path: Path) -> None:
    (path / "python3.13t").write_text("3.13.9 3.13t")
    (path / "python3.15t").write_text("3.15.0 3.15t")
    (path / "python3.14").write_text("3.14.2 3.14t")  # built without the GIL, named like others
    (path / "python3.12").write_text("3.12.1 3.12")
    (path / "python3.13").write_text("3.13.1 3.13d")
    (path / "python3.13-config").write_text("")
    found = [each.tag for each in environments.all_interpreters()]
    # The last one has a GIL: it is the one for the tests that only one has.
    assert found == ["3.13t", "3.14t", "3.15t", "3.12", "3.13"]
    assert environments.free_threaded_interpreter().tag == "3.15t"


# ---- the build ---------------------------------------------------------------------------


def test_the_staging_directory_is_the_one_that_setuptools_has(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A leftover of a build for another machine would be packed into the wheel."""
    setuptools = pytest.importorskip("setuptools")
    import goloop_build

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GOLOOP_PURE", raising=False)
    build = setuptools.Distribution().get_command_obj("build")
    build.ensure_finalized()
    left = Path(build.build_platlib) / "goloop" / "_core.of-another-machine.so"
    left.parent.mkdir(parents=True)
    left.write_text("")
    goloop_build._drop_stale_output()
    assert not left.exists()


# ---- tools/sanitizers.py -----------------------------------------------------------------

REPORT = """\
==================
WARNING: ThreadSanitizer: data race (pid=1)
  Write of size 8 at 0x7f by thread T2 (mutexes: write M1):
    #0 memcpy sanitizer_common_interceptors.inc:827 (libtsan.so+0x6243e)
    #1 second pybridge/core/queue/ready.c:20 (_core.cpython-313t-x86_64-linux-gnu.so+0x2)
    #2 <null> <null> (python3.13t+0xfe)

  Previous {access} of size 8 at 0x7f by thread T1:
    #0 first pybridge/core/loop/turn.c:10 (_core.cpython-313t-x86_64-linux-gnu.so+0x1)

  Thread T2 (tid=3, running) created by main thread at:
    #0 pthread_create tsan_interceptors_posix.cpp:1001 (libtsan.so+0x5e686)

SUMMARY: ThreadSanitizer: data race pybridge/core/queue/ready.c:20 in second
==================
"""


@pytest.fixture
def sanitizers():
    return pytest.importorskip("sanitizers")


def test_races_of_the_extension_are_counted(sanitizers, tmp_path: Path) -> None:
    reports = [REPORT.format(access=access) for access in ("read", "atomic write")]
    (tmp_path / "report.1").write_text("".join(reports))
    other = REPORT.format(access="write").replace("ready.c:20", "ready.c:30")
    (tmp_path / "report.2").write_text(reports[0] + other)
    # Others' libraries.
    (tmp_path / "report.3").write_text(reports[0].replace("(_core.", "(_other."))
    (tmp_path / "report.4").write_text("==7==ThreadSanitizer: something else\n")
    races = sanitizers.races(tmp_path)
    assert [(race.seen, race.places) for race in races] == [
        (3, "loop/turn.c:10 first | queue/ready.c:20 second"),
        (1, "loop/turn.c:10 first | queue/ready.c:30 second"),
    ]
    assert races[0].text.startswith("WARNING: ThreadSanitizer: data race (pid=1)\n  Write of")


def test_every_wrapped_call_of_the_api_has_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("setuptools.command.bdist_wheel")
    from goloop_build import commands

    names = commands.wrapped_by(str(ROOT / commands.TSAN))
    assert {"PyObject_Call", "PyCriticalSection_Begin", "PyMem_RawFree"} <= set(names)
    assert not [name for name in names if not name.startswith(("Py", "_Py"))]
