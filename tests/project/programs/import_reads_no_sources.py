import asyncio  # noqa: F401
import linecache
import sys

before = set(linecache.cache)
import goloop  # noqa: F401

print(sorted(set(linecache.cache) - before), hasattr(sys, "tracebacklimit"))
