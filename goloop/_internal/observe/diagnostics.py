"""goloop.diagnostics: information about this process and its loop, for bug reports."""

from __future__ import annotations

import asyncio
import os
import sys

from .. import backend
from ..records import decode_json
from ..version import __version__

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any
if backend.native or TYPE_CHECKING:
    from ... import _core
    from ..loop import library
    from ..tasks import tasks
if not backend.native or TYPE_CHECKING:
    from ..process import fallback


def _python() -> str:
    """Return the implementation and the version of Python, as the module `platform` has them."""
    name = {"cpython": "CPython", "pypy": "PyPy"}.get(sys.implementation.name)
    return f"{name or sys.implementation.name} {sys.version.split()[0]}"


def _platform() -> str:
    """Return the names of the system, its release and the machine.

    The module `platform`, which has them for every system, takes long to import.
    """
    if not hasattr(os, "uname"):
        return sys.platform
    names = os.uname()
    return f"{names.sysname} {names.release} {names.machine}"


def diagnostics(loop: asyncio.AbstractEventLoop | None = None) -> dict[str, Any]:
    """Return information about the package, the Go library and a loop, for bug reports.

    The call does not open the library. These keys always exist: `goloop` (the version), `native`,
    `python`, `platform`, `executable`. If `native` is False, `reason` explains it; otherwise there
    are `library`, `tls` (how TLS is done) and `tasks` (the class of tasks), and for a goloop loop
    `loop` (its counters) and `runtime` (Go's). Nested names and values may change in any version.
    Since 0.3.0.

    Args:
        loop: A loop; by default the running one.

    Returns:
        A dict with values that json can serialize.
    """
    if loop is None:
        loop = asyncio._get_running_loop()
    facts: dict[str, Any] = {
        "goloop": __version__,
        "native": backend.native,
        "python": _python(),
        "platform": _platform(),
        "executable": sys.executable,
    }
    if not backend.native:
        facts["reason"] = fallback.reason()
        return facts
    facts["library"] = _core.library_info()
    facts["tls"] = library.openssl_reason or "OpenSSL called directly"
    facts["tasks"] = "goloop.Task" if tasks.reason is None else f"asyncio.Task: {tasks.reason}"
    if isinstance(loop, _core.Loop):
        counters = loop._diagnostics()
        runtime = counters.pop("runtime", None)
        facts["loop"] = counters
        if isinstance(runtime, str):
            facts["runtime"] = decode_json(runtime)
    return facts
