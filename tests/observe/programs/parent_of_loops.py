"""Starts two children with loops, and one without; they end with the standard input."""

import subprocess
import sys
from pathlib import Path

if "imports" in sys.argv:
    import goloop  # noqa: F401
with_a_loop = (sys.executable, Path(__file__).with_name("child_with_a_loop.py"))
subprocess.Popen(with_a_loop)
subprocess.Popen(["sh", "-c", '"$0" "$@"; :', *with_a_loop])
subprocess.Popen([sys.executable, Path(__file__).with_name("child_without_a_loop.py")])
sys.stdin.read()
