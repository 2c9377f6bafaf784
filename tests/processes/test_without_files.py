"""A process that has imported goloop, and can't read its files any more.

Servers import as root, and then change the root directory, become another user, or are upgraded on
disk, before their first loop or between two.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import ended
import pytest
from tls_tools import identity

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux's ways to lose files")

SCENARIOS = Path(__file__).with_name("without_files_scenarios.py")


@pytest.fixture
def folder(loop_name: str, tmp_path: Path) -> Path:
    """An empty folder, or one with a copy of goloop."""
    if loop_name == "goloop":
        import goloop

        source = Path(goloop.__file__).parent
        shutil.copytree(source, tmp_path / "goloop", ignore=shutil.ignore_patterns("*.pyc"))
    else:
        (tmp_path / "goloop").mkdir()
    return tmp_path


@pytest.mark.forks
@pytest.mark.parametrize("when", ["first", "between"])
@pytest.mark.parametrize("lost", ["chroot", "other_user", "upgraded"])
def test_loops_are_made_without_files(loop_name: str, lost: str, when: str, folder: Path) -> None:
    if lost != "upgraded" and os.geteuid() != 0:
        pytest.skip("only root may do this")
    words = (loop_name, when, folder, identity().certificate, identity().key)
    done = ended.python(SCENARIOS, lost, *words, PYTHONPATH=str(folder))
    assert (done.returncode, done.stdout) == (0, "fine\n"), done.stdout
