"""PyInstaller sees imports; the Go library is none, and the extension imports by name."""

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

# What pybridge/core imports by name, and no module of the package does.
hiddenimports = [
    "asyncio.sslproto",
    "collections.abc",
    "goloop.closing",
    "goloop.protocols",
    "goloop.transport_socket",
    "socket",
]
