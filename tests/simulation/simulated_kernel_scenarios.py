"""The scenarios of test_simulated_kernel.py, each run by its name."""

from __future__ import annotations

import asyncio
import os
import sys
import time

import goloop


def a_forked_child_is_on_the_hosts_kernel() -> None:
    from goloop.testing.simulated.kernel import Kernel

    with Kernel():
        goloop.new_event_loop().close()
        if (child := os.fork()) == 0:
            loop = goloop.new_event_loop()
            good = abs(loop.time() - time.monotonic()) < 60
            loop.run_until_complete(asyncio.sleep(0.001))
            loop.close()
            os._exit(0 if good else 1)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


if __name__ == "__main__":
    globals()[sys.argv[1]]()
