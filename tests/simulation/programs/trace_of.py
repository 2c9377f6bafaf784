"""Print the trace that a function of a test module returns for a seed: MODULE FUNCTION SEED."""

import importlib
import sys
from pathlib import Path

here = Path(__file__).resolve()
sys.path[:0] = [str(here.parents[1]), str(here.parents[2] / "support")]

module, function, seed = sys.argv[1:]
sys.stdout.write(getattr(importlib.import_module(module), function)(int(seed)))
