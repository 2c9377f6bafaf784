"""The program `imports_slowly` of test_top.py."""

import asyncio
import sys
import time


class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == "goloop.operations.introspection":
            print("ready", flush=True)
            time.sleep(0.7)


sys.meta_path.insert(0, Slow())
import goloop


async def main():
    await asyncio.get_running_loop().create_future()


goloop.run(main())
