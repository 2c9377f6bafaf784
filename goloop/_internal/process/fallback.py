"""asyncio's own loop under goloop's names, for platforms without a build of goloop's loop.

A project may depend on goloop without environment markers, because `pip install goloop` succeeds
everywhere: if no other wheel fits, pip installs the one that has only Python code.
"""

from __future__ import annotations

import asyncio
import os
import platform
import sys
import sysconfig
import warnings
from asyncio import Future, Task

TYPE_CHECKING = False

if TYPE_CHECKING:
    Loop = asyncio.SelectorEventLoop
elif sys.version_info >= (3, 13):
    Loop = asyncio.EventLoop
elif sys.platform == "win32":
    Loop = asyncio.ProactorEventLoop
else:
    Loop = asyncio.SelectorEventLoop


def new_event_loop() -> Loop:
    """Return a new event loop; asyncio.Runner and asyncio.run accept it as loop_factory."""
    return Loop()


def reason() -> str:
    """Return why this is not goloop's loop, as sentences without the final full stop."""
    if sys.implementation.name != "cpython":
        implementation = platform.python_implementation()
        return f"goloop's own loop needs CPython, and this is {implementation}"
    if sys.platform != "linux":
        return f"goloop's own loop needs Linux, and this is {sys.platform}"
    if not _glibc():
        return "goloop's own loop needs Linux with glibc, and this system has another C library"
    kind = " without the GIL" if sysconfig.get_config_var("Py_GIL_DISABLED") else ""
    version = "{}.{}".format(*sys.version_info)
    return (
        f"the installed wheel of goloop has no compiled parts, perhaps because no compiled wheel "
        f"exists for CPython {version}{kind} on {platform.machine()}. To build goloop's own loop "
        f"(needs a C compiler): pip install --force-reinstall --no-binary goloop goloop"
    )


def _glibc() -> bool:
    """Return true if the C library is glibc."""
    try:
        return (os.confstr("CS_GNU_LIBC_VERSION") or "").startswith("glibc")
    except (ValueError, OSError):
        return False


def warn() -> None:
    """Warn once, when goloop is imported, that asyncio's own loop is used."""
    text = f"goloop runs on asyncio's own event loop: {reason()}"
    warnings.warn(text, RuntimeWarning, stacklevel=3)


__all__ = ("Future", "Loop", "Task", "new_event_loop", "reason", "warn")
