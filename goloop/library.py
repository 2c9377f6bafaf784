"""Where the Go library lies, and the hook that prepares it for forks.

Imported with the package; loads no Go.  What happens at a fork is told in
docs/fork.md.
"""

from __future__ import annotations

import os

from . import _core

LIBRARY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "libgoloop.so")

_core.set_library_path(LIBRARY)
os.register_at_fork(before=_core._before_fork)
