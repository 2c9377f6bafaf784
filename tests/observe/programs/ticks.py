"""The program `ticks` of test_ready_wait.py."""

import os
import sys
import time

sys.stdin.read()
for _ in range(20):
    os.write(1, b"x")
    time.sleep(0.01)
