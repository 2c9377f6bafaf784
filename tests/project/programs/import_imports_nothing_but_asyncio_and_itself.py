import asyncio  # noqa: F401
import sys

before = set(sys.modules)
import goloop  # noqa: F401

print(*sorted(set(sys.modules) - before))
