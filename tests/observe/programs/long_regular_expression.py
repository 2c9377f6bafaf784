"""The program `long_regular_expression` of test_top.py."""

import asyncio
import re

import goloop


def slow():
    print("ready", flush=True)
    re.match("(a+)+$", "a" * 60 + "b")  # holds the GIL for years


async def main():
    await asyncio.sleep(0.05)
    slow()


goloop.run(main())
