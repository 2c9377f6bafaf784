"""PyInstaller's hook: adds the Go library, which is not found through imports.

Python modules that the extension imports by name are also imported by a module of the package,
which PyInstaller finds (a test compares).
"""

from __future__ import annotations

import glob
import importlib.util
import os

_spec = importlib.util.find_spec("goloop")
assert _spec is not None
assert _spec.origin is not None
_folder = os.path.dirname(_spec.origin)

# The pure-Python wheel has no library.
binaries = [(path, "goloop") for path in glob.glob(os.path.join(_folder, "libgoloop.so.*"))]
