"""The scenarios of test_handle_hook.py: `python handle_hook_scenarios.py NAME` runs one."""

from __future__ import annotations

import asyncio
import sys


def a_function_that_was_replaced_before_the_import_is_seen() -> None:
    original = asyncio.Handle._run
    ran = []

    def run(self):
        ran.append(getattr(self._callback, "__name__", ""))
        return original(self)

    asyncio.Handle._run = run
    import goloop

    async def main():
        asyncio.get_running_loop().call_soon(print, "called")
        await asyncio.sleep(0)

    goloop.run(main())
    assert "print" in ran, ran
    asyncio.Handle._run = original
    ran.clear()
    goloop.run(main())
    assert not ran


if __name__ == "__main__":
    globals()[sys.argv[1]]()
