"""goloop.diagnostics: what this process runs on, for bug reports and the curious."""

from __future__ import annotations

import asyncio
import sys

from .. import backend
from ..version import __version__

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def diagnostics(loop: asyncio.AbstractEventLoop | None = None) -> dict[str, Any]:
    """Facts about the package, the Go library and a loop, for bug reports.

    Asking opens no library.  What is always there: `goloop` (the version), `native`, `python`,
    `platform`, `executable`.  Where `native` is False, `reason` says why; else there are `library`,
    `tls` (how TLS is done) and `tasks` (whose tasks there are), and for a goloop loop `loop` (its
    counters) and `runtime` (Go's own).  Names and values below these may change in any version.
    Since 0.3.0.

    Args:
        loop: The loop to tell of; the running one by default.

    Returns:
        The facts, of types that json can write.
    """
    # Not needed by programs that only run.
    import json
    import platform

    if loop is None:
        loop = asyncio._get_running_loop()
    facts: dict[str, Any] = {
        "goloop": __version__,
        "native": backend.native,
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        # Not platform.platform(), which may start a process to ask.
        "platform": " ".join((platform.system(), platform.release(), platform.machine())),
        "executable": sys.executable,
    }
    if not backend.native:
        from ..process import fallback

        facts["reason"] = fallback.reason()
        return facts
    from ... import _core
    from ..net import tls
    from ..tasks import tasks

    facts["library"] = _core.library_info()
    facts["tls"] = tls.fallback_reason or "OpenSSL called directly"
    facts["tasks"] = "goloop.Task" if tasks.reason is None else f"asyncio.Task: {tasks.reason}"
    if isinstance(loop, _core.Loop):
        counters = loop._diagnostics()
        runtime = counters.pop("runtime", None)
        facts["loop"] = counters
        if isinstance(runtime, str):
            facts["runtime"] = json.loads(runtime)
    return facts
