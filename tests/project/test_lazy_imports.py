"""goloop's own imports are not lazy even if all imports are (PEP 810), and none is missing."""

from __future__ import annotations

import sys
from pathlib import Path

import ended
import pytest

PROGRAMS = Path(__file__).with_name("programs")

pytestmark = pytest.mark.skipif(sys.version_info < (3, 15), reason="PEP 810 is new in 3.15")

RUN = """
import asyncio
{how} goloop
async def main():
    await asyncio.sleep(0)
    return type(asyncio.current_task()).__module__
with asyncio.Runner(loop_factory=goloop.new_event_loop) as runner:
    print(runner.run(main()))
print(goloop.run(main()))
"""
LOADED = (PROGRAMS / "lazy_loaded.py").read_text()
SIMULATED = (PROGRAMS / "lazy_simulated.py").read_text()


def program(text: str, *options: str) -> str:
    done = ended.python(*options, "-c", text, limit=60)
    assert done.returncode == 0, done.stdout
    return str(done.stdout)


@pytest.mark.parametrize("how", ["import", "lazy import"])
@pytest.mark.parametrize("mode", ["all", "normal"])
def test_a_loop_has_its_library_and_its_tasks(mode: str, how: str) -> None:
    text = RUN.format(how=how)
    assert program(text, "-X", f"lazy_imports={mode}").split() == ["goloop", "goloop"]


def test_lazy_imports_load_the_same_modules() -> None:
    # Modules that can't be imported later, without files or in a simulation, are already loaded.
    assert program(LOADED, "-X", "lazy_imports=all") == program(LOADED)


def test_simulations_run() -> None:
    said = program(SIMULATED, "-X", "lazy_imports=all")
    assert said.split() == ["said", "True"] * 2
