"""The program `locale_with_a_comma` of test_asking_socket.py."""

import asyncio
import locale
import re

import goloop

locale.setlocale(locale.LC_ALL, "de_DE.UTF-8")
assert locale.localeconv()["decimal_point"] == ","


def slow():
    print("ready", flush=True)
    re.match("(a+)+$", "a" * 60 + "b")  # holds the GIL for years


async def main():
    await asyncio.sleep(0.05)
    slow()


goloop.run(main())
