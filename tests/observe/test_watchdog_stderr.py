"""The watchdog's texts for stderr, where stderr takes nothing.

A supervisor that hangs, `2>&1 | less`, a terminal after Ctrl-S: each write(2) waits.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest
from observed_programs import Program

SCENARIOS = Path(__file__).with_name("watchdog_stderr_scenarios.py")

PATIENCE = 60.0

pytestmark = [
    pytest.mark.skipif(
        os.environ.get("GOLOOP_TEST_LOOP") == "asyncio", reason="asyncio has no watchdog"
    ),
    pytest.mark.skipif(
        bool(sysconfig.get_config_var("Py_GIL_DISABLED")), reason="there is no GIL to keep"
    ),
]


@pytest.fixture
def full() -> Iterator[tuple[int, int]]:
    """The ends of a pipe that has no room."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    for size in 4096, 1:
        try:
            while True:
                os.write(writer, b"." * size)
        except BlockingIOError:
            pass
    os.set_blocking(writer, True)
    yield reader, writer
    os.close(reader)
    os.close(writer)


def test_full_stderr_does_not_block_loop_close(full: tuple[int, int]) -> None:
    done = subprocess.run(
        [sys.executable, SCENARIOS, "close"],
        stdout=subprocess.PIPE,
        stderr=full[1],
        timeout=PATIENCE,
    )
    assert done.stdout == b"closed"


@pytest.mark.parametrize("options", [(), ("-X", "faulthandler")], ids=["plain", "faulthandler"])
def test_full_stderr_does_not_block_the_abort(
    full: tuple[int, int], options: tuple[str, ...]
) -> None:
    done = subprocess.run(
        [sys.executable, *options, SCENARIOS, "abort"], stderr=full[1], timeout=PATIENCE
    )
    assert done.returncode == -signal.SIGABRT


def test_reports_to_a_full_stderr_are_delayed_or_counted(full: tuple[int, int]) -> None:
    reader, writer = full
    blocks = 30
    with Program(
        [sys.executable, SCENARIOS, "many_blocks", str(blocks)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=writer,
        text=True,
    ) as process:
        assert process.stdout.readline() == "blocked\n"
        text = ""
        # Each block is a new report; one that finds room says how many did not.
        while (
            left_out := re.search(r"dropped reports, because stderr was full: (\d+)\n", text)
        ) is None:
            process.say("")
            text += os.read(reader, 1 << 20).decode()
        process.stdin.close()
    written = text[: left_out.start()].count("has been blocked for")
    assert written > 1
    assert 0 < int(left_out[1]) < blocks
    assert written + int(left_out[1]) >= blocks / 2
