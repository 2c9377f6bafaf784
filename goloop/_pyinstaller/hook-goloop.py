"""PyInstaller sees imports; the Go library is none.

What the extension imports by name, a module of the package imports too (a test compares).
"""

from __future__ import annotations

import glob
import importlib.util
import os

_spec = importlib.util.find_spec("goloop")
assert _spec is not None
assert _spec.origin is not None
_folder = os.path.dirname(_spec.origin)

# In a wheel without compiled parts there is no library.
binaries = [(path, "goloop") for path in glob.glob(os.path.join(_folder, "libgoloop.so.*"))]
