"""goloop's own imports are not lazy even if all imports are (PEP 810), and none is missing."""

from __future__ import annotations

import sys

import ended
import pytest

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
LOADED = """
import sys
import goloop
goloop.run
print(*sorted(name for name in sys.modules if name.startswith("goloop")))
"""
SIMULATED = """
import asyncio, os
from goloop import testing

@testing.simulate(seeds=2)
async def test():
    async def echo(reader, writer):
        writer.write(await reader.readline())
        writer.close()
    async with await asyncio.start_server(echo, "127.0.0.1", 7) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", 7)
        writer.write(b"said\\n")
        print((await reader.read()).decode(), os.path.exists("/"), end=" ")
        writer.close()

test()
"""


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
