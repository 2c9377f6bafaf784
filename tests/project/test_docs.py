"""The programs in the documentation run: each ```python block is a whole one.

What is not a whole program stands in a block of another kind, and in the README.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = ["index", "usage", "networking", "tls", "subprocesses", "deployment", "observability"]
BLOCKS = [
    pytest.param(block, id=f"{page}-{number}")
    for page in PAGES
    for number, block in enumerate(
        re.findall(r"^```python\n(.*?)^```$", (DOCS / f"{page}.md").read_text(), re.S | re.M)
    )
]


@pytest.mark.parametrize("block", BLOCKS)
def test_the_documented_program_runs(block: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(block)
    done = subprocess.run(
        [
            *(sys.executable, "-W", "error::ResourceWarning"),
            # From 3.12 on, of every fork beside threads; deployment.md says so.
            *("-W", "ignore:This process:DeprecationWarning"),
            str(program),
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert "Traceback" not in said
    assert "Warning" not in said, said


STATES = {"native", "goloop", "inherited", "asyncio", "differs"}


def methods_and_states() -> list[tuple[str, str]]:
    """Each method of the table in compatibility.md with the state that it gives."""
    text = (DOCS / "compatibility.md").read_text()
    section = text.split("## Every method of AbstractEventLoop")[1].split("\n## ")[0]
    rows = [line.split(" | ") for line in section.splitlines() if line.startswith("| `")]
    return [(name, row[1]) for row in rows for name in re.findall(r"`(\w+)`", row[0])]


def test_the_table_names_every_method_once() -> None:
    named = [name for name, _ in methods_and_states()]
    assert sorted(set(named)) == sorted(named)
    public = {name for name in vars(asyncio.AbstractEventLoop) if not name.startswith("_")}
    assert public <= set(named)
    assert {state for _, state in methods_and_states()} <= STATES


@pytest.mark.parametrize("page", [*PAGES, "compatibility"])
def test_links_lead_somewhere(page: str) -> None:
    for target in re.findall(r"\]\(([^)#]+)", (DOCS / f"{page}.md").read_text()):
        assert (DOCS / target).exists(), target
