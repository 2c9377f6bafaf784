"""The program `imports_late` of test_top.py."""

import sys

print("started", flush=True)
sys.stdin.readline()
import goloop  # noqa: F401

print("imported", flush=True)
sys.stdin.readline()
