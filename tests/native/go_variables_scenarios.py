"""The scenario of test_go_variables.py: `python FILE variables NAME...` prints their values."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import goloop


def variables() -> None:
    loops = [goloop.new_event_loop() for _ in range(3)]
    print(json.loads(loops[0]._diagnostics()["runtime"])["gomaxprocs"])
    print(json.dumps({name: os.environ[name] for name in sys.argv[2:]}))
    print(subprocess.run(["printenv", "GODEBUG"], capture_output=True, text=True).stdout, end="")


if __name__ == "__main__":
    globals()[sys.argv[1]]()
