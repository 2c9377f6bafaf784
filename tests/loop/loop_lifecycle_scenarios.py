"""The scenarios of test_loop_lifecycle.py: `python loop_lifecycle_scenarios.py NAME` runs one."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import threading
import warnings


def a_loop_that_another_thread_collects_leaves_no_descriptor(loop_name: str) -> None:
    warnings.simplefilter("ignore")
    if loop_name == "goloop":
        from goloop import new_event_loop

        new_event_loop().close()
    else:
        from asyncio import new_event_loop
    before = len(os.listdir("/proc/self/fd"))
    gc.disable()
    loop = new_event_loop()
    loop.run_until_complete(asyncio.sleep(0))
    loop.myself = loop
    del loop
    thread = threading.Thread(target=gc.collect)
    thread.start()
    thread.join()
    print(len(os.listdir("/proc/self/fd")) - before)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
