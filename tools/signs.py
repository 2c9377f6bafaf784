"""Signs of life of a step: the seconds that it has taken, while its program prints nothing."""

from __future__ import annotations

import subprocess
from typing import Any

# Seconds between two signs.
SECONDS = 10.0


def wait(process: subprocess.Popen[Any], *, shown: bool) -> int:
    """Waits for the end of a program and returns its exit status; prints the signs if `shown`."""
    waited = 0.0
    while True:
        try:
            return process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            waited += SECONDS
            if shown:
                print(f"    ... {waited:.0f} s", flush=True)
