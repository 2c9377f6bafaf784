"""The scenarios of test_sock_methods.py: `python sock_methods_scenarios.py NAME` runs one."""

from __future__ import annotations

import asyncio
import socket
import sys

import goloop


def a_wait_without_memory_fails_and_earlier_waits_go_on() -> None:
    from _testcapi import remove_mem_hooks, set_nomemory

    async def main():
        loop = asyncio.get_running_loop()
        near, far = socket.socketpair()
        near.setblocking(False)
        waits = [loop._wait_readable(near)]
        failed = 0
        for which in range(1, 40):
            calls = loop._wait_readable  # bound before memory runs out
            set_nomemory(which, which + 1)
            try:
                waits.append(calls(near))
            except (MemoryError, OSError):
                failed += 1
            finally:
                remove_mem_hooks()
        far.send(b"x")
        await asyncio.wait(waits, timeout=20)
        print(failed > 0, all(wait.done() for wait in waits))
        near.close()
        far.close()

    goloop.run(main())


if __name__ == "__main__":
    globals()[sys.argv[1]]()
