"""asyncio's own loop under goloop's names, for platforms that goloop's loop can't be had on.

So that a project may depend on goloop without markers, `pip install goloop` succeeds
everywhere: where no other wheel fits, it takes one that has only Python in it.
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
    """Make a new event loop; asyncio.Runner and asyncio.run take it as loop_factory."""
    return Loop()


def reason() -> str:
    """Why this is not goloop's loop, as a whole sentence without its full stop."""
    if sys.implementation.name != "cpython":
        return f"goloop's own loop is for CPython, and this is {platform.python_implementation()}"
    if sys.platform != "linux":
        return f"goloop's own loop is for Linux, and this is {sys.platform}"
    if not _glibc():
        return "goloop's own loop is for Linux with glibc, and this is another C library"
    kind = " without the GIL" if sysconfig.get_config_var("Py_GIL_DISABLED") else ""
    version = "{}.{}".format(*sys.version_info)
    return (
        f"goloop was installed from the wheel without compiled parts; there may be no other for "
        f"CPython {version}{kind} on {platform.machine()}, but with a C compiler "
        f"`pip install --force-reinstall --no-binary goloop goloop` builds it"
    )


def _glibc() -> bool:
    try:
        return (os.confstr("CS_GNU_LIBC_VERSION") or "").startswith("glibc")
    except (ValueError, OSError):
        return False


def warn() -> None:
    """The one warning, at the import of goloop."""
    text = f"goloop runs on asyncio's own event loop: {reason()}"
    warnings.warn(text, RuntimeWarning, stacklevel=3)


__all__ = ("Future", "Loop", "Task", "new_event_loop", "reason", "warn")
