"""Facts of /proc/PID/stat, which several commands and exporters read."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from goloop.operations import proc_stat

pytestmark = [
    pytest.mark.goloop_only("asyncio has no such commands"),
    pytest.mark.skipif(sys.platform != "linux", reason="the file is Linux's"),
]

ROOT = Path(__file__).resolve().parents[2]
# An id that no process has, even with the largest kernel.pid_max.
NONE = (1 << 22) + 1


def test_a_programs_name_may_look_like_fields(tmp_path: Path) -> None:
    program = shutil.copy(shutil.which("sleep") or "/bin/sleep", tmp_path / "a) Z 1 (b")
    with subprocess.Popen([program, "1000"]) as child:
        try:
            assert proc_stat.state(child.pid) in ("R", "S", "D")
            assert proc_stat.parent(child.pid) == os.getpid()
            age = proc_stat.age(child.pid)
            assert age is not None
            assert age < time.monotonic()
            assert proc_stat.started(child.pid) != proc_stat.started(os.getpid())
        finally:
            child.kill()


def test_a_process_that_ended_is_a_zombie_and_then_has_no_facts() -> None:
    child = subprocess.Popen(["sleep", "1000"])
    child.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert proc_stat.state(child.pid) == "Z"
    child.wait()
    assert proc_stat.state(NONE) == ""
    for fact in (proc_stat.parent, proc_stat.started, proc_stat.age, proc_stat.cpu_seconds):
        assert fact(NONE) is None


def test_cpu_time_is_that_of_the_process() -> None:
    while time.process_time() < 0.1:
        pass
    found = proc_stat.cpu_seconds("self")
    assert found is not None
    assert found <= time.process_time() + 0.02  # a clock tick for each of its two parts


def test_one_module_of_the_product_reads_the_file() -> None:
    reads = re.compile(r"/proc/[^\"'\s]*/stat[\"']")
    found = [path for path in (ROOT / "goloop").rglob("*.py") if reads.search(path.read_text())]
    assert [path.name for path in found] == ["proc_stat.py"]
